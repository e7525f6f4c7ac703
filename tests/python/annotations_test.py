"""Annotations of models: accepted, checked, and without influence on results."""
import copy
import pickle

import poptorch
import pytest
import torch
import torch.nn as nn

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(4, 5)
        self.second = nn.Linear(5, 2)

    def forward(self, x):
        return poptorch.identity_loss(self.second(torch.relu(self.first(x))) ** 2, "mean")


class Annotated(Plain):
    @poptorch.BlockFunction("head", ipu_id=1)
    def head(self, x):
        return self.second(x)

    def forward(self, x):
        poptorch.Block.useAutoId()
        with poptorch.Block("body", ipu_id=0):
            x = poptorch.nop(self.first(x))
        with poptorch.Block():
            x = poptorch.recomputationCheckpoint(torch.relu(x))
        poptorch.Block.start("end")
        with poptorch.NameScope("square"), poptorch.Attribute(__outline={"layer": "square"}):
            x = self.head(x) ** 2
        x = poptorch.set_available_memory(x, 0.3)
        return poptorch.identity_loss(x, "mean")


def trained(model, steps=3):
    # One after the other, so that one micro-batch is enough for two IPUs.
    options = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, options, optimizer)
    losses = [executor(X).item() for _ in range(steps)]
    return losses, {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.spec("6 Block", "6 BlockFunction", "6 nop", "6 recomputationCheckpoint")
@pytest.mark.spec("6 NameScope", "6 Attribute", "6 set_available_memory")
def test_annotations_do_not_change_training():
    plain_losses, plain = trained(Plain())
    losses, annotated = trained(Annotated())
    assert losses == plain_losses
    assert all(torch.equal(plain[name], annotated[name]) for name in plain)
    assert torch.equal(Annotated()(X), Plain()(X))  # nor on the host


@pytest.mark.spec("6 BeginBlock")
def test_begin_block_returns_its_layer():
    model = Plain()
    first = model.first
    model.first = poptorch.BeginBlock(model.first, "begin", ipu_id=0)
    model.second = poptorch.BeginBlock(model.second, ipu_id=1)
    assert model.first is first and type(first) is nn.Linear
    assert list(model.state_dict()) == list(Plain().state_dict())
    assert trained(model)[0] == trained(Plain())[0]


@pytest.mark.spec("6 BeginBlock", "6 removeBlocks")
def test_a_layer_begins_one_block():
    model = Plain()
    poptorch.BeginBlock(model.first, "begin")
    with pytest.raises(poptorch.Error, match="BeginBlock has already been called"):
        poptorch.BeginBlock(model.first, "again")
    poptorch.removeBlocks(model)
    assert not model.first._forward_pre_hooks
    poptorch.BeginBlock(model.first, "again")


@pytest.mark.spec("6 BeginBlock", "6 removeBlocks")
def test_other_hooks_stay():
    model = Plain()
    seen = []
    model.first.register_forward_pre_hook(lambda module, inputs: seen.append(1))
    poptorch.BeginBlock(model.first)
    poptorch.removeBlocks(model)
    model(X)
    assert seen == [1]


@pytest.mark.spec("6 BeginBlock")
def test_blocks_survive_copies():
    layer = poptorch.BeginBlock(nn.Linear(4, 2), "begin", ipu_id=3)
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        (hook,) = again._forward_pre_hooks.values()
        assert (hook.user_id, hook.ipu_id) == ("begin", 3)
        with pytest.raises(poptorch.Error, match="already"):
            poptorch.BeginBlock(again)


@pytest.mark.spec("6 BeginBlock")
def test_a_function_can_begin_a_block():
    double = poptorch.BeginBlock(lambda x: 2 * x, "double")
    assert isinstance(double, nn.Module)
    assert torch.equal(double(X), 2 * X)
    assert torch.equal(poptorch.inferenceModel(double)(X), 2 * X)
    with pytest.raises(poptorch.Error, match="module or a function"):
        poptorch.BeginBlock(3)


@pytest.mark.spec("6 Block", "6 BeginBlock")
@pytest.mark.parametrize("arguments", [{"user_id": 3}, {"ipu_id": "0"}, {"ipu_id": True}])
def test_wrong_blocks(arguments):
    with pytest.raises(AssertionError, match="must be"):
        poptorch.Block(**arguments)
    with pytest.raises(AssertionError, match="must be"):
        poptorch.BeginBlock(nn.Linear(1, 1), **arguments)


@pytest.mark.spec("6 recomputationCheckpoint")
def test_recomputation_checkpoint_returns_what_it_gets():
    x, y = torch.ones(2), torch.zeros(2)
    assert poptorch.recomputationCheckpoint(x) is x
    assert poptorch.recomputationCheckpoint(x, y) == (x, y)
    both = poptorch.recomputationCheckpoint([x, y])
    assert type(both) is list and both[1] is y
    assert type(poptorch.recomputationCheckpoint((x, y))) is tuple
    with pytest.raises(ValueError, match="not float"):
        poptorch.recomputationCheckpoint(x, 1.0)


@pytest.mark.spec("6 serializedMatMul")
def test_serialized_matmul():
    class Product(nn.Module):
        def forward(self, x, y):
            return poptorch.serializedMatMul(x, y, "reducing_dim", 2, keep_precision=True)

    y = torch.arange(8.0).reshape(4, 2)
    assert torch.equal(Product()(X, y), X @ y)
    assert torch.allclose(poptorch.inferenceModel(Product())(X, y), X @ y)
    with pytest.raises(AssertionError, match="MatMulSerializationMode"):
        poptorch.serializedMatMul(X, y, "sideways")
    with pytest.raises(AssertionError, match="factor"):
        poptorch.serializedMatMul(X, y, "none", 1.5)


@pytest.mark.spec("6 nop", "6 set_available_memory")
def test_only_tensors_are_annotated():
    with pytest.raises(poptorch.Error, match="nop takes a tensor, not list"):
        poptorch.nop([X])
    with pytest.raises(poptorch.Error, match="set_available_memory takes a tensor"):
        poptorch.set_available_memory((X,), 0.5)


@pytest.mark.spec("6 Attribute")
def test_attributes_are_text():
    with pytest.raises(ValueError, match="__outline must be"):
        poptorch.Attribute(__outline={"layer": 3})
