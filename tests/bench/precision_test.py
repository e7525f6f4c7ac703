"""bench/precision trains, compares, draws and refuses. What is reached, no test asks."""
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PRECISIONS = ("float32", "nearest", "stochastic", "mixed")


@pytest.fixture
def program(monkeypatch):
    """The program as a module that trains nothing: `ends` says what each precision reaches."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    loader = importlib.machinery.SourceFileLoader("precision", str(ROOT / "bench/precision"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("precision", loader))
    loader.exec_module(module)
    module.ends = {}

    def trained(precision, case, seed, args):
        return [[0, 10.0], [100, module.ends[precision] + seed]]

    monkeypatch.setattr(module, "trained", trained)
    return module


def run(program, monkeypatch, *arguments, float32=80.0, nearest=70.0, stochastic=79.5, mixed=80.5):
    ends = (float32, nearest, stochastic, mixed)
    program.ends = dict(zip(PRECISIONS, ends))
    monkeypatch.setattr(sys, "argv", ["precision", *map(str, arguments)])
    return program.main()


def test_trains_in_every_precision_from_the_same_weights(tmp_path):
    file = tmp_path / "accuracies.json"
    command = [ROOT / "bench/precision", "--quick", "--only", "tutorial", "--json", file]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "Half with stochastic rounding is within 1 point" in result.stdout
    results = json.loads(file.read_text())["results"]["tutorial"]
    assert tuple(results) == PRECISIONS
    first = results["float32"][0]
    for (points,) in results.values():
        assert [updates for updates, _ in points] == [0, 10, 20]
        assert points[0][1] == pytest.approx(first[0][1], abs=0.5)  # rounding alone
        assert points[-1][1] == pytest.approx(first[-1][1], abs=1.0) and points[-1][1] > 25


def test_the_table_has_means_and_distances(program, monkeypatch, capsys):
    assert run(program, monkeypatch, "--seeds", 3) == 0
    title, *rows, verdict = capsys.readouterr().out.splitlines()
    assert title.split()[:3] == ["training", "precision", "accuracy"] and len(rows) == 8
    assert rows[0].split()[-4:] == ["81.00", "80.00", "82.00", "-"]
    assert rows[2].split()[-4:] == ["80.50", "79.50", "81.50", "-0.50"]
    assert verdict == "Half with stochastic rounding is within 1 point of float32."


def test_the_goal_decides(program, monkeypatch, capsys):
    assert run(program, monkeypatch, stochastic=78.9) == 1
    assert "NOT within 1 point" in capsys.readouterr().out
    assert run(program, monkeypatch, "--only", "small", stochastic=10.0) == 0


def test_it_fills_a_page_and_draws(program, monkeypatch, tmp_path):
    page, picture = tmp_path / "page.md", tmp_path / "curves.svg"
    page.write_text(f"before\n{program.BEGIN}\nold\n{program.END}\nafter\n")
    arguments = ("--markdown", page, "--plot", picture)
    assert run(program, monkeypatch, *arguments) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| small steps | half, rounded to nearest | 71.00 | 70.00 | 72.00 | -10.00 |" in text
    assert "`bench/precision --seeds 3 --images 60000 --epochs 5 --tests 10`, " in text
    first = picture.read_bytes()
    assert b"<svg" in first
    assert run(program, monkeypatch, *arguments) == 0
    assert picture.read_bytes() == first


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--seeds", "0"], "'0' is no number from 1 on"),
        (["--images", "8"], "a batch has 16"),
        (["--plot", "curves.txt"], "'curves.txt' is neither an .svg nor a .png"),
        (["--markdown", "nowhere.md"], "'nowhere.md' has no block from"),
        (["--json", "nowhere/rows.json"], "'nowhere' is no folder"),
    ],
)
def test_refuses(program, monkeypatch, capsys, arguments, words):
    with pytest.raises(SystemExit) as end:
        run(program, monkeypatch, *arguments)
    assert end.value.code == 2
    assert words in capsys.readouterr().err
