"""Tensors inside a program: their names, and their values by anchors."""

import copy
import json
import os
import subprocess
import sys

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import SeedCNN, batch

All, Final = poptorch.OutputMode.All, poptorch.OutputMode.Final
EveryN, Sum = poptorch.OutputMode.EveryN, poptorch.OutputMode.Sum


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(10, 10)
        self.loss = nn.MSELoss()

    def forward(self, x, labels=None):
        out = self.fc2(self.relu(self.fc1(x)))
        if self.training:
            return out, self.loss(out, labels)
        return out


def data(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 10, generator=generator), torch.rand(count, 10, generator=generator)


def by_hand(model, x, labels, iterations, accumulation, lr=0.1):
    """Eager training of a copy: gradients of each micro-batch, weights after each update."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    size = len(x) // (iterations * accumulation)
    gradients, weights, before = [], [], []
    for iteration in range(iterations):
        total = {}
        for step in range(accumulation):
            before.append({k: p.detach().clone() for k, p in model.named_parameters()})
            at = (iteration * accumulation + step) * size
            optimizer.zero_grad()
            model(x[at : at + size], labels[at : at + size])[1].backward()
            gradients.append({k: p.grad.clone() for k, p in model.named_parameters()})
            for k, g in gradients[-1].items():
                total[k] = total.get(k, 0) + g / accumulation
        for k, p in model.named_parameters():
            p.grad = total[k]
        optimizer.step()
        weights.append({k: p.detach().clone() for k, p in model.named_parameters()})
    return gradients, weights, before


@pytest.mark.spec("1.4 getTensorNames", "13 tensor names")
def test_names_of_a_training_step():
    executor = poptorch.trainingModel(Model().train())
    with pytest.raises(AssertionError, match="compiled"):
        executor.getTensorNames()
    executor.compile(*data(4))
    names = executor.getTensorNames()
    for name in ("input", "input/1", "loss", "fc1.weight", "fc2.bias"):
        assert name in names
    assert {"Gradient___fc1.weight", "Gradient___fc2.bias"} <= set(names)
    assert {"UpdatedVar___fc1.weight", "UpdatedVar___fc2.bias"} <= set(names)
    assert any(name.startswith("scaledLearningRate") for name in names)
    assert any(name.startswith("weightDecayScaleFactor") for name in names)
    assert any(name.startswith("fc1/") and name.endswith(":0") for name in names)
    assert "relu/Relu:0" in names
    assert len(names) == len(set(names))
    again = poptorch.trainingModel(Model().train())
    again.compile(*data(4))
    assert again.getTensorNames() == names


@pytest.mark.spec("13 tensor names", "2.2 disableModuleNamescope")
def test_names_without_modules():
    options = poptorch.Options()
    options.disableModuleNamescope()
    executor = poptorch.inferenceModel(Model().eval(), options)
    executor.compile(data(4)[0])
    names = executor.getTensorNames()
    assert "Relu:0" in names and not any("/Relu" in name for name in names)


@pytest.mark.spec("13 gradient anchors", "1.4 getAnchoredTensor", "2.2 anchorTensor")
def test_the_workflow():
    """Compile, look for names, anchor them, wrap again, run, compare with autograd."""
    torch.manual_seed(1)
    model = Model().train()
    x, labels = data(4)
    first = poptorch.trainingModel(model)
    first.compile(x, labels)
    names = [name for name in first.getTensorNames() if name.startswith("Gradient___")]
    assert len(names) == 4
    first.destroy()

    options = poptorch.Options()
    for name in names:
        options.anchorTensor(name, name)
    gradients, _, _ = by_hand(model, x, labels, 1, 1)
    executor = poptorch.trainingModel(model, options)
    with pytest.raises(AssertionError):
        executor.getAnchoredTensor(names[0])
    executor(x, labels)
    for name in names:
        want = gradients[0][name[len("Gradient___") :]]
        got = executor.getAnchoredTensor(name)
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-8)
    with pytest.raises(AssertionError, match="no tensor with name 'other'"):
        executor.getAnchoredTensor("other")

    # Each call has values of its own; what was handed out before stays as it was.
    kept = executor.getAnchoredTensor(names[0])
    value = kept.clone()
    executor(*data(4, seed=1))
    assert torch.equal(kept, value)
    assert not torch.equal(executor.getAnchoredTensor(names[0]), value)


MODES = [(None, None), (All, 1), (Final, 1), (Sum, 1), (EveryN, 2)]


@pytest.mark.spec("5 anchors", "2.2 anchorTensor", "13 gradient anchors")
@pytest.mark.parametrize("mode,period", MODES, ids=str)
def test_gradients_and_weights_in_every_mode(mode, period):
    torch.manual_seed(2)
    model = Model().train()
    iterations, accumulation = 4, 2
    options = poptorch.Options().deviceIterations(iterations)
    options.Training.gradientAccumulation(accumulation)
    wish = () if mode is None else (mode, period)
    options.anchorTensor("gradient", "Gradient___fc2.weight", *wish)
    options.anchorTensor("updated", "UpdatedVar___fc2.weight", *wish)
    options.anchorTensor("weight", "fc2.weight", *wish)
    options.anchorTensor("loss", "loss", *wish)
    x, labels = data(16)
    gradients, weights, before = by_hand(model, x, labels, iterations, accumulation)
    executor = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
    _, loss = executor(x, labels)
    assert loss.shape == ()  # the outputs' mode is their own

    def chosen(values, per_iteration):
        if mode is None or mode == Final:
            return values[-1]
        if mode == Sum:
            return torch.stack(values).sum(0)
        if mode == EveryN:
            values = [v for i, v in enumerate(values) if (i // per_iteration + 1) % period == 0]
        return torch.cat(values)

    name = "fc2.weight"
    for short, values, per_iteration in (
        ("gradient", [g[name] for g in gradients], accumulation),
        ("weight", [w[name] for w in before], accumulation),
        ("updated", [w[name] for w in weights], 1),
    ):
        want = chosen(values, per_iteration)
        got = executor.getAnchoredTensor(short)
        assert got.shape == want.shape, short
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
    shapes = {None: (), All: (8,), Final: (), Sum: (), EveryN: (4,)}
    assert executor.getAnchoredTensor("loss").shape == shapes[mode]
    if mode == All:
        assert torch.equal(executor.getAnchoredTensor("loss")[-1], loss)


@pytest.mark.spec("5 anchors", "13 tensor names")
def test_inputs_activations_and_learning_rates():
    torch.manual_seed(3)
    model = Model().train()
    options = poptorch.Options().deviceIterations(2)
    for name in ("input", "input/1", "relu/Relu:0"):
        options.anchorTensor(name, name, All)
    options.anchorTensor("rate", "scaledLearningRate0___default___FLOAT", All)
    options.anchorTensor("last rate", "scaledLearningRate0___specific___fc1.weight")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    executor = poptorch.trainingModel(model, options, optimizer)
    x, labels = data(4)
    relu = torch.relu(model.fc1(x[:2])).detach()
    executor(x, labels)
    assert torch.equal(executor.getAnchoredTensor("input"), x)
    assert torch.equal(executor.getAnchoredTensor("input/1"), labels)
    got = executor.getAnchoredTensor("relu/Relu:0")
    assert got.shape == (4, 10)
    torch.testing.assert_close(got[:2], relu)
    assert executor.getAnchoredTensor("rate").tolist() == [0.5, 0.5]
    optimizer.param_groups[0]["lr"] = 0.25
    executor.setOptimizer(optimizer)
    executor(x, labels)
    assert executor.getAnchoredTensor("last rate").item() == 0.25
    assert executor.getAnchoredTensor("last rate").shape == ()


@pytest.mark.spec("13 gradient anchors")
def test_every_tensor_of_a_convolutional_network_can_be_anchored():
    """Whatever lowering would fuse or make again is there, and training is the same."""
    torch.manual_seed(4)
    model = SeedCNN().train()
    reference = copy.deepcopy(model)
    x, labels = batch("SeedCNN", size=4)
    plain = poptorch.trainingModel(copy.deepcopy(model))
    plain.compile(x, labels)
    options = poptorch.Options()
    names = plain.getTensorNames()
    for name in names:
        options.anchorTensor(name, name)
    executor = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
    output, loss = executor(x, labels)
    values = {name: executor.getAnchoredTensor(name) for name in names}
    assert all(v.dtype != torch.float32 or v.isfinite().all() for v in values.values())

    want, want_loss = reference(x, labels)
    want_loss.backward()
    torch.testing.assert_close(output, want.detach())
    torch.testing.assert_close(values["loss"], want_loss.detach())
    for name, p in reference.named_parameters():
        torch.testing.assert_close(values[name], p.detach())
        torch.testing.assert_close(values[f"Gradient___{name}"], p.grad, rtol=1e-3, atol=1e-5)
        updated = values[f"UpdatedVar___{name}"]
        torch.testing.assert_close(updated, p.detach() - 0.1 * p.grad, rtol=1e-4, atol=1e-6)
        assert torch.equal(updated, model.state_dict()[name])


@pytest.mark.spec("13 gradient anchors")
def test_state_of_adam_and_buffers_of_a_norm():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(10, 10, bias=False)
            self.bn = nn.BatchNorm1d(10)

        def forward(self, x, labels):
            return F.mse_loss(self.bn(self.fc(x)), labels)

    torch.manual_seed(5)
    model = Normed().train()
    reference = copy.deepcopy(model)
    options = poptorch.Options().deviceIterations(2)
    options.anchorTensor("before", "bn.running_mean", All)
    options.anchorTensor("after", "UpdatedVar___bn.running_mean", All)
    options.anchorTensor("moment", "UpdatedVar___Accl1___fc.weight")
    executor = poptorch.trainingModel(
        model, options, poptorch.optim.Adam(model.parameters(), lr=0.01)
    )
    x, labels = data(8)
    executor(x, labels)
    before, after = (executor.getAnchoredTensor(n).reshape(2, 10) for n in ("before", "after"))
    assert before[0].abs().sum() == 0
    assert torch.equal(before[1], after[0])
    assert torch.equal(after[1], model.bn.running_mean)
    optimizer = torch.optim.Adam(reference.parameters(), lr=0.01)
    for i in range(2):
        optimizer.zero_grad()
        reference(x[4 * i : 4 * i + 4], labels[4 * i : 4 * i + 4]).backward()
        optimizer.step()
        torch.testing.assert_close(after[i], reference.bn.running_mean, rtol=1e-4, atol=1e-6)
    moment = optimizer.state[reference.fc.weight]["exp_avg"]
    torch.testing.assert_close(executor.getAnchoredTensor("moment"), moment, rtol=1e-3, atol=1e-6)


@pytest.mark.spec("2.2 anchorTensor", "13 tensor names")
def test_unknown_names_fail_at_compile_and_name_near_ones():
    options = poptorch.Options()
    options.anchorTensor("g", "Gradient___fc2.bais")
    executor = poptorch.trainingModel(Model().train(), options)
    with pytest.raises(poptorch.Error, match=r"'Gradient___fc2.bais'.*Gradient___fc2.bias"):
        executor(*data(4))
    assert not executor.isCompiled()


@pytest.mark.spec("2.2 anchorTensor")
def test_names_of_earlier_versions():
    """Where tracing put `model.` before every parameter's name."""
    options = poptorch.Options()
    options.anchorTensor("g", "Gradient___model.fc2.bias")
    executor = poptorch.trainingModel(Model().train(), options)
    executor(*data(4))
    assert executor.getAnchoredTensor("g").shape == (10,)


