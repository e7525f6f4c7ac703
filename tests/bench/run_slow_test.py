"""Every workload of bench/run can be captured and computes what its peers compute."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NAMES = subprocess.run(
    [ROOT / "bench/run", "--list"], capture_output=True, text=True
).stdout.split()


@pytest.mark.parametrize("name", NAMES)
def test_measures(name, tmp_path):
    file = tmp_path / "rows.json"
    # One thread: with more, programs that wait for each other make a busy machine crawl.
    command = [ROOT / "bench/run", "--quick", "--only", name, "--threads", "1", "--json", file]
    environment = {**os.environ, "npm_config_offline": "true"}  # needs no registry
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    rows = json.loads(file.read_text())["rows"]
    assert rows and all(row["name"] == name and row["ours"] > 0 for row in rows)
