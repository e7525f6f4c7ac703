"""bench/run measures, reports and refuses. How fast anything is, no test asks."""
import importlib.machinery
import json
import os
import pathlib
import subprocess
import types

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NAMES = ["cnn_b1", "cnn_b16", "cnn_b64", "resnet18_b8"]


@pytest.fixture
def run(monkeypatch):
    """The program as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    loader = importlib.machinery.SourceFileLoader("bench_run", str(ROOT / "bench/run"))
    module = types.ModuleType(loader.name)
    module.__file__ = loader.path
    loader.exec_module(module)
    return module


def bench(*arguments, **environment):
    return subprocess.run(
        [ROOT / "bench/run", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_measures_both_sides(tmp_path):
    file = tmp_path / "rows.json"
    result = bench("--quick", "--only", "cnn_b1", "--threads", 1, "--json", file)
    assert result.returncode == 0, result.stderr
    content = json.loads(file.read_text())
    assert content["unit"] == "seconds per step"
    (row,) = content["rows"]
    assert (row["name"], row["threads"], row["peer_threads"]) == ("cnn_b1", 1, 1)
    assert row["ours"] > 0 and row["peer"] > 0
    assert row["ratio"] == pytest.approx(row["peer"] / row["ours"])
    lines = result.stdout.splitlines()
    assert len(lines) == 3 and len({len(line) for line in lines}) == 1
    assert "cnn_b1, eager, 1 thread: " in result.stderr  # progress


def test_measures_a_residual_network():
    result = bench("--quick", "--only", "resnet18", "--threads", 1)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[2].startswith("resnet18_b8 ")


class Program:
    """Stands for a program that was measured."""

    def __init__(self, side, threads, seconds):
        self.side, self.threads, self.median = side, threads, lambda: seconds


def test_a_row_takes_the_best_of_eager_up_to_its_threads(run):
    ours = [Program("ours", threads, 1 / threads) for threads in (1, 2, 4)]
    eager = [Program("eager", 1, 3), Program("eager", 2, 2), Program("eager", 4, 5)]
    rows = run.rows_of("x", ours + eager)
    assert [(row["threads"], row["peer_threads"], row["ratio"]) for row in rows] == [
        (1, 1, 3),
        (2, 2, 4),
        (4, 2, 8),
    ]


def test_different_losses_are_no_comparison(run):
    programs = [Program("ours", 1, 1), Program("eager", 1, 1)]
    for program, losses in zip(programs, ([2.0, 1.0], [2.0, 1.1])):
        program.label, program.losses = program.side, losses
    with pytest.raises(run.Failed, match="eager: the loss is 1.1, but ours has 1.0"):
        run.check_same_losses(programs)
    programs[1].losses = [2.0001, 1.0001]
    run.check_same_losses(programs)


def test_lists_workloads():
    assert bench("--list").stdout.split() == NAMES
    assert bench("--list", "--only", "cnn").stdout.split() == NAMES[:3]
    assert bench("--list", "--only", "cnn_b1").stdout.split() == ["cnn_b1"]
    assert all(name in bench("--help").stdout for name in NAMES)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--only", "transformer"], "there is no workload 'transformer': cnn_b1,"),
        (["--threads", "two"], "'two' is no list of numbers of threads"),
        (["--threads", "0"], "'0' is no list of numbers of threads"),
        (["--rounds", "0"], "at least one turn"),
        (["--json", "/no/such/folder/rows.json"], "'/no/such/folder' is no folder"),
    ],
)
def test_wrong_usage(arguments, words):
    result = bench(*arguments)
    assert result.returncode == 2 and words in result.stderr


def test_a_program_that_fails_is_an_error(tmp_path):
    result = bench(
        "--quick",
        "--only",
        "cnn_b1",
        TESSERA_NUM_THREADS="1",
        PYTHONPATH="",
        TESSERA_BINARY_DIR=str(tmp_path),
    )
    assert result.returncode == 1 and result.stdout == ""
    assert (
        "cnn_b1, ours, 1 thread: ModuleNotFoundError: No module named 'poptorch'" in result.stderr
    )
