"""Some hundreds of random networks, new ones each time, are right.

TESSERA_FUZZ_SEED repeats a run: its seed is printed. tests/fuzz/run repeats a single network.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

RUN = pathlib.Path(__file__).with_name("run")
COUNT, SECONDS = 300, 60
SLACK = 10  # a wrong number is wrong by much; roundings at the edge are for tests/fuzz/run to find


def check_networks(count, seconds):
    first = os.environ.get("TESSERA_FUZZ_SEED") or int(time.time()) % 10**8
    # From a process that has run no network itself: autograd's threads do not outlive a fork.
    options = {"seed": first, "count": count, "time": seconds, "shrink": 20}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    result = subprocess.run([sys.executable, "-B", RUN, *words], capture_output=True, text=True)
    if result.returncode != 0:
        said = (result.stdout + result.stderr)[-20000:]
        pytest.fail(f"{said}\nrepeat with TESSERA_FUZZ_SEED={first}", pytrace=False)
    counts = {word: int(number) for word, number in re.findall(r"'(\w+)': (\d+)", result.stdout)}
    assert counts["fine"] > counts.get("illegal", 0) + counts.get("nothing", 0), result.stdout


def test_random_networks_are_right(monkeypatch):
    monkeypatch.setenv("TESSERA_FUZZ_SLACK", str(SLACK))
    check_networks(COUNT, SECONDS)
