"""Half precision: types as the interface promises them, numbers near float64's.

CPU PyTorch runs few of these programs itself: the referee is the same module in float64.
"""
import copy

import poptorch
import pytest
import torch
import torch.nn.functional as F
from torch import nn

HALF = 2.0**-10  # the distance of halves around one


def options():
    return poptorch.Options().showCompilationProgressBar(False)


def run(module, *inputs, training=False):
    if training:
        return poptorch.trainingModel(module, options())(*inputs)
    return poptorch.inferenceModel(module, options())(*inputs)


def close(result, expected, roundings=4):
    expected = expected.detach().double()
    allowed = roundings * HALF * expected.abs().max().clamp(min=1e-3)
    assert (result.double() - expected).abs().max() <= allowed


def in_double(module):
    twin = copy.deepcopy(module).double()
    return twin


class Function(nn.Module):
    def __init__(self, function, *parameters):
        super().__init__()
        self.function = function
        self.parts = nn.ParameterList(nn.Parameter(p) for p in parameters)

    def forward(self, *inputs):
        return self.function(*inputs, *self.parts)


LAYERS = {
    "Linear": (lambda: nn.Linear(6, 5), (4, 6)),
    "Linear of sequences": (lambda: nn.Linear(6, 5), (2, 4, 6)),
    "Linear without bias": (lambda: nn.Linear(6, 5, bias=False), (4, 6)),
    "Conv1d": (lambda: nn.Conv1d(3, 8, 3), (2, 3, 9)),
    "Conv2d": (lambda: nn.Conv2d(3, 8, 3, padding=1), (2, 3, 8, 8)),
    "Conv3d": (lambda: nn.Conv3d(2, 4, 2), (2, 2, 4, 4, 4)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 5, 5)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), (3, 4, 5, 5)),
    "LayerNorm": (lambda: nn.LayerNorm(6), (4, 6)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), (3, 4, 5, 5)),
}


@pytest.mark.spec("10.2 layers with weights")
@pytest.mark.parametrize("activation", [torch.half, torch.float])
@pytest.mark.parametrize("weights", [torch.half, torch.float])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_the_type_of_their_input(name, activation, weights):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make().to(weights)
    x = torch.randn(shape).to(activation)
    expected = in_double(layer)(x.double())
    result = run(layer, x)
    assert result.dtype == activation
    close(result, expected)


def loss_of(layer):
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            out = self.layer(x)
            return out, poptorch.identity_loss((out * out).float().mean(), "none")

    return WithLoss()


@pytest.mark.parametrize("activation", [torch.half, torch.float])
@pytest.mark.parametrize("weights", [torch.half, torch.float])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_learn(name, activation, weights):
    """A step of SGD: weights keep their type and go where float64 goes."""
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    model = loss_of(make().to(weights))
    x = torch.randn(shape).to(activation)
    twin = copy.deepcopy(model).double()
    out = twin.layer(x.double())
    (out * out).mean().backward()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    trained = poptorch.trainingModel(
        model, options(), poptorch.optim.SGD(model.parameters(), lr=1.0)
    )
    trained(x)
    trained.copyWeightsToHost()
    # A gradient that cancels to nothing is off by as much as its parts were rounded.
    largest = max(q.grad.abs().max() for q in twin.parameters())
    for (n, p), q in zip(model.named_parameters(), twin.parameters()):
        assert p.dtype == weights
        moved = before[n].double() - p.detach().double()
        size = max(largest, p.detach().double().abs().max() * (weights == torch.half))
        assert (moved - q.grad).abs().max() <= 8 * HALF * size + 1e-6, n


POINTWISE = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / (y.abs() + 1),
    "pow": lambda x, y: (x.abs() + 0.5) ** 1.5 + y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "maximum": torch.maximum,
    "cat": lambda x, y: torch.cat([x, y]),
    "matmul": lambda x, y: x @ y.t(),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "exp": lambda x, y: x.exp() + y.sigmoid(),
    "softmax": lambda x, y: torch.softmax(x * 2, -1) + y,
    "sum": lambda x, y: x.sum(0) + y.mean(0),
    "gelu": lambda x, y: F.gelu(x) * y,
}


