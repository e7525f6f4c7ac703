"""A model that Python exported runs in a program without PyTorch, with the same numbers."""
import os
import pathlib
import subprocess

import poptorch
import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR", ROOT / "build"))
PROGRAM = BUILD / "bin/run_exported"


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(10, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 3)

    def forward(self, index, scale):
        return self.head(self.norm(self.words(index)) * scale)


def run(*arguments):
    command = [str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def exported(tmp_path):
    """An exported model with its inputs, which lie beside it, and what it makes of them."""
    torch.manual_seed(0)
    index, scale = torch.randint(0, 10, (8,)), torch.rand(8, 1)
    model = poptorch.inferenceModel(Classifier().eval())
    expected = model(index, scale)
    model.save(str(tmp_path / "model.poptorch"))
    index.numpy().tofile(tmp_path / "index.raw")
    scale.numpy().tofile(tmp_path / "scale.raw")
    return tmp_path, expected


@pytest.mark.spec("9 run without PyTorch")
def test_numbers_are_those_of_python(exported):
    folder, expected = exported
    result = run(folder / "model.poptorch", folder / "index.raw", folder / "scale.raw")
    assert result.returncode == 0, result.stderr
    assert "input index: i64[8]" in result.stdout and ": f32[8,3]" in result.stdout
    numbers = [float(word) for word in result.stdout.splitlines()[-1].split() if word != "..."]
    assert torch.equal(torch.tensor(numbers), expected.flatten()[: len(numbers)])


def test_it_does_not_load_pytorch():
    libraries = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True).stdout
    assert "libc.so" in libraries
    assert "torch" not in libraries and "libc10" not in libraries


def test_a_wrong_input_is_told(exported):
    folder, _ = exported
    result = run(folder / "model.poptorch", folder / "scale.raw", folder / "scale.raw")
    assert result.returncode == 1
    assert "input 'index' is i64[8], which has 64 bytes; 32 came" in result.stderr
    result = run(folder / "model.poptorch", folder / "scale.raw")
    assert "the model takes 2 inputs, not 1" in result.stderr
    result = run(folder / "scale.raw")
    assert "is no file of Tessera's" in result.stderr
