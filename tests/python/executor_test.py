"""Executors: compiling, attaching, weights that follow, outputs, errors, options, loader."""

import copy
import gc
import os
import pathlib
import pickle
import subprocess
import sys
import weakref

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import MLP, BatchNormCNN, batch


def trained(steps=2, options=None, **numbers):
    torch.manual_seed(1)
    model = MLP().train()
    initial = copy.deepcopy(model.state_dict())
    executor = poptorch.trainingModel(
        model, options, torch.optim.SGD(model.parameters(), lr=0.1, **numbers)
    )
    for step in range(steps):
        executor(*batch("MLP", seed=step))
    return model, executor, initial


def differs(a, b):
    return any(not torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(
    "read",
    [
        lambda m: m.state_dict(),
        lambda m: {"w": m.layers[0].weight.detach(), "b": m.layers[0].bias.data},
        lambda m: {k: p + 0 for k, p in m.named_parameters()},
        lambda m: {k: torch.clone(p) for k, p in m.named_parameters()},
        lambda m: copy.deepcopy(m).state_dict(),
        lambda m: pickle.loads(pickle.dumps(m)).state_dict(),
    ],
    ids=["state_dict", "attributes", "arithmetic", "function", "deepcopy", "pickle"],
)
def test_whoever_looks_at_the_weights_sees_the_trained_ones(read):
    model, executor, initial = trained()
    seen = {k: v.detach().clone() for k, v in read(model).items()}
    executor.copyWeightsToHost()
    expected = {k: v.detach().clone() for k, v in read(model).items()}
    assert not differs(seen, expected)
    assert differs(model.state_dict(), initial)


def test_saved_weights_load_without_us(tmp_path):
    model, _, _ = trained()
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    torch.save(model, tmp_path / "model.pth")
    code = (
        "import sys, torch\n"
        f"sys.path.insert(0, {str(sys.path[0])!r})\n"
        f"from models import MLP\n"
        f"w = torch.load({str(tmp_path / 'weights.pth')!r})\n"
        f"m = torch.load({str(tmp_path / 'model.pth')!r})\n"
        "assert type(m) is MLP and type(next(m.parameters())) is torch.nn.Parameter\n"
        "assert all(torch.equal(w[k], v) for k, v in m.state_dict().items())\n"
        "assert 'poptorch' not in sys.modules\n"
    )
    import models

    code = code.replace(str(sys.path[0]), str(models.__file__).rsplit("/", 1)[0])
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_inference_model_sees_trained_weights_and_follows():
    model, executor, _ = trained()
    x, labels = batch("MLP")
    inference = poptorch.inferenceModel(model)
    torch.testing.assert_close(inference(x), copy.deepcopy(model)(x).detach())
    first = inference(x)
    executor(x, labels)
    second = inference(x)
    assert not torch.equal(first, second)
    torch.testing.assert_close(second, copy.deepcopy(model)(x).detach())


def test_weights_changed_on_the_host_need_copy_weights_to_device():
    model, executor, _ = trained(steps=1)
    inference = poptorch.inferenceModel(model)
    x, _ = batch("MLP")
    inference(x)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert inference(x).abs().sum() > 0
    inference.copyWeightsToDevice()
    assert inference(x).abs().sum() == 0
    executor.load_state_dict({k: torch.zeros_like(v) for k, v in model.state_dict().items()})
    assert executor(*batch("MLP"))[0].abs().sum() == 0


def test_detach_and_attach_keep_everything():
    def run(detach):
        torch.manual_seed(0)
        model = BatchNormCNN(dropout=0.5).train()
        executor = poptorch.trainingModel(
            model,
            poptorch.Options().randomSeed(5),
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        )
        for step in range(4):
            executor(*batch("BatchNormCNN", seed=step))
            if detach:
                executor.detachFromDevice()
                assert not executor.isAttachedToDevice()
                if step == 1:
                    executor.attachToDevice()
        return model.state_dict()

    expected, got = run(False), run(True)
    assert all(torch.equal(expected[k], got[k]) for k in expected)


def test_attach_and_detach_at_the_wrong_time():
    executor = poptorch.inferenceModel(MLP())
    for method in (executor.attachToDevice, executor.detachFromDevice, executor.copyWeightsToHost):
        with pytest.raises(poptorch.Error):
            method()
    x, _ = batch("MLP")
    executor(x)
    with pytest.raises(poptorch.Error, match="attached already"):
        executor.attachToDevice()
    executor.detachFromDevice()
    with pytest.raises(poptorch.Error, match="not attached"):
        executor.detachFromDevice()


def test_destroy_unwraps_and_a_call_compiles_again():
    model, executor, _ = trained()
    assert type(model).__name__ == "PoptorchMLP"
    with pytest.raises(RuntimeError, match="already been wrapped"):
        poptorch.trainingModel(model)
    executor.destroy()
    assert type(model) is MLP and type(model.layers[0].weight) is nn.Parameter
    assert not executor.isCompiled()
    x, labels = batch("MLP", size=4)
    assert executor(x, labels)[0].shape == (4, 4)


def test_an_executor_that_goes_away_leaves_the_trained_weights():
    model, executor, initial = trained()
    gone = weakref.ref(executor)
    del executor
    assert gone() is None  # at once: nothing goes round in circles
    assert differs(model.state_dict(), initial)
    again = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))
    again(*batch("MLP"))
    again.destroy()
    assert type(model) is MLP


