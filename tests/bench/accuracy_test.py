"""bench/accuracy trains, compares and refuses. What is reached in a whole epoch, no test asks."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def accuracy(*arguments, **environment):
    return subprocess.run(
        [ROOT / "bench/accuracy", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def program(monkeypatch):
    """The program as a module that trains nothing: accuracies are asked of `results`."""
    loader = importlib.machinery.SourceFileLoader("accuracy", str(ROOT / "bench/accuracy"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("accuracy", loader))
    loader.exec_module(module)
    module.results = {}

    def trained(side, network, seed, images, precise):
        return module.results[side][seed]

    monkeypatch.setattr(module, "trained", trained)
    return module


def run(program, monkeypatch, capsys, **results):
    program.results = results
    monkeypatch.setattr("sys.argv", ["accuracy", "--only", "cnn", "--seeds", "2"])
    return program.main(), capsys.readouterr().out.splitlines()


def test_trains_both_sides_from_the_same_weights():
    result = accuracy("--only", "cnn", "--seeds", 1, "--images", 256)
    assert result.returncode == 0, result.stderr
    title, row, mean = (line.split() for line in result.stdout.splitlines())
    assert title == ["network", "seed", "ours", "eager"]
    assert row[:2] == ["cnn", "0"] and mean[:2] == ["cnn", "mean"]
    ours, eager = map(float, row[2:])
    assert 5 < ours < 100 and ours == pytest.approx(eager, abs=0.3)
    assert mean[2:] == [*row[2:], "within", "0.3", "points"]


def test_means_decide(program, monkeypatch, capsys):
    code, lines = run(program, monkeypatch, capsys, ours=[80.0, 90.0], eager=[81.0, 89.5])
    assert code == 0 and lines[-1].endswith("85.00    85.25  within 0.3 points")
    code, lines = run(program, monkeypatch, capsys, ours=[80.0, 90.0], eager=[81.0, 90.0])
    assert code == 1 and lines[-1].endswith("NOT within 0.3 points")
    assert len(lines) == 4


def test_says_what_is_missing(tmp_path):
    result = accuracy("--only", "cnn", "--seeds", 1, TESSERA_FASHION_MNIST=str(tmp_path))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("bench/accuracy: cnn, ours: ") and "is missing; install" in line