@pytest.mark.spec("13 gradient anchors")
def test_anchors_in_inference():
    model = Model().eval()
    options = poptorch.Options().deviceIterations(2)
    options.anchorTensor("hidden", "relu/Relu:0")  # as the outputs: all of them
    x = data(4)[0]
    executor = poptorch.inferenceModel(model, options)
    executor(x)
    torch.testing.assert_close(
        executor.getAnchoredTensor("hidden"), torch.relu(model.fc1(x)).detach()
    )


@pytest.mark.spec("1.4 _debugGetPopartIR", "13 source locations")
def test_the_program_as_json():
    executor = poptorch.trainingModel(Model().train())
    with pytest.raises(poptorch.Error, match="compiled"):
        executor._debugGetPopartIR()
    executor.compile(*data(4))
    program = json.loads(executor._debugGetPopartIR())["maingraph"]
    types = [op["type"] for op in program]
    assert "Relu" in types and any(op["name"].startswith("fc1/") for op in program)
    names = {t["name"] for op in program for t in op["inputs"] + op["outputs"]}
    assert {"input", "input/1", "fc1.weight", "UpdatedVar___fc2.bias"} <= names
    assert any("anchors_test.py" in op["attributes"].get("__location", "") for op in program)


@pytest.mark.spec("7 POPTORCH_EXPORT_PROTO_FILE")
def test_the_graph_is_written_to_a_file(tmp_path, monkeypatch):
    for name, start in (("deep/er/step.ir", 'graph "inference"'), ("step.dot", "digraph")):
        path = tmp_path / name
        monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(path))
        poptorch.inferenceModel(Model().eval()).compile(data(4)[0])
        assert path.read_text().startswith(start)
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", "/proc/no/such/folder/step.ir")
    executor = poptorch.inferenceModel(Model().eval())
    with pytest.raises(poptorch.Error, match="POPTORCH_EXPORT_PROTO_FILE"):
        executor.compile(data(4)[0])
    assert not executor.isCompiled()


@pytest.mark.spec("7 POPTORCH_MAX_GRAPH_LEN")
@pytest.mark.parametrize("lines,whole", [("2", False), ("0", True)])
def test_the_log_shows_the_end_of_the_graph(lines, whole):
    code = "import torch, poptorch; poptorch.inferenceModel(torch.nn.ReLU()).compile(torch.ones(2))"
    environment = {"POPTORCH_LOG_LEVEL": "TRACE", "POPTORCH_MAX_GRAPH_LEN": lines}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert 'output "0"' in done.stderr
    assert ('graph "inference"' in done.stderr) == whole