def usage():
    """Resident bytes, threads and open files of this process."""
    gc.collect()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def test_two_hundred_cycles_leave_nothing_behind():
    def cycle():
        model, executor, _ = trained(steps=1)
        executor.destroy()

    for _ in range(50):
        cycle()
    before = usage()
    for _ in range(200):
        cycle()
    after = usage()
    assert after[0] - before[0] < 6 << 20 and after[1:] == before[1:]


def test_a_thousand_training_calls_do_not_grow():
    model, executor, _ = trained(steps=1)
    inputs = batch("MLP")
    for _ in range(200):
        executor(*inputs)
    before = usage()
    for _ in range(1000):
        executor(*inputs)
    after = usage()
    assert after[0] - before[0] < 1 << 20 and after[1:] == before[1:]


def test_forwarding_and_repr():
    model, executor, _ = trained()
    assert executor.layers is model.layers
    assert repr(executor) == repr(model)
    assert list(executor.state_dict()) == list(model.state_dict())
    with pytest.raises(AttributeError):
        executor.no_such_thing


class Echo(nn.Module):
    def forward(self, x, extra=None, scale=2):
        result = {"y": x * scale, "nested": (x.sum(), [x[0], "text"])}
        if extra is not None:
            result["extra"] = extra + 1
        return result


def test_nested_results_constants_and_keywords():
    executor = poptorch.inferenceModel(Echo())
    x = torch.arange(6.0).reshape(2, 3)
    result = executor(x, scale=3)
    assert torch.equal(result["y"], x * 3)
    assert torch.equal(result["nested"][0], x.sum())
    assert torch.equal(result["nested"][1][0], x[0]) and result["nested"][1][1] == "text"
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(x, scale=4)
    with pytest.raises(poptorch.Error, match="missing"):
        executor(scale=3)
    with pytest.raises(AssertionError):
        executor(x, nonsense=1)


MODES = [
    (poptorch.OutputMode.All, None, (12, 4), (4,)),
    (poptorch.OutputMode.Final, None, (3, 4), ()),
    (poptorch.OutputMode.EveryN, 2, (6, 4), (2,)),
    (poptorch.OutputMode.Sum, None, (3, 4), ()),
]


@pytest.mark.parametrize("mode,period,shape,loss_shape", MODES, ids=lambda v: str(v))
def test_output_modes(mode, period, shape, loss_shape):
    model = MLP()
    x, labels = batch("MLP", size=12)
    options = poptorch.Options().deviceIterations(4).outputMode(mode, period)
    output, loss = poptorch.inferenceModel(model, options)(x, labels)
    assert output.shape == shape and loss.shape == loss_shape
    parts = [model(x[i : i + 3], labels[i : i + 3]) for i in range(0, 12, 3)]
    kept = {"All": [0, 1, 2, 3], "Final": [3], "EveryN": [1, 3], "Sum": [0, 1, 2, 3]}[mode.name]
    expected = torch.stack([parts[i][0].detach() for i in kept])
    expected = expected.sum(0) if mode.name == "Sum" else expected.flatten(0, 1)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)


def test_integers_come_back_32_bit():
    class Picks(nn.Module):
        def forward(self, x, index):
            return x.argmax(1), (x > 0).sum(), index + 1, x > 0, x.double()

    result = poptorch.inferenceModel(Picks())(torch.eye(3), torch.arange(3))
    types = [r.dtype for r in result]
    assert types == [torch.int32, torch.int32, torch.int32, torch.bool, torch.float32]
    assert result[0].tolist() == [0, 1, 2] and result[1].item() == 3


