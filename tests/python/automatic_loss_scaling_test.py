"""A program that finds its loss scale itself: the rule, its state, what counts and what is told."""

import copy
import logging

import poptorch
import pytest
import torch
from torch import nn

EDGE = 0.125 * 65504


class Gradient(nn.Module):
    """The gradient of the weight is the input, times share and scale, in half precision."""

    def __init__(self, dtype=torch.float16, share=1.0):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(4))
        self.dtype, self.share = dtype, share

    def forward(self, x):
        product = self.w.to(self.dtype) * x[0]
        return poptorch.identity_loss(product.float().sum() * self.share, "none")


def made(scale=64.0, accumulation=1, iterations=1, model=None, **settings):
    model = model or Gradient()
    options = poptorch.Options().showCompilationProgressBar(False)
    options.deviceIterations(iterations)
    options.Training.gradientAccumulation(accumulation)
    options.Training.setAutomaticLossScaling(True)
    options.anchorTensor("scale", "finalLossScale", poptorch.OutputMode.All)
    for name, value in settings.items():
        options._Popart.set(f"automaticLossScalingSettings.{name}", value)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, loss_scaling=scale)
    return model, optimizer, poptorch.trainingModel(model, options, optimizer)


def call(executor, *values, dtype=torch.float16):
    """A call with one such gradient for each micro-batch; the scales they met."""
    executor(torch.tensor([[v, 0.0, 0.0, 0.0] for v in values]).to(dtype))
    return executor.getAnchoredTensor("scale").reshape(-1).tolist()


def factor_of(optimizer):
    return optimizer.state_dict()["ipu_state"]["lossScaleUpdateFactor"].item()


@pytest.mark.spec("2.3 setAutomaticLossScaling")
def test_the_scale_follows_the_gradients():
    model, optimizer, executor = made()
    seen, expected, scale = [], [], 64.0
    for i in range(12):
        gradient = 5.0 if i < 8 else 20.0
        seen += call(executor, gradient)
        expected.append(scale)
        scale = scale / 2 if scale * gradient >= EDGE else scale * 2
    assert seen == expected
    assert max(seen) == 2048 and factor_of(optimizer) == scale / 64
    assert model.w[0] == -(8 * 5 + 4 * 20)


@pytest.mark.spec("2.3 setAutomaticLossScaling")
def test_the_factor_begins_as_one_and_is_part_of_the_state():
    _, optimizer, executor = made()
    executor.compile(torch.zeros(1, 4).half())
    state = optimizer.state_dict()["ipu_state"]
    assert state["lossScaleUpdateFactor"] == 1
    assert not [name for name in state if name.startswith(("Counter", "Accum"))]


@pytest.mark.spec("2.3 setAutomaticLossScaling")
def test_the_scale_is_kept_while_gradients_are_gathered():
    model, optimizer, executor = made(scale=1024.0, accumulation=2, iterations=3)
    # The second micro-batch of the first update is near the end of halves.
    assert call(executor, 1.0, 8.0, 1.0, 1.0, 1.0, 1.0) == [1024, 1024, 512, 512, 1024, 1024]
    assert factor_of(optimizer) == 2
    assert model.w[0] == -(4.5 + 1 + 1)


@pytest.mark.spec("2.3 setAutomaticLossScaling", "2.6 _Popart.set")
def test_settings_of_the_rule():
    _, optimizer, executor = made(scale=1024.0, updatePeriod=2)
    assert [call(executor, 1.0)[0] for _ in range(5)] == [1024, 1024, 2048, 2048, 4096]
    assert optimizer.state_dict()["ipu_state"]["lossScaleUpdatesSince"] == 1

    _, optimizer, executor = made(scale=512.0, binEdgeLocation=0.01)
    call(executor, 1.25)  # 640, and the edge is at 655.04
    assert factor_of(optimizer) == 2
    _, optimizer, executor = made(scale=512.0, binEdgeLocation=0.01)
    call(executor, 1.3125)  # 672
    assert factor_of(optimizer) == 0.5

    _, optimizer, executor = made(scale=1024.0, thresholdUpperCountProportion=0.25)
    call(executor, 10.0)  # one of four elements
    assert factor_of(optimizer) == 2

    _, optimizer, executor = made(scale=1024.0, gradientTensorTrackingMethod=1)
    call(executor, 10.0)  # no product of matrices
    assert factor_of(optimizer) == 1


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("updatePeriod", 0, "updatePeriod must be at least 1"),
        ("binEdgeLocation", 1.5, "binEdgeLocation must be between 0 and 1"),
        ("thresholdUpperCountProportion", -0.1, "must be between 0 and 1"),
        ("gradientTensorTrackingMethod", 2, "tensors of your choice cannot be tracked"),
    ],
)
def test_settings_without_a_meaning(name, value, message):
    _, _, executor = made(**{name: value})
    with pytest.raises(ValueError, match=message):
        call(executor, 1.0)


