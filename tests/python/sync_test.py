"""Weights between the host's module and the devices: who has the newest, and when they travel."""

import copy
import pickle

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import MLP, batch


def trained(steps=2, model=None):
    torch.manual_seed(1)
    model = MLP() if model is None else model
    initial = copy.deepcopy(model.state_dict())
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(steps):
        executor(*batch("MLP", seed=step))
    return model, executor, initial


def differs(a, b):
    return any(not torch.equal(a[k], b[k]) for k in a)


def copies(executor, monkeypatch):
    """A list that grows with every implicit copy of weights to the host."""
    seen = []
    original = type(executor).copyWeightsToHostIfNeeded

    def counting(self):
        copied = original(self)
        if copied:
            seen.append(self)
        return copied

    monkeypatch.setattr(type(executor), "copyWeightsToHostIfNeeded", counting)
    return seen


READS = {
    "state_dict": lambda m: m.state_dict(),
    "attributes": lambda m: {"w": m.layers[0].weight.detach(), "b": m.layers[0].bias.data},
    "item": lambda m: {"w": m.layers[0].weight[0, 0], "s": m.layers[0].bias.sum()},
    "arithmetic": lambda m: {k: p + 0 for k, p in m.named_parameters()},
    "reversed arithmetic": lambda m: {k: 0 + p for k, p in m.named_parameters()},
    "function": lambda m: {k: torch.clone(p) for k, p in m.named_parameters()},
    "list of tensors": lambda m: {"a": torch.cat([p.view(-1) for p in m.parameters()])},
    "stack": lambda m: {"a": torch.stack([m.layers[0].bias, m.layers[2].bias])},
    "numpy": lambda m: {"w": torch.from_numpy(m.layers[0].weight.detach().numpy())},
    "_parameters": lambda m: dict(m.layers[0]._parameters),
    "forward": lambda m: {"y": m(torch.ones(1, 20))},
    "module call": lambda m: {"y": m.layers(torch.ones(1, 20))},
    "deepcopy": lambda m: copy.deepcopy(m).state_dict(),
    "pickle": lambda m: pickle.loads(pickle.dumps(m)).state_dict(),
    "text": lambda m: {"w": torch.tensor([float(ord(c)) for c in repr(m.layers[0].bias)])},
    "copy_": lambda m: {"w": torch.empty(32, 20).copy_(m.layers[0].weight)},
    "vector": lambda m: {"v": nn.utils.parameters_to_vector(m.parameters())},
}


@pytest.mark.spec("1.3 lazy copy to host", "1.4 copyWeightsToHost")
@pytest.mark.parametrize("read", READS)
def test_whoever_looks_at_the_weights_sees_the_trained_ones(read):
    model, executor, initial = trained()
    seen = {k: v.detach().clone() for k, v in READS[read](model).items()}
    executor.copyWeightsToHost()
    expected = {k: v.detach().clone() for k, v in READS[read](model).items()}
    assert not differs(seen, expected)
    assert differs(model.state_dict(), initial)


@pytest.mark.spec("1.3 lazy copy to host", "1.4 copyWeightsToHostIfNeeded")
def test_weights_travel_once_and_only_when_somebody_looks(monkeypatch):
    model, executor, _ = trained(steps=0)
    seen = copies(executor, monkeypatch)
    weight = model.layers[0].weight
    for step in range(3):
        executor(*batch("MLP", seed=step))
    weight.shape, weight.requires_grad, weight.dtype, len(list(model.children()))
    assert not seen
    for _ in range(2):
        model.state_dict(), weight.sum(), model.layers[2].bias.tolist()
    assert len(seen) == 1
    executor(*batch("MLP"))
    model._parameters, model._buffers, model.forward
    assert len(seen) == 2
    assert executor.copyWeightsToHostIfNeeded() is False
    executor(*batch("MLP"))
    assert executor.copyWeightsToHostIfNeeded() is True


@pytest.mark.spec("1.3 lazy copy to host")
def test_buffers_follow_as_weights_do():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x):
            self.seen += 1
            return poptorch.identity_loss(self.fc(x), "mean")

    model = Counts()
    options = poptorch.Options().deviceIterations(3)
    executor = poptorch.trainingModel(model, options)
    executor(torch.ones(3, 2))
    assert model.seen.item() == 3
    executor(torch.ones(3, 2))
    assert model.state_dict()["seen"].item() == 6


@pytest.mark.spec("1.3 inference pulls training weights", "1.1 inferenceModel over training module")
def test_an_inference_model_follows_the_training_of_its_module():
    model, executor, _ = trained()
    x, labels = batch("MLP")
    inference = poptorch.inferenceModel(model)
    for _ in range(3):
        torch.testing.assert_close(inference(x), copy.deepcopy(model)(x).detach())
        before = inference(x)
        executor(x, labels)
        assert not torch.equal(inference(x), before)


@pytest.mark.spec("1.3 inference pulls training weights")
def test_weights_that_did_not_change_are_not_sent_again(monkeypatch):
    model, executor, _ = trained()
    seen = copies(executor, monkeypatch)
    x, labels = batch("MLP")
    inference = poptorch.inferenceModel(model)
    inference(x)
    with torch.no_grad():
        model.layers[4].bias.add_(1000)  # shows whether weights are sent
    first = inference(x)
    assert torch.equal(inference(x), first) and first.abs().max() < 900
    assert not seen  # it was the inference model that asked, and once