class Losses(nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.compute = compute

    def forward(self, x):
        return self.compute(torch.sigmoid(self.fc(x)), torch.full((4, 3), 0.5))


def test_one_loss_exactly():
    x = torch.randn(4, 3)
    with pytest.raises(poptorch.Error, match="Couldn't find a loss"):
        poptorch.trainingModel(Losses(lambda y, t: (y - t).pow(2).mean()))(x)
    with pytest.raises(poptorch.Error, match="Multiple independent losses"):
        poptorch.trainingModel(Losses(lambda y, t: F.mse_loss(y, t) + F.l1_loss(y, t)))(x)
    combined = Losses(
        lambda y, t: poptorch.identity_loss(F.mse_loss(y, t) + F.l1_loss(y, t), reduction="none")
    )
    poptorch.trainingModel(combined)(x)
    with pytest.raises(poptorch.Error, match="nothing to train"):
        poptorch.trainingModel(Losses(lambda y, t: F.mse_loss(y.detach(), t)))(x)


def test_identity_loss_outside_a_model():
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    poptorch.identity_loss(x, "mean").backward()
    assert x.grad.tolist() == [0.5, 0.5]
    assert poptorch.identity_loss(x, "sum").item() == 4
    assert poptorch.identity_loss(x, "none").tolist() == [1.0, 3.0]
    with pytest.raises(AssertionError):
        poptorch.identity_loss(x, "max")


def test_bad_inputs_are_one_clear_sentence():
    options = poptorch.Options().deviceIterations(4)
    executor = poptorch.inferenceModel(MLP(), options)
    with pytest.raises(AssertionError, match="deviceIterations \\(4\\)"):
        executor(torch.randn(6, 20))
    executor(torch.randn(8, 20))
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(torch.randn(12, 20))
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(torch.randn(8, 20).double())
    with pytest.raises(poptorch.Error, match="no elements"):
        poptorch.inferenceModel(MLP())(torch.randn(0, 20))
    with pytest.raises(poptorch.Error, match="models.py"):
        poptorch.inferenceModel(MLP())(torch.randn(8, 21))
    with pytest.raises(poptorch.Error, match="half precision"):
        poptorch.inferenceModel(MLP())(torch.randn(8, 20).half())
    with pytest.raises(poptorch.Error, match="poptorch.Options"):
        poptorch.inferenceModel(MLP(), {"deviceIterations": 4})
    with pytest.raises(AssertionError, match="Unsupported optimizer"):
        model = MLP()
        poptorch.trainingModel(model, optimizer=torch.optim.Adagrad(model.parameters()))
    with pytest.raises(poptorch.Error, match="replicationFactor"):
        poptorch.trainingModel(MLP(), poptorch.Options().replicationFactor(2))
    accumulating = poptorch.Options()
    accumulating.Training.gradientAccumulation(2)
    with pytest.raises(poptorch.Error, match="deviceIterations"):
        poptorch.inferenceModel(MLP(), accumulating)


def test_a_class_that_does_not_exist_is_an_error_not_a_crash():
    model = MLP().train()
    executor = poptorch.trainingModel(model)
    x, labels = batch("MLP")
    with pytest.raises(poptorch.Error, match="class index 9"):
        executor(x, torch.full_like(labels, 9))
    executor(x, labels)


def test_is_running_on_ipu_only_while_captured():
    seen = []

    class Asks(nn.Module):
        def forward(self, x):
            seen.append(poptorch.isRunningOnIpu())
            return x + 1

    model = Asks()
    model(torch.ones(1))
    poptorch.inferenceModel(model)(torch.ones(1))
    assert seen == [False, True] and not poptorch.isRunningOnIpu()


def test_options():
    options = (
        poptorch.Options()
        .deviceIterations(20)
        .replicationFactor(2)
        .randomSeed(123)
        .useIpuModel(True)
    )
    assert options.device_iterations == 20 and options.replication_factor == 2
    assert torch.initial_seed() == 123 and options.random_seed == 123
    assert not poptorch.Options().exists("random_seed")
    assert options.Training.gradientAccumulation(3) is options.Training
    assert options.Training.gradient_accumulation == 3
    assert repr(options).startswith("Options(") and "device_iterations=20" in repr(options)
    copied = pickle.loads(pickle.dumps(options))
    assert repr(copied) == repr(options)
    poptorch.DataLoader(options, torch.utils.data.TensorDataset(torch.zeros(1, 1)))
    with pytest.raises(AttributeError, match="frozen"):
        options.deviceIterations(1)
    with pytest.raises(AttributeError, match="frozen"):
        options.Training.gradientAccumulation(1)
    options.clone().deviceIterations(1)
    copy.deepcopy(options).deviceIterations(1)
    with pytest.raises(ValueError):
        poptorch.Options().deviceIterations(0)


def test_the_progress_bar_is_whole_lines_without_a_terminal():
    code = (
        "import torch, poptorch\n"
        "poptorch.inferenceModel(torch.nn.Linear(2, 2))(torch.zeros(1, 2))\n"
        "quiet = poptorch.Options().showCompilationProgressBar(False)\n"
        "poptorch.inferenceModel(torch.nn.Linear(2, 2), quiet)(torch.zeros(1, 2))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Graph compilation: 100%|██████████| 100/100 [00:00<00:00]")


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers):
    data = torch.utils.data.TensorDataset(torch.arange(22.0), torch.arange(22))
    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(2)
    loader = poptorch.DataLoader(options, data, batch_size=2, num_workers=workers)
    assert loader.combinedBatchSize == 8 and len(loader) == 2
    batches = list(loader)
    assert [b[0].tolist() for b in batches] == [list(range(0, 8)), list(range(8, 16))]
    kept = poptorch.DataLoader(options, data, batch_size=2, drop_last=False)
    assert len(kept) == 3 and len(list(kept)[2][0]) == 6
    shuffled = poptorch.DataLoader(options, data, batch_size=2, shuffle=True)
    assert len(set(torch.cat([b[1] for b in shuffled]).tolist())) == 16
