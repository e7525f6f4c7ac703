"""Executors and their device: compiling, attaching, buffers, counters, synthetic data."""

import copy
import datetime
import subprocess
import sys
import time

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import MLP, BatchNormCNN, batch


def training(make=MLP, options=None, **numbers):
    torch.manual_seed(1)
    model = make().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **numbers)
    return poptorch.trainingModel(model, options, optimizer)


# Compiling, attaching, detaching


@pytest.mark.spec("1.4 compile", "1.4 isCompiled", "1.4 isAttachedToDevice")
def test_compiling_ahead_of_the_first_call():
    executor = training()
    assert not executor.isCompiled() and not executor.isAttachedToDevice()
    before = executor.model.layers[0].weight.detach().clone()
    executor.compile(*batch("MLP"))
    assert executor.isCompiled() and executor.isAttachedToDevice()
    assert torch.equal(executor.model.layers[0].weight, before)
    executor(*batch("MLP"))
    assert not torch.equal(executor.model.layers[0].weight, before)


@pytest.mark.spec("1.4 compile twice")
def test_compiling_twice_warns_and_does_nothing():
    code = (
        "import torch, poptorch\n"
        "m = poptorch.inferenceModel(torch.nn.Linear(2, 2))\n"
        "m.compile(torch.zeros(1, 2))\n"
        "m.compile(torch.zeros(1, 2))\n"
        "assert m(torch.zeros(1, 2)).shape == (1, 2)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "compiled already" in done.stderr


@pytest.mark.spec("1.4 attachToDevice", "1.4 detachFromDevice", "1.4 isAttachedToDevice")
def test_attach_and_detach_at_the_wrong_time():
    executor = poptorch.inferenceModel(MLP())
    with pytest.raises(poptorch.Error, match="compiled"):
        executor.attachToDevice()
    with pytest.raises(poptorch.Error, match="compiled"):
        executor.detachFromDevice()
    x, _ = batch("MLP")
    executor(x)
    with pytest.raises(poptorch.Error, match="attached already"):
        executor.attachToDevice()
    executor.detachFromDevice()
    assert executor.isCompiled() and not executor.isAttachedToDevice()
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        executor.detachFromDevice()
    executor.attachToDevice()
    assert executor.isAttachedToDevice()


@pytest.mark.spec("1.4 attachToDevice", "1.4 detachFromDevice", "12 rng across detach")
@pytest.mark.parametrize("explicit", [False, True])
def test_detaching_keeps_weights_momentum_buffers_and_random_numbers(explicit):
    def run(detach):
        executor = training(
            lambda: BatchNormCNN(dropout=0.5), poptorch.Options().randomSeed(5), momentum=0.9
        )
        for step in range(4):
            executor(*batch("BatchNormCNN", seed=step))
            if detach:
                executor.detachFromDevice()
                if explicit:
                    executor.attachToDevice()
        return executor.model.state_dict()

    expected, got = run(False), run(True)
    assert all(torch.equal(expected[k], got[k]) for k in expected)


@pytest.mark.spec("1.4 detachFromDevice", "1.3 lazy copy to host")
def test_training_and_validation_take_turns_on_the_device():
    """As users do who have one device for both."""
    model = MLP()
    trainer = training(lambda: model)
    validation = poptorch.inferenceModel(model)
    x, labels = batch("MLP")
    results = []
    for _ in range(3):
        trainer(x, labels)
        trainer.detachFromDevice()
        results.append(validation(x))
        torch.testing.assert_close(results[-1], copy.deepcopy(model)(x).detach())
        validation.detachFromDevice()
    assert not torch.equal(results[0], results[1]) and not torch.equal(results[1], results[2])


@pytest.mark.spec("1.4 destroy", "1.4 destroy before compile")
def test_destroy():
    executor = training()
    executor.destroy()  # nothing to destroy: the module stays wrapped
    assert type(executor.model).__name__ == "PoptorchMLP"
    model = executor.model
    initial = copy.deepcopy(model.state_dict())
    executor(*batch("MLP"))
    executor.destroy()
    assert not executor.isCompiled() and not executor.isAttachedToDevice()
    assert type(model) is MLP
    assert any(not torch.equal(initial[k], v) for k, v in model.state_dict().items())
    assert executor(*batch("MLP", size=4))[0].shape == (4, 4)  # compiles again


@pytest.mark.spec("1.4 __call__ connection never", "2.2 connectionType")
@pytest.mark.spec("2.2 useOfflineIpuTarget", "1.4 attachToDevice")
@pytest.mark.parametrize("offline", ["never", "target"])
def test_offline_models_compile_and_do_not_run(offline):
    options = poptorch.Options()
    if offline == "never":
        options.connectionType(poptorch.ConnectionType.Never)
    else:
        options.useOfflineIpuTarget()
    executor = training(options=options)
    x, labels = batch("MLP")
    with pytest.raises(AssertionError, match="offline device"):
        executor(x, labels)
    assert not executor.isCompiled()
    executor.compile(x, labels)
    assert executor.isCompiled() and not executor.isAttachedToDevice()
    with pytest.raises(AssertionError, match="offline device"):
        executor(x, labels)
    with pytest.raises(AssertionError, match="offline device"):
        executor.attachToDevice()
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        executor.detachFromDevice()
    assert "loss" in executor.getTensorNames()
    executor.destroy()
    assert type(executor.model) is MLP


@pytest.mark.spec("2.2 connectionType")
@pytest.mark.parametrize("kind", ["Always", "OnDemand"])
def test_other_connections_run(kind):
    options = poptorch.Options().connectionType(getattr(poptorch.ConnectionType, kind))
    executor = training(options=options)
    executor(*batch("MLP"))
    assert executor.isAttachedToDevice()


# Weights and buffers


@pytest.mark.spec("1.4 copyWeightsToHost", "1.4 copyWeightsToDevice")
@pytest.mark.spec("1.4 copyWeightsToHostIfNeeded")
def test_copying_weights():
    executor = training()
    for method in (executor.copyWeightsToHost, executor.copyWeightsToDevice):
        with pytest.raises(poptorch.Error) as raised:
            method()
        assert "Model has not been compiled or has been destroyed." in str(raised.value)
    assert executor.copyWeightsToHostIfNeeded() is False
    executor(*batch("MLP"))
    assert executor.copyWeightsToHostIfNeeded() is True
    assert executor.copyWeightsToHostIfNeeded() is False
    executor(*batch("MLP"))
    assert executor.model.copyWeightsToHostIfNeeded() is True
    with torch.no_grad():
        for p in executor.model.parameters():
            p.zero_()
    executor.copyWeightsToDevice()
    assert executor(*batch("MLP"))[0].abs().sum() == 0
    executor.destroy()
    with pytest.raises(poptorch.Error, match="destroyed"):
        executor.copyWeightsToHost()


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("offset", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.scale * self.weight + self.offset


@pytest.mark.spec("1.4 copyNamedBuffersToDevice", "2.2 updatableNamedBuffers")
def test_named_buffers_are_sent_alone():
    model = Scaled()
    options = poptorch.Options().updatableNamedBuffers(["scale"])
    executor = poptorch.inferenceModel(model, options)
    with pytest.raises(poptorch.Error, match="not been compiled"):
        executor.copyNamedBuffersToDevice()
    x = torch.ones(1, 3)
    assert executor(x).tolist() == [[1, 1, 1]]
    with torch.no_grad():
        model.scale.fill_(2)
        model.offset.fill_(10)
        model.weight.fill_(100)
    assert executor(x).tolist() == [[1, 1, 1]]
    executor.copyNamedBuffersToDevice()
    assert executor(x).tolist() == [[2, 2, 2]]
    executor.copyWeightsToDevice()
    assert executor(x).tolist() == [[210, 210, 210]]
    executor.detachFromDevice()
    model.scale.fill_(3)
    executor.copyNamedBuffersToDevice()  # attaching will send it
    assert executor(x).tolist() == [[310, 310, 310]]


@pytest.mark.spec("1.4 copyNamedBuffersToDevice", "2.2 updatableNamedBuffers")
def test_named_buffers_that_are_wrong():
    x = torch.ones(1, 3)
    executor = poptorch.inferenceModel(Scaled())
    executor(x)
    with pytest.raises(poptorch.Error, match="updatableNamedBuffers"):
        executor.copyNamedBuffersToDevice()
    options = poptorch.Options().updatableNamedBuffers(["scale", "weight"])
    executor = poptorch.inferenceModel(Scaled(), options)
    with pytest.raises(poptorch.Error, match="no buffer 'weight'.*scale, offset"):
        executor(x)


class Counter(nn.Module):
    """Buffers that forward changes in place, of floats and of whole numbers."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 1, bias=False)
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("latest", torch.zeros(2))
        self.plain = torch.tensor([10.0])

    def forward(self, x):
        self.seen += x.sum()
        self.calls += 1
        self.latest.copy_(x[-1])
        self.plain = self.plain + 1
        y = self.fc(x) + self.plain
        return self.seen + 0, self.calls + 0, poptorch.identity_loss(y, reduction="mean")


@pytest.mark.spec("12 buffers", "12 plain tensor attributes", "10.2 integer parameters")
def test_buffers_change_with_every_micro_batch():
    model = Counter().train()
    options = poptorch.Options().deviceIterations(2).outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(2)
    executor = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.0))
    x = torch.arange(8.0).reshape(4, 2)
    seen, calls, loss = executor(x)
    assert seen.tolist() == [1, 6, 15, 28] and calls.tolist() == [1, 2, 3, 4]
    assert loss.shape == (4,)
    seen, calls, _ = executor(x)
    assert seen.tolist() == [29, 34, 43, 56] and calls.tolist() == [5, 6, 7, 8]
    # Training: the host's buffers follow like weights.
    assert model.seen.item() == 56 and model.calls.item() == 8
    assert model.calls.dtype == torch.int64
    assert model.latest.tolist() == [6, 7]
    assert model.plain.item() == 10  # a constant of the program


@pytest.mark.spec("12 buffers", "1.3 inference buffers")
def test_buffers_of_inference_stay_on_the_device_until_asked_for():
    model = Counter().eval()
    executor = poptorch.inferenceModel(model)
    x = torch.ones(1, 2)
    for expected in (2, 4, 6):
        assert executor(x)[0].item() == expected
    assert model.seen.item() == 0
    executor.copyWeightsToHost()
    assert model.seen.item() == 6 and model.calls.item() == 3


@pytest.mark.spec("12 plain tensor attributes")
def test_plain_attributes_are_frozen_at_compile_time():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.offset = torch.ones(2)

        def forward(self, x):
            return x + self.offset

    model = Plain()
    executor = poptorch.inferenceModel(model)
    x = torch.zeros(2)
    assert executor(x).tolist() == [1, 1]
    model.offset.fill_(5)
    executor.copyWeightsToDevice()
    assert executor(x).tolist() == [1, 1]
    executor.destroy()
    assert executor(x).tolist() == [5, 5]


# Times and counts


class Product(nn.Module):
    def forward(self, x, y):
        return torch.matmul(x, y)


def check_lengths(counters, inputs, outputs, read, written):
    assert list(counters) == ["input", "input_complete", "output", "output_complete"]
    for key, tensors, values in (
        ("input", inputs, read),
        ("input_complete", inputs, read),
        ("output", outputs, written),
        ("output_complete", outputs, written),
    ):
        assert [len(times) for times in counters[key]] == [values] * tensors, key
        assert all(isinstance(time, float) for times in counters[key] for time in times)


@pytest.mark.spec("1.4 getPerfCounters", "1.4 getLatency", "1.4 getHostIpuLatency")
@pytest.mark.spec("1.4 getComputeLatency", "1.4 getIpuHostLatency")
def test_counters_of_inference():
    executor = poptorch.inferenceModel(Product(), poptorch.Options().deviceIterations(10))
    assert executor.getPerfCounters() == {
        "input": [[]],
        "input_complete": [[]],
        "output": [[]],
        "output_complete": [[]],
    }
    assert executor.getLatency() == (0.0, 0.0, 0.0)
    x = torch.randn(10, 60, 60)
    executor.compile(x, x)
    check_lengths(executor.getPerfCounters(), 2, 1, 0, 0)
    start = datetime.datetime.now().timestamp()
    executor(x, x)
    end = datetime.datetime.now().timestamp()
    counters = executor.getPerfCounters()
    check_lengths(counters, 2, 1, 10, 10)
    # Seconds of the wall clock, in order.
    slack = 0.05
    assert start - slack <= counters["input"][0][0] <= counters["output_complete"][0][-1]
    assert counters["output_complete"][0][-1] <= end + slack
    for before, after in (("input", "input_complete"), ("output", "output_complete")):
        for a, b in zip(counters[before][0], counters[after][0]):
            assert a <= b
    assert counters["output"][0] == sorted(counters["output"][0])

    latencies = {
        "all": executor.getLatency(),
        "in": executor.getHostIpuLatency(),
        "compute": executor.getComputeLatency(),
        "out": executor.getIpuHostLatency(),
    }
    for low, high, mean in latencies.values():
        assert 0 <= low <= mean <= high <= end - start + slack
    assert latencies["all"][2] >= latencies["compute"][2] > 0


@pytest.mark.spec("1.4 getPerfCounters")
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("mode,period", [("Final", 1), ("All", 1), ("Sum", 1), ("EveryN", 2)])
def test_counters_follow_the_output_mode(mode, period, accumulation):
    options = poptorch.Options().deviceIterations(4)
    options.outputMode(getattr(poptorch.OutputMode, mode), period)
    options.Training.gradientAccumulation(accumulation)
    executor = training(options=options)
    executor(*batch("MLP"))
    written = {"Final": 1, "Sum": 1, "All": 4 * accumulation, "EveryN": 2 * accumulation}[mode]
    check_lengths(executor.getPerfCounters(), 2, 2, 4 * accumulation, written)
    for latency in (executor.getLatency(), executor.getComputeLatency()):
        assert 0 < latency[0] <= latency[2] <= latency[1]


@pytest.mark.spec("1.4 cycleCount", "2.2 logCycleCount")
def test_cycle_counts():
    x, labels = batch("MLP")
    executor = training()
    executor(x, labels)
    with pytest.raises(poptorch.Error, match="logCycleCount"):
        executor.cycleCount()

    def counted(iterations):
        options = poptorch.Options().deviceIterations(iterations).logCycleCount(True)
        executor = training(options=options)
        with pytest.raises(poptorch.Error, match="at least once"):
            executor.cycleCount()
        executor.compile(x, labels)
        with pytest.raises(poptorch.Error, match="at least once"):
            executor.cycleCount()
        executor(x, labels)
        first = executor.cycleCount()
        executor(x, labels)
        assert executor.cycleCount() == first and isinstance(first, int)
        return first

    assert counted(2) == counted(2) > 0
    assert counted(4) > counted(2)


@pytest.mark.spec("2.2 logCycleCount")
def test_offline_targets_have_no_cycles():
    options = poptorch.Options().connectionType(poptorch.ConnectionType.Never)
    options.logCycleCount(True)
    with pytest.raises(poptorch.Error, match="offline"):
        training(options=options).compile(*batch("MLP"))


@pytest.mark.spec("1.4 compilationTime")
def test_compilation_time():
    executor = training()
    with pytest.raises(poptorch.Error, match="not been compiled"):
        executor.compilationTime()
    executor.compile(*batch("MLP"))
    spent = executor.compilationTime()
    assert isinstance(spent, datetime.timedelta) and spent.total_seconds() > 0
    quiet = training(options=poptorch.Options().showCompilationProgressBar(False))
    quiet.compile(*batch("MLP"))
    with pytest.raises(poptorch.Error, match="progress bar"):
        quiet.compilationTime()


class SlowToCapture(nn.Module):
    def forward(self, x):
        time.sleep(0.2)
        return x + 1


class SlowToAttach(nn.Module):
    """Nothing to compile, and much to bring to the device."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1 << 26))

    def forward(self, x):
        return x + self.table[0]


@pytest.mark.spec("1.4 compilationTime")
@pytest.mark.parametrize("model", [SlowToCapture, SlowToAttach])
def test_compilation_time_is_that_of_all_of_compile(model):
    executor = poptorch.inferenceModel(model())
    start = time.perf_counter()
    executor.compile(torch.zeros(2))
    whole = time.perf_counter() - start
    found = executor.compilationTime().total_seconds()
    assert whole / 2 < found <= whole


# Made-up inputs, exceptions


@pytest.mark.spec("2.2 enableSyntheticData", "1.4 getPerfCounters")
@pytest.mark.parametrize("enabled", [True, 1])
def test_synthetic_data(enabled):
    options = poptorch.Options().deviceIterations(4).outputMode(poptorch.OutputMode.All)
    options.enableSyntheticData(enabled)
    executor = training(options=options)
    x, labels = batch("MLP")
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    # Labels that no class has: they are not read.
    output, loss = executor(torch.full_like(x, float("nan")), torch.full_like(labels, 999))
    assert torch.equal(torch.rand(1), expected)
    assert output.shape == (16, 4) and loss.shape == (4,)
    assert output.isfinite().all() and output.abs().sum() > 0
    check_lengths(executor.getPerfCounters(), 2, 2, 0, 0)
    assert executor.getLatency() == (0.0, 0.0, 0.0)
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(x[:8], labels[:8])


@pytest.mark.spec("2.2 enableSyntheticData")
def test_without_synthetic_data_inputs_are_read():
    options = poptorch.Options().enableSyntheticData(False)
    x = torch.randn(3, 4, 4)
    torch.testing.assert_close(poptorch.inferenceModel(Product(), options)(x, x), x @ x)


class Risky(nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.compute = compute

    def forward(self, x, y):
        return self.compute(x, y)


INF = float("inf")
EXCEPTIONS = {
    "division by zero": (lambda x, y: x / y, 1.0, 0.0),
    "zero by zero": (lambda x, y: x / y, 0.0, 0.0),
    "inf minus inf": (lambda x, y: x - y, INF, INF),
    "zero times inf": (lambda x, y: x * y, 0.0, INF),
    "overflow": (lambda x, y: torch.exp(x * y), 100.0, 100.0),
    "log of a negative number": (lambda x, y: torch.log(x) + y, -1.0, 0.0),
    "hidden by a later operator": (lambda x, y: torch.sigmoid(x / y), 1.0, 0.0),
}


@pytest.mark.spec("2.4 enableFloatingPointExceptions")
@pytest.mark.parametrize("case", EXCEPTIONS)
def test_floating_point_exceptions(case):
    compute, x, y = EXCEPTIONS[case]
    x, y = torch.full((4,), x), torch.full((4,), y)
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    executor = poptorch.inferenceModel(Risky(compute), options)
    with pytest.raises(poptorch.Error, match="floating point exception"):
        executor(x, y)
    # The executor lives on, and values that raise nothing are as ever.
    one = torch.ones(4)
    expected = compute(one, one)
    torch.testing.assert_close(executor(one, one), expected)
    quiet = poptorch.inferenceModel(Risky(compute))(x, y)
    torch.testing.assert_close(quiet, compute(x, y), equal_nan=True)


@pytest.mark.spec("2.4 enableFloatingPointExceptions")
def test_floating_point_exceptions_name_operator_and_line():
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    executor = poptorch.inferenceModel(Risky(lambda x, y: x / y), options)
    with pytest.raises(poptorch.Error, match=r"div made an infinite value") as raised:
        executor(torch.ones(2), torch.zeros(2))
    assert "device_test.py" in str(raised.value)


@pytest.mark.spec("2.4 enableFloatingPointExceptions")
def test_training_without_exceptions_raises_none():
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    executor = training(BatchNormCNN, options)
    for step in range(3):
        assert executor(*batch("BatchNormCNN", seed=step))[1].isfinite()

    class Masked(nn.Module):
        """Infinities that the program puts there itself are no exception."""

        def forward(self, x):
            mask = torch.ones(4, 4).triu(1).bool()
            return F.softmax(x.masked_fill(mask, float("-inf")), -1)

    x = torch.randn(4, 4)
    torch.testing.assert_close(poptorch.inferenceModel(Masked(), options)(x), Masked()(x))