@pytest.mark.spec("2.3 setAutomaticLossScaling")
def test_what_overflows_halves_the_scale():
    _, optimizer, executor = made(scale=32768.0)
    call(executor, 1000.0)
    assert factor_of(optimizer) == 0.5


@pytest.mark.spec("2.3 setAutomaticLossScaling")
def test_gradients_of_zero_do_not_lift_the_scale_without_end():
    _, _, executor = made(scale=2.0**22, model=Gradient(share=2.0**-20))
    assert [call(executor, 0.0)[0] for _ in range(4)] == [
        2.0**22,
        2.0**23,
        2.0**24,
        2.0**24,
    ]


@pytest.mark.spec("2.3 setAutomaticLossScaling")
def test_only_half_gradients_count(capfd):
    model, optimizer, executor = made(model=Gradient(torch.float32))
    assert call(executor, 1000.0, dtype=torch.float32) == [64]
    assert call(executor, 1000.0, dtype=torch.float32) == [64]
    assert "none of the gradients that are tracked is float16" in capfd.readouterr().err
    assert factor_of(optimizer) == 1
    assert model.w[0] == -2000


@pytest.mark.spec("2.3 setAutomaticLossScaling", "4.5 load_state_dict")
def test_the_state_is_saved_and_restored(tmp_path):
    model, optimizer, executor = made(updatePeriod=3)
    for _ in range(4):
        call(executor, 1.0)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c")
    later = [call(executor, 1.0)[0] for _ in range(4)]

    checkpoint = torch.load(tmp_path / "c")
    assert checkpoint["optimizer"]["ipu_state"]["lossScaleUpdateFactor"] == 2
    model, optimizer, executor = made(updatePeriod=3)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert [call(executor, 1.0)[0] for _ in range(4)] == later

    again = copy.deepcopy(optimizer)
    assert factor_of(again) == factor_of(optimizer)
    executor.detachFromDevice()
    before = factor_of(optimizer)
    executor.attachToDevice()
    assert factor_of(optimizer) == before


@pytest.mark.spec("2.3 setAutomaticLossScaling", "4.4 torch optimizers")
@pytest.mark.parametrize("package", [torch.optim, poptorch.optim])
def test_the_first_scale_is_variable(package):
    model = Gradient()
    options = poptorch.Options().showCompilationProgressBar(False)
    options.Training.setAutomaticLossScaling(True)
    options.anchorTensor("scale", "finalLossScale")
    optimizer = package.SGD(model.parameters(), lr=1.0)
    executor = poptorch.trainingModel(model, options, optimizer)
    assert call(executor, 1.0) == [1]
    optimizer.loss_scaling = 16.0
    executor.setOptimizer(optimizer)
    assert call(executor, 1.0) == [32]


@pytest.mark.spec("2.3 setAutomaticLossScaling")
def test_a_network_in_half_learns_with_an_automatic_scale():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

        def forward(self, x, y):
            out = self.layers(x)
            return out, nn.functional.cross_entropy(out, y)

    model = Net().half()
    options = poptorch.Options().showCompilationProgressBar(False)
    options.Training.setAutomaticLossScaling(True)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5)
    executor = poptorch.trainingModel(model, options, optimizer)
    x = torch.randn(24, 8).half()
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    losses = [executor(x, y)[1].item() for _ in range(40)]
    assert losses[-1] < 0.3 * losses[0]
    assert factor_of(optimizer) > 1
    assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("automatic", [False, True])
def test_the_log_tells_of_what_halves_cannot_hold(capfd, automatic, replicas):
    before = logging.getLogger("poptorch::python").level
    poptorch.setLogLevel("DEBUG")
    try:
        model = Gradient()
        options = poptorch.Options().showCompilationProgressBar(False)
        options.Training.setAutomaticLossScaling(automatic)
        optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, loss_scaling=64.0)
        executor = poptorch.trainingModel(model, options.replicationFactor(replicas), optimizer)
        executor(torch.tensor([[2000.0, 2.0**-24, 2.0**-23, 1.0]] * replicas).half())
    finally:
        poptorch.setLogLevel("WARN")
        logging.getLogger("poptorch::python").setLevel(before)
    text = capfd.readouterr().err
    assert f"{replicas} elements overflowed" in text and f"{2 * replicas} underflowed" in text
