"""Copies, pickles and saved weights of a wrapped module are plain PyTorch's."""

import copy
import io
import pathlib
import pickle

import poptorch
import pytest
import torch
import torch.nn as nn
from models import MLP, batch
from wrapped import QUIET, Direct, run_program, train


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "torch.save": lambda m: torch.load(_saved(m), weights_only=False),
}


def _saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.spec("1.2 pickle and copy")
@pytest.mark.parametrize("way", COPIES)
def test_copies_of_a_wrapped_module_are_plain(way):
    model = Direct()
    executor = train(model, steps=2)
    copied = COPIES[way](model)
    assert type(copied) is Direct and type(model).__name__ == "PoptorchDirect"
    expected = model.state_dict()
    for name, value in copied.state_dict().items():
        assert torch.equal(value, expected[name]), name
    if way != "copy":  # which shares its weights with the wrapped one
        assert type(copied.scale) is nn.Parameter and type(copied.offset) is torch.Tensor
        assert copied.scale.requires_grad and not copied.scale.__dict__
        executor(torch.ones(2, 3))
        assert not torch.equal(copied.scale, model.scale)
        train(copied)
    weight = pickle.loads(pickle.dumps(model.scale))
    assert type(weight) is nn.Parameter and torch.equal(weight, model.scale)
    assert type(copy.deepcopy(model.offset)) is torch.Tensor


class OwnWays(nn.Module):
    """Pickles itself in its own way."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.cache = lambda: None  # cannot be pickled

    def __getstate__(self):
        return {**self.__dict__, "cache": None}

    def forward(self, x):
        return poptorch.identity_loss(self.fc(x), "mean")


@pytest.mark.spec("1.2 pickle and copy")
def test_a_module_with_its_own_way_of_pickling_keeps_it():
    model = OwnWays()
    executor = poptorch.trainingModel(model, QUIET.clone())
    executor(torch.ones(1, 2))
    loaded = pickle.loads(pickle.dumps(model))
    assert type(loaded) is OwnWays and loaded.cache is None
    assert torch.equal(loaded.fc.weight, model.fc.weight)


@pytest.mark.spec("1.2 pickle and copy")
def test_a_parametrised_module_can_be_wrapped():
    torch.manual_seed(0)
    model = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(4, 4))
    inputs = torch.randn(2, 4)
    with pytest.raises(RuntimeError, match="parametrized"):
        copy.copy(model)
    executor = poptorch.inferenceModel(model, QUIET.clone())
    torch.testing.assert_close(executor(inputs), model(inputs))


def test_saved_weights_load_without_us(tmp_path):
    model = MLP()
    train(model, steps=2)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    torch.save(model, tmp_path / "model.pth")
    torch.save(list(model.parameters()), tmp_path / "parameters.pth")
    torch.save({"output": poptorch.inferenceModel(model)(batch("MLP")[0])}, tmp_path / "output.pth")
    folder = pathlib.Path(__file__).parent
    code = (
        "import sys, torch\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "sys.modules['poptorch'] = None  # importing it fails\n"
        "from models import MLP\n"
        f"folder = {str(tmp_path)!r}\n"
        "w, m, p, o = (torch.load(f'{folder}/{n}.pth', weights_only=n != 'model')\n"
        "              for n in ('weights', 'model', 'parameters', 'output'))\n"
        "assert type(m) is MLP and type(next(m.parameters())) is torch.nn.Parameter\n"
        "assert all(torch.equal(w[k], v) for k, v in m.state_dict().items())\n"
        "assert all(type(t) is torch.nn.Parameter for t in p) and o['output'].shape == (16, 4)\n"
        "MLP().load_state_dict(w)\n"
    )
    done = run_program(code)
    assert done.returncode == 0, done.stderr