@pytest.mark.spec("1.3 host edits need a push", "1.4 copyWeightsToDevice")
def test_weights_changed_on_the_host_need_copy_weights_to_device():
    model, executor, _ = trained(steps=1)
    inference = poptorch.inferenceModel(model)
    x, labels = batch("MLP")
    inference(x)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert inference(x).abs().sum() > 0 and executor(x, labels)[0].abs().sum() > 0
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    inference.copyWeightsToDevice()
    assert inference(x).abs().sum() == 0
    executor.copyWeightsToDevice()
    assert executor(x, labels)[0].abs().sum() == 0


@pytest.mark.spec("1.3 host edits need a push")
def test_training_on_the_host_needs_a_push():
    model, executor, _ = trained(steps=1)
    x, labels = batch("MLP")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        model(x, labels)[1].backward()
        optimizer.step()
    expected = model(x, labels)[1].item()
    assert executor(x, labels)[1].item() != pytest.approx(expected, rel=1e-4)
    model, executor, _ = trained(steps=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        model(x, labels)[1].backward()
        optimizer.step()
    executor.copyWeightsToDevice()
    assert executor(x, labels)[1].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.spec("1.3 load_state_dict", "1.4 load_state_dict")
def test_load_state_dict_reaches_the_device():
    model, executor, initial = trained()
    result = executor.load_state_dict({k: torch.zeros_like(v) for k, v in initial.items()})
    assert result.missing_keys == [] and result.unexpected_keys == []
    assert executor(*batch("MLP"))[0].abs().sum() == 0
    with pytest.raises(RuntimeError, match="Missing key"):
        executor.load_state_dict({})
    partial = {"layers.4.bias": torch.ones(4), "unknown": torch.ones(1)}
    result = executor.load_state_dict(partial, strict=False)
    assert "layers.0.weight" in result.missing_keys and result.unexpected_keys == ["unknown"]
    inference = poptorch.inferenceModel(model)
    inference.load_state_dict(initial)  # before anything was compiled
    x, _ = batch("MLP")
    plain = MLP()
    plain.load_state_dict(initial)
    torch.testing.assert_close(inference(x), plain(x).detach())
    inference.load_state_dict({k: torch.zeros_like(v) for k, v in initial.items()})
    assert inference(x).abs().sum() == 0


@pytest.mark.spec("1.3 load_state_dict", "1.4 detachFromDevice")
def test_load_state_dict_while_detached():
    model, executor, initial = trained()
    executor.detachFromDevice()
    executor.load_state_dict({k: torch.zeros_like(v) for k, v in initial.items()})
    assert not executor.isAttachedToDevice()
    assert executor(*batch("MLP"))[0].abs().sum() == 0


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(2))
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        self.total += x.detach()[0]
        y = x * self.weight + self.total
        return y, F.mse_loss(y, torch.zeros_like(y))


@pytest.mark.spec("1.3 inference buffers", "1.4 copyWeightsToHost")
def test_buffers_changed_by_inference_stay_on_the_device():
    model = Remembers()
    executor = poptorch.inferenceModel(model)
    x = torch.ones(1, 2)
    assert executor(x)[0].tolist() == [[2.0, 2.0]]
    assert executor(x)[0].tolist() == [[3.0, 3.0]]
    assert model.total.tolist() == [0.0, 0.0] and executor.total.tolist() == [0.0, 0.0]
    assert executor.copyWeightsToHostIfNeeded() is False
    executor.copyWeightsToHost()
    assert model.total.tolist() == [2.0, 2.0]
    executor.copyWeightsToDevice()
    assert executor(x)[0].tolist() == [[4.0, 4.0]]


@pytest.mark.spec("1.3 inference buffers")
def test_what_inference_writes_to_the_host_does_not_undo_training():
    model = Remembers()
    training = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    inference = poptorch.inferenceModel(model)
    x = torch.ones(1, 2)
    inference(x)
    training(x)
    expected = copy.deepcopy(model)
    training(x)
    inference.copyWeightsToHost()  # older values, on the user's explicit wish
    training(x)
    for _ in range(2):
        optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
        optimizer.zero_grad()
        expected(x)[1].backward()
        optimizer.step()
    torch.testing.assert_close(model.weight.detach(), expected.weight.detach())
    torch.testing.assert_close(model.total.detach(), expected.total)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(4, 4, bias=False)
        self.decode = nn.Linear(4, 4)
        self.decode.weight = self.encode.weight

    def forward(self, x):
        y = self.decode(torch.tanh(self.encode(x)))
        return y, F.mse_loss(y, x)


@pytest.mark.spec("1.3 tied parameters")
def test_tied_parameters_are_one_tensor_with_the_first_name():
    torch.manual_seed(0)
    model = Tied()
    reference = copy.deepcopy(model)
    executor = poptorch.trainingModel(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    )
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(8, 4)
    for _ in range(3):
        executor(x)
        optimizer.zero_grad()
        reference(x)[1].backward()
        optimizer.step()
    assert model.encode.weight is model.decode.weight
    assert list(model.state_dict()) == ["encode.weight", "decode.weight", "decode.bias"]
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach(), theirs.detach())
    text = executor._core.graph_text()
    assert "encode.weight" in text and "decode.weight" not in text
    executor.load_state_dict({k: torch.zeros_like(v) for k, v in model.state_dict().items()})
    assert executor(x)[0].abs().sum() == 0
    executor.destroy()
    assert type(model.encode.weight) is nn.Parameter
    assert model.encode.weight is model.decode.weight


@pytest.mark.spec("1.3 tied parameters")
def test_copies_of_a_module_with_tied_parameters_are_tied():
    model = Tied()
    poptorch.trainingModel(model)(torch.ones(1, 4))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.encode.weight is copied.decode.weight
        assert torch.equal(copied.encode.weight, model.encode.weight)