@pytest.mark.spec("10.2 promotion")
@pytest.mark.parametrize("types", [(a, b) for a in "hf" for b in "hf"], ids="".join)
@pytest.mark.parametrize("name", POINTWISE)
def test_operands_are_promoted(name, types):
    if name in ("maximum",) and types[0] != types[1]:
        pytest.skip("PyTorch itself refuses it")
    torch.manual_seed(0)
    named = {"h": torch.half, "f": torch.float}
    x, y = (torch.randn(4, 6).to(named[t]) for t in types)
    result = run(Function(POINTWISE[name]), x, y)
    assert result.dtype == (torch.half if types == ("h", "h") else torch.float)
    close(result, POINTWISE[name](x.double(), y.double()))


def test_rounding_is_to_the_nearest_half_once_for_each_operator():
    x = torch.randn(1000).half()
    result = run(Function(lambda x: torch.sqrt(x.abs() * 3 + 0.1)), x)
    expected = x.abs()
    expected = (expected.float() * 3).half()
    expected = (expected.float() + torch.tensor(0.1).half().float()).half()  # a half as well
    expected = expected.float().sqrt().half()
    assert torch.equal(result, expected)


def test_halves_beyond_the_range():
    x = torch.tensor([60000.0, -60000.0, 6e-8, 1e-5, float("inf"), float("nan")]).half()
    result = run(Function(lambda x: x * 2), x)
    expected = (x.float() * 2).half()
    assert torch.equal(result.nan_to_num(7), expected.nan_to_num(7))
    assert torch.equal(run(Function(lambda x: x * 0.5), x[2:4]), (x[2:4].float() * 0.5).half())


def test_all_halves_pass_through_casts():
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).short()
    x = bits.view(torch.half)
    wide = run(Function(lambda x: x.float()), x)
    assert wide.dtype == torch.float
    finite = ~x.isnan()
    assert torch.equal(wide[finite], x.float()[finite]) and bool(wide[~finite].isnan().all())
    back = run(Function(lambda x: x.half()), wide)
    assert torch.equal(back.view(torch.int16)[finite], bits[finite])
    assert bool(back[~finite].isnan().all())


def test_constants_buffers_and_changes_in_place():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.full((4,), 0.1, dtype=torch.half))

        def forward(self, x, bytes_):
            y = x * torch.tensor([1, 2, 3, 4], dtype=torch.half) * self.scale
            y = y + torch.arange(4, dtype=torch.half) + torch.linspace(0, 1, 4).half()
            y[0] = 2
            z = torch.zeros(3, 4)
            z.copy_(y)
            y.copy_(z * 2)
            y.add_(1)
            return y, z, bytes_.half() / 255

    x, small = torch.randn(3, 4).half(), torch.randint(256, (3, 4), dtype=torch.uint8)
    y, z, unit = run(Mixed(), x, small)
    assert (y.dtype, z.dtype, unit.dtype) == (torch.half, torch.float, torch.half)
    close(unit, small.double() / 255, 1)
    close(y, z.double() * 2 + 1, 2)
    assert torch.equal(z[0], torch.full((4,), 2.0))


def test_a_model_in_half():
    """A network of many layers, forward and backward, entirely in half."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model
            self.loss = nn.CrossEntropyLoss()

        def forward(self, x, labels):
            out = self.model(x)
            return out, self.loss(out, labels)

    whole = WithLoss()
    twin = copy.deepcopy(whole).double()
    whole.half()
    x, labels = torch.randn(6, 1, 12, 12), torch.randint(5, (6,))
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    training = poptorch.trainingModel(
        whole, options(), poptorch.optim.SGD(whole.parameters(), lr=0.1, loss_scaling=64.0)
    )
    for _ in range(10):
        out, loss = training(x.half(), labels)
        optimizer.zero_grad()
        _, expected = twin(x.double(), labels)
        expected.backward()
        optimizer.step()
        assert out.dtype == torch.half and loss.dtype == torch.half
        assert abs(loss.item() - expected.item()) < 0.02 * expected.item()
    assert training.hostCalls() == []


def test_pytorchs_own_kernels_get_floats():
    x = torch.randn(4, 4).half()
    executor = poptorch.inferenceModel(Function(lambda x: torch.linalg.qr(x)[1].abs()), options())
    result = executor(x)
    assert result.dtype == torch.half and executor.hostCalls()
    close(result, torch.linalg.qr(x.double())[1].abs())


def test_bfloat16_is_computed_in_float():
    layer = nn.Linear(4, 3).to(torch.bfloat16)
    x = torch.randn(2, 4).to(torch.bfloat16)
    result = run(layer, x)
    assert result.dtype == torch.float
    torch.testing.assert_close(result, copy.deepcopy(layer).float()(x.float()))
