"""Half precision as programs use it: by casting, with float32 weights, rounded by chance."""
import os
import subprocess
import sys

import poptorch
import pytest
import torch
from torch import nn

LABELS = torch.tensor([0, 1, 2, 0])
STEP = 2.0**-10  # from one to the next half


def options(stochastic=False, seed=7):
    opts = poptorch.Options().showCompilationProgressBar(False).randomSeed(seed)
    opts.Precision.enableStochasticRounding(stochastic)
    return opts


def images(dtype, seed=0):
    return torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 36, 3)

    def forward(self, x, labels):
        x = torch.relu(self.norm(self.conv(x)))
        out = self.fc(x.flatten(1))
        return out, nn.functional.cross_entropy(out, labels)


def net(seed=0):
    torch.manual_seed(seed)
    return Net()


def trained(model, x, steps=20, opts=None):
    """The losses of some updates."""
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, loss_scaling=128.0)
    training = poptorch.trainingModel(model, opts or options(), optimizer)
    losses = [training(x, LABELS)[1].item() for _ in range(steps)]
    training.copyWeightsToHost()
    return losses


def types(module):
    return {name: tensor.dtype for name, tensor in module.state_dict().items()}


# ---- By casting ----


@pytest.mark.spec("11 half by casting", "11 training recipe")
@pytest.mark.parametrize("stochastic", [False, True])
def test_a_whole_model(stochastic):
    expected = trained(net(), images(torch.float))
    model = net().half()
    before = types(model)
    losses = trained(model, images(torch.half), opts=options(stochastic))
    assert types(model) == before and model.fc.weight.dtype == torch.half
    assert losses[-1] < 0.2 * losses[0]
    assert losses[-1] == pytest.approx(expected[-1], rel=0.1, abs=0.01)


@pytest.mark.spec("11 half by casting", "10.2 layers with weights")
def test_a_single_layer():
    model = net()
    model.conv = model.conv.half()
    seen = []
    model.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    out, loss = poptorch.inferenceModel(model, options())(images(torch.float), LABELS)
    assert seen == [torch.float]  # a layer has the type of its input
    assert out.dtype == loss.dtype == torch.float
    losses = trained(model, images(torch.float))
    assert losses[-1] < 0.2 * losses[0] and model.conv.weight.dtype == torch.half


@pytest.mark.spec("11 half by casting")
def test_a_tensor_within_forward():
    class Middle(nn.Module):
        def forward(self, x, bytes_):
            y = x.half() * 3
            return y, y.float(), y.to(torch.float) + x, (bytes_.half() / 255).type_as(x)

    x, bytes_ = torch.randn(5), torch.randint(256, (5,), dtype=torch.uint8)
    y, wide, sum_, scaled = poptorch.inferenceModel(Middle(), options())(x, bytes_)
    expected = (x.half().float() * 3).half()
    assert torch.equal(y, expected) and y.dtype == torch.half
    assert torch.equal(wide, expected.float()) and torch.equal(sum_, expected.float() + x)
    assert scaled.dtype == torch.float
    assert (scaled - bytes_ / 255).abs().max() < STEP


@pytest.mark.spec("11 master weights", "10.2 layers with weights")
def test_float32_weights_under_half_activations():
    model = net()
    before = model.fc.weight.detach().clone()
    seen = []
    model.fc.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    losses = trained(model, images(torch.half))
    assert torch.half in seen and torch.float not in seen
    assert losses[-1] < 0.2 * losses[0]
    moved = model.fc.weight.detach() - before
    assert model.fc.weight.dtype == torch.float
    # Updated in float32: most weights are no halves any more.
    assert (model.fc.weight != model.fc.weight.half().float()).float().mean() > 0.9
    assert moved.abs().min() < 1e-4


