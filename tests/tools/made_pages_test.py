"""Pages and pictures that tools make of something else are what they would make now."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR", ROOT / "build"))
TABLE = """
<!-- begin bench/run -->
| name | threads | ours | peer | by | ratio | goal | reached | % of peak |
| :-- | --: | --: | --: | :-- | --: | --: | --: | --: |
| cnn_b16 | 1 | 1 ms | 9 ms | eager, 1 thread | 9.99 | 5 | yes | 51 |
| cnn_b16 | 2 | 1 ms | 8 ms | eager, 2 threads | 8.88 | 5 | yes | 51 |
| mlp_b64 | 2 | 1 ms | 2 ms | eager, 1 thread | 2.22 | 2 | yes | 66 |
| resnet18_b12 | 2 | 1 ms | 2 ms | eager, 2 threads | 2.33 | 1 | yes | 1 |
| resnet18_infer_b12 | 2 | 1 ms | 2 ms | onnxruntime, 2 threads | 1.44 | 1 | yes | 1 |
| resnet18_infer_b12 | 2 | 1 ms | 2 ms | eager, 2 threads, BLAS 1 | 2.55 | - | - | 1 |
| unet16 | 2 | 1 ms | 2 ms | eager, 2 threads | 2.66 | 2 | yes | 97 |
| transformer | 2 | 1 ms | 2 ms | eager, 1 thread | 2.77 | 1 | yes | 55 |
| fashion_mnist_epoch | 2 | 1 s | 4 s | eager, 1 thread | 4.44 | 3 | yes | - |
<!-- end bench/run -->
"""


def run(tool, *arguments):
    command = [ROOT / "tools" / tool, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_picture_shows_the_table():
    result = run("make_speed_picture")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_another_table_makes_another_picture(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/performance.md").write_text(TABLE)
    assert run("make_speed_picture", tmp_path).returncode == 1
    assert run("make_speed_picture", "--fix", tmp_path).returncode == 0
    picture = (tmp_path / "docs/pictures/speed.svg").read_text()
    for ratio in "8.88 2.22 2.33 1.44 2.55 2.66 2.77 4.44".split():
        assert f">{ratio}</text>" in picture
    assert "9.99" not in picture  # of one thread
    assert run("make_speed_picture", tmp_path).returncode == 0


def test_the_page_of_operators_is_the_table():
    result = run("make_operators", "--tessera", BUILD / "bin/tessera")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose program knows one operator."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "build/bin").mkdir(parents=True)
    program = tmp_path / "build/bin/tessera"
    program.write_text('#!/bin/sh\n[ "$*" = "ops --markdown" ] && echo "| relu |"\n')
    program.chmod(0o755)
    return tmp_path


def test_a_page_that_is_old_is_noticed_and_mended(checkout):
    page = checkout / "docs/operators.md"
    page.write_text("old")
    result = run("make_operators", checkout)
    assert result.returncode == 1
    assert "docs/operators.md is not the operator table" in result.stdout
    assert run("make_operators", "--fix", checkout).returncode == 0
    assert page.read_text().endswith("\n\n| relu |\n")
    assert run("make_operators", checkout).returncode == 0


def test_without_a_program_there_is_nothing_to_compare(tmp_path):
    result = run("make_operators", tmp_path)
    assert result.returncode == 0
    assert "is not compared" in result.stdout
