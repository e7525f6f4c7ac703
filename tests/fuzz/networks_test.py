"""Some hundreds of random networks, new ones each time, are right.

TESSERA_FUZZ_SEED repeats a run: its seed is printed. tests/fuzz/run repeats a single network.
"""

import os
import time

import pytest
from campaign import describe, survey

COUNT, SECONDS = 300, 60
SLACK = 10  # a wrong number is wrong by much; roundings at the edge are for tests/fuzz/run to find


def check_networks(count, seconds):
    first = int(os.environ.get("TESSERA_FUZZ_SEED") or int(time.time()) % 10**8)
    print(f"TESSERA_FUZZ_SEED={first}")
    report = survey(list(range(first, first + count)), seconds=seconds)
    assert report.counts["fine"] > report.counts["illegal"] + report.counts["nothing"]
    shown = [describe(seed, failure, 20) for seed, failure in report.failures[:3]]
    if shown:
        pytest.fail(
            f"{len(report.failures)} of {sum(report.counts.values())} networks fail; "
            f"repeat with TESSERA_FUZZ_SEED={first}\n" + "\n".join(shown),
            pytrace=False,
        )


def test_random_networks_are_right(monkeypatch):
    monkeypatch.setenv("TESSERA_FUZZ_SLACK", str(SLACK))
    check_networks(COUNT, SECONDS)