@pytest.mark.spec("11 running statistics in float")
def test_statistics_that_were_made_float_again():
    model = net().half()
    model.norm.running_mean = model.norm.running_mean.float()
    model.norm.running_var = model.norm.running_var.float()
    twin = net()
    trained(model, images(torch.half), steps=3)
    trained(twin, images(torch.half).float(), steps=3)
    for name in ("running_mean", "running_var"):
        ours, wanted = getattr(model.norm, name), getattr(twin.norm, name)
        assert ours.dtype == torch.float
        assert (ours != ours.half().float()).any()  # never rounded to half
        torch.testing.assert_close(ours, wanted, rtol=0.02, atol=0.002)
    out = poptorch.inferenceModel(model.eval(), options())(images(torch.half), LABELS)[0]
    assert out.dtype == torch.half


@pytest.mark.spec("11 partials")
@pytest.mark.parametrize("dtype", [torch.float, torch.half])
def test_sums_of_products_do_not_stop_growing(dtype):
    """4096 is where a sum of ones in half would stand still at 2048."""
    opts = options()
    opts.Precision.setPartialsType(dtype)
    layer = nn.Linear(4096, 1, bias=False).half()
    nn.init.ones_(layer.weight)
    assert poptorch.inferenceModel(layer, opts)(torch.ones(1, 4096).half()).item() == 4096


# ---- Rounded by chance ----


class Adds(nn.Module):
    def forward(self, x):
        return x + 0.25 * STEP


@pytest.mark.spec("11 stochastic rounding", "2.4 enableStochasticRounding")
@pytest.mark.parametrize("by_name", [False, True])
def test_results_are_right_in_the_mean(by_name):
    x = torch.ones(40000).half()
    assert poptorch.inferenceModel(Adds(), options())(x).eq(1).all()  # off by default
    opts = options(not by_name)
    if by_name:
        opts.Popart.set("enableStochasticRounding", True)
    result = poptorch.inferenceModel(Adds(), opts)(x).float()
    assert sorted(result.unique().tolist()) == [1, 1 + STEP]
    assert (result - 1).mean().item() / STEP == pytest.approx(0.25, abs=0.01)


@pytest.mark.spec("11 stochastic rounding")
def test_float32_is_not_rounded_by_chance():
    x = torch.ones(1000)
    assert poptorch.inferenceModel(Adds(), options(True))(x).eq(1 + 0.25 * STEP).all()


REPRODUCED = """
import sys
sys.path.insert(0, sys.argv[1])
from half_programs_test import *
model = net().half()
losses = trained(model, images(torch.half), steps=5, opts=options(True, seed=int(sys.argv[2])))
print(losses, [p.double().sum().item() for p in model.parameters()])
"""


def reproduced(seed=7, **environment):
    command = [sys.executable, "-B", "-c", REPRODUCED, os.path.dirname(__file__), str(seed)]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.spec("11 stochastic rounding", "12 randomSeed")
def test_seed_and_step_decide_and_nothing_else():
    once = reproduced(TESSERA_NUM_THREADS="1")
    assert reproduced(TESSERA_NUM_THREADS="2") == once
    assert reproduced(TESSERA_DISABLE_PASSES="fuse_elementwise,fuse_updates") == once
    assert reproduced(seed=8) != once


@pytest.mark.spec("11 stochastic rounding")
def test_every_step_draws_anew():
    executor = poptorch.inferenceModel(Adds(), options(True))
    x = torch.ones(1000).half()
    assert not torch.equal(executor(x), executor(x))


