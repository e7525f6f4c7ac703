"""Executors: compiling, attaching, outputs, losses, options, loader."""

import copy
import gc
import os
import pathlib
import pickle
import subprocess
import sys

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


@pytest.mark.spec("1.4 attachToDevice", "1.4 detachFromDevice", "12 rng across detach")
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


@pytest.mark.spec("1.4 attachToDevice", "1.4 detachFromDevice", "1.4 isAttachedToDevice")
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
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        executor.detachFromDevice()


def usage():
    """Resident bytes, threads and open files of this process."""
    gc.collect()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


@pytest.mark.spec("1.4 destroy")
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


@pytest.mark.spec("1.4 __call__")
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


MODES = [
    (poptorch.OutputMode.All, None, (12, 4), (4,)),
    (poptorch.OutputMode.Final, None, (3, 4), ()),
    (poptorch.OutputMode.EveryN, 2, (6, 4), (2,)),
    (poptorch.OutputMode.Sum, None, (3, 4), ()),
]


@pytest.mark.spec("5 All", "5 EveryN", "5 Final", "5 Sum", "5 scalar outputs")
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


@pytest.mark.spec("10.2 int64 and float64", "10.2 native types")
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


@pytest.mark.spec("10.1 losses")
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


@pytest.mark.spec("10.1 losses")
def test_identity_loss_outside_a_model():
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    poptorch.identity_loss(x, "mean").backward()
    assert x.grad.tolist() == [0.5, 0.5]
    assert poptorch.identity_loss(x, "sum").item() == 4
    assert poptorch.identity_loss(x, "none").tolist() == [1.0, 3.0]
    with pytest.raises(AssertionError):
        poptorch.identity_loss(x, "max")


@pytest.mark.spec("4.1 unsupported type")
def test_an_optimizer_that_no_program_has():
    model = MLP()
    with pytest.raises(AssertionError, match="Unsupported optimizer"):
        poptorch.trainingModel(model, optimizer=torch.optim.Adagrad(model.parameters()))


@pytest.mark.spec("2.1 fluent", "2.1 reading values", "2.1 freezing", "2.1 pickle", "2.1 repr")
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


@pytest.mark.spec("7 progress bar")
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