class Target(nn.Module):
    """Weights that should become a target, each pulled by the same force."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1000))

    def forward(self, target):
        return nn.functional.l1_loss(self.weight, target, reduction="sum")


@pytest.mark.spec("11 stochastic rounding", "11 training recipe")
def test_many_small_updates_arrive():
    """Steps of a tenth of a half: to nearest, weights never leave; by chance, the mean arrives."""
    reached = {}
    for stochastic in (False, True):
        model = Target().half()
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1 * STEP)
        training = poptorch.trainingModel(model, options(stochastic), optimizer)
        for _ in range(200):
            training(torch.full((1000,), 2.0).half())
        training.copyWeightsToHost()
        reached[stochastic] = model.weight.detach().float().mean().item()
    assert reached[False] == 1
    assert reached[True] == pytest.approx(1 + 20 * STEP, abs=STEP / 2)


# ---- Random numbers ----


class Draws(nn.Module):
    def forward(self, x):
        unit = torch.rand(x.shape, dtype=torch.half)
        return unit, torch.rand_like(x), torch.empty_like(x).uniform_(-3, 0.1)


@pytest.mark.parametrize("stochastic", [False, True])
def test_random_numbers_stay_below_the_end_of_their_range(monkeypatch, stochastic):
    """Of the floats below 1, one in 4096 has 1 for its nearest half."""
    runs = []
    for threads in (1, 2, 3):
        monkeypatch.setenv("TESSERA_NUM_THREADS", str(threads))
        executor = poptorch.inferenceModel(Draws(), options(stochastic))
        runs.append([executor(torch.zeros(1 << 18).half()) for _ in range(4)])
    for unit, like, wide in runs[0]:
        for drawn, least, end in ((unit, 0, 1), (like, 0, 1), (wide, -3, 0.1)):
            assert drawn.dtype == torch.half and least <= drawn.min()
            assert drawn.max() < torch.tensor(end).half()
            assert drawn.float().mean().item() == pytest.approx((least + end) / 2, abs=0.01)
        assert unit.max() == like.max() == 1 - STEP / 2
    for other in runs[1:]:
        for ours, wanted in zip(other, runs[0]):
            assert all(map(torch.equal, ours, wanted))


# ---- Exceptions ----


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


EXCEPTIONS = {
    "overflow": (lambda x: x * x, 300.0, "mul, rounded to float16, made an infinite value"),
    "of a cast": (lambda x: (x.float() * 300).half(), 300.0, "made an infinite value"),
    "division by zero": (lambda x: 1 / (x - x), 1.0, "reciprocal made an infinite value|div made"),
    "invalid": (lambda x: torch.sqrt(-x), 1.0, "sqrt made a NaN"),
    "in the middle": (lambda x: torch.sigmoid(x * x), 300.0, "mul, rounded to float16, made"),
}


@pytest.mark.spec("2.4 enableFloatingPointExceptions")
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("case", EXCEPTIONS)
def test_exceptions(case, stochastic):
    function, value, words = EXCEPTIONS[case]
    opts = options(stochastic)
    opts.Precision.enableFloatingPointExceptions(True)
    executor = poptorch.inferenceModel(Function(function), opts)
    with pytest.raises(poptorch.Error, match=f"floating point exception: .*({words})") as raised:
        executor(torch.full((4,), value).half())
    assert "half_programs_test.py" in str(raised.value)


@pytest.mark.spec("2.4 enableFloatingPointExceptions")
def test_infinities_that_come_in_are_no_exception():
    opts = options()
    opts.Precision.enableFloatingPointExceptions(True)
    x = torch.tensor([float("inf"), 1.0]).half()
    executor = poptorch.inferenceModel(Function(lambda x: torch.relu(x) * 2), opts)
    assert torch.equal(executor(x), x * 2)


# ---- bfloat16 ----


@pytest.mark.spec("10.2 bfloat16")
def test_training_in_bfloat16_computes_in_float():
    model, twin = net().to(torch.bfloat16), net().to(torch.bfloat16).float()
    x = images(torch.bfloat16)
    losses, expected = trained(model, x), trained(twin, x.float())
    assert losses == expected
    assert set(types(model).values()) == {torch.bfloat16, torch.int64}
    for ours, wanted in zip(model.parameters(), twin.parameters()):
        assert torch.equal(ours, wanted.to(torch.bfloat16))


@pytest.mark.spec("10.2 bfloat16")
def test_bfloat16_models_warn_once():
    code = (
        "import torch, poptorch\n"
        "quiet = poptorch.Options().showCompilationProgressBar(False)\n"
        "for _ in range(2):\n"
        "    layer = torch.nn.Linear(4, 3).to(torch.bfloat16)\n"
        "    e = poptorch.inferenceModel(layer, quiet)\n"
        "    print(e(torch.ones(2, 4).to(torch.bfloat16)).dtype)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "torch.float32\n" * 2
    (line,) = done.stderr.splitlines()
    assert "is bfloat16" in line and "converted to float32, and results are float32" in line
