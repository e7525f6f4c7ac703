"""bfloat16 beside float32 and float16: programs take it for float32.

The referee is the same program with float32 where bfloat16 was: not a bit may differ, but where
PyTorch's own kernel runs in one of the two.
"""
import copy
import itertools

import poptorch
import pytest
import torch
import torch.nn.functional as F
from torch import nn

BF16, HALF, FLOAT = torch.bfloat16, torch.float16, torch.float32
TYPES = {"b": BF16, "h": HALF, "f": FLOAT}


def with_bfloat16(count):
    """All ways to give `count` tensors types, where one at least is bfloat16."""
    return ["".join(names) for names in itertools.product(TYPES, repeat=count) if "b" in names]


def types_of(names):
    return tuple(TYPES[name] for name in names)


def in_float(tensor):
    return tensor.float() if tensor.dtype == BF16 else tensor


def twin_of(module):
    return copy.deepcopy(module)._apply(in_float)


def options():
    return poptorch.Options().showCompilationProgressBar(False).randomSeed(3)


def leaves(results):
    return [results] if isinstance(results, torch.Tensor) else list(results)


def assert_same(ours, wanted, exact=True):
    ours, wanted = leaves(ours), leaves(wanted)
    assert [x.dtype for x in ours] == [x.dtype for x in wanted]
    assert all(x.dtype != BF16 for x in ours)
    for a, b in zip(ours, wanted):
        allowed = 0 if exact else 1e-6
        torch.testing.assert_close(a, b, rtol=allowed, atol=allowed)


def infers_as_float(module, *inputs):
    """Results of the program, after they were compared."""
    ours = poptorch.inferenceModel(module, options())(*inputs)
    wanted = poptorch.inferenceModel(twin_of(module), options())(*map(in_float, inputs))
    assert_same(ours, wanted)
    return ours


def learns_as_float(module, *inputs, steps=3, exact=True):
    def trained(model, inputs):
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        training = poptorch.trainingModel(model, options(), optimizer)
        results = [training(*inputs) for _ in range(steps)][-1]
        training.copyWeightsToHost()
        return results

    before = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    twin = twin_of(module)
    assert_same(trained(module, inputs), trained(twin, tuple(map(in_float, inputs))), exact)
    moved = False
    for (name, ours), wanted in zip(module.state_dict().items(), twin.state_dict().values()):
        assert ours.dtype == before[name].dtype
        allowed = 0 if exact else 2.0**-8
        torch.testing.assert_close(ours, wanted.to(ours.dtype), rtol=allowed, atol=allowed)
        moved = moved or not torch.equal(ours, before[name])
    assert moved or not list(module.parameters())


class Function(nn.Module):
    def __init__(self, function, *parameters):
        super().__init__()
        self.function = function
        self.parts = nn.ParameterList(nn.Parameter(p) for p in parameters)

    def forward(self, *inputs):
        return self.function(*inputs, *self.parts)


class WithLoss(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs):
        out = self.layer(*inputs)
        return out, poptorch.identity_loss((out * out).float().mean(), "none")


# ---- Layers ----

LAYERS = {
    "Linear": (lambda: nn.Linear(6, 5), (4, 6)),
    "Linear of sequences": (lambda: nn.Linear(6, 5, bias=False), (2, 4, 6)),
    "Conv1d": (lambda: nn.Conv1d(3, 8, 3), (2, 3, 9)),
    "Conv2d": (lambda: nn.Conv2d(3, 8, 3, padding=1), (2, 3, 8, 8)),
    "Conv3d": (lambda: nn.Conv3d(2, 4, 2), (2, 2, 4, 4, 4)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 5, 5)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(6), (4, 6)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), (3, 4, 5, 5)),
    "BatchNorm2d without weights": (lambda: nn.BatchNorm2d(4, affine=False), (3, 4, 5, 5)),
    "LayerNorm": (lambda: nn.LayerNorm(6), (4, 6)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), (3, 4, 5, 5)),
    "InstanceNorm2d with statistics": (
        lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        (3, 4, 5, 5),
    ),
    "PReLU": (lambda: nn.PReLU(6), (4, 6)),
}


# PyTorch 2 refuses these with operands of several types.
OF_ONE_TYPE = ("PReLU", "bilinear") if torch.__version__ >= "2" else ()


def skip_refused(name, types):
    if name in OF_ONE_TYPE and len(set(types)) > 1:
        pytest.skip("PyTorch wants one type")


def layer_of(name, dtype):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    return make().to(dtype), torch.randn(shape)


@pytest.mark.spec("10.2 bfloat16", "10.2 layers with weights")
@pytest.mark.parametrize("types", with_bfloat16(2))
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, training, types):
    skip_refused(name, types)
    activation, weights = types_of(types)
    layer, x = layer_of(name, weights)
    out = infers_as_float(layer.train(training), x.to(activation))
    if name != "PReLU":  # an operator like others, by promotion
        assert out.dtype == (HALF if activation == HALF else FLOAT)


@pytest.mark.spec("10.2 bfloat16", "10.2 layers with weights")
@pytest.mark.parametrize("types", with_bfloat16(2))
@pytest.mark.parametrize("name", LAYERS)
def test_layers_learn(name, types):
    skip_refused(name, types)
    activation, weights = types_of(types)
    layer, x = layer_of(name, weights)
    if not list(layer.parameters()):
        pytest.skip("it has nothing to learn")
    learns_as_float(WithLoss(layer), x.to(activation))


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("types", with_bfloat16(3))
def test_statistics_of_another_type_than_weights(types):
    activation, weights, statistics = types_of(types)
    layer, x = layer_of("BatchNorm2d", weights)
    layer.running_mean = layer.running_mean.to(statistics)
    layer.running_var = layer.running_var.to(statistics)
    infers_as_float(copy.deepcopy(layer).eval(), x.to(activation))
    learns_as_float(WithLoss(layer), x.to(activation))


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(name):
    torch.manual_seed(0)
    layer = getattr(nn, name)(4, 5).to(BF16)

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            out = self.layer(x)[0]
            return out, poptorch.identity_loss(out.square().mean(), "none")

    learns_as_float(Last(), torch.randn(6, 2, 4).to(BF16))


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("types", with_bfloat16(2))
def test_attention(types, training):
    activation, weights = types_of(types)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    layer = layer.to(weights).train(training)
    infers_as_float(layer, torch.randn(2, 5, 8).to(activation))


# ---- Embeddings ----


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("types", with_bfloat16(2))
def test_embeddings(types):
    words, places = types_of(types)

    class Embeddings(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(11, 8).to(words)
            self.places = nn.Embedding(5, 8).to(places)
            self.norm = nn.LayerNorm(8).to(places)
            self.out = nn.Linear(8, 11).to(words)
            self.out.weight = self.words.weight  # tied

        def forward(self, tokens):
            x = self.norm(self.words(tokens) + self.places(torch.arange(5)))
            out = self.out(x)
            return out, F.cross_entropy(out.flatten(0, 1), tokens.flatten())

    torch.manual_seed(0)
    tokens = torch.randint(11, (3, 5))
    infers_as_float(Embeddings(), tokens)
    learns_as_float(Embeddings(), tokens)


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("types", with_bfloat16(2))
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode, types):
    weights, per_sample = types_of(types)
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(11, 8, mode=mode).to(weights)
    bags = torch.randint(11, (3, 4))
    if mode == "sum":  # which alone takes weights of samples
        inputs = bags, torch.rand(3, 4).to(per_sample)
        infers_as_float(Function(lambda x, w: bag(x, per_sample_weights=w)), *inputs)
    else:
        infers_as_float(bag, bags)


# ---- Losses ----

LOSSES = {
    "mse": (F.mse_loss, None),
    "l1": (F.l1_loss, None),
    "smooth l1": (F.smooth_l1_loss, None),
    "huber": (F.huber_loss, None),
    "kl_div": (
        lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        None,
    ),
    "binary cross entropy": (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), None),
    "of logits": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), None),
    "cross entropy": (F.cross_entropy, torch.tensor([0, 1, 2, 0])),
    "with probabilities": (lambda x, y: F.cross_entropy(x, y.softmax(-1)), None),
    "negative likelihood": (
        lambda x, y: F.nll_loss(x.log_softmax(-1), y),
        torch.tensor([0, 2] * 2),
    ),
    "poisson": (lambda x, y: F.poisson_nll_loss(x, y.abs()), None),
    "gaussian": (lambda x, y: F.gaussian_nll_loss(x, y, y.abs() + 1), None),
    "margin": (F.soft_margin_loss, None),
    "cosine": (lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(4)), None),
    "triplet": (lambda x, y: F.triplet_margin_loss(x, y, y + 1), None),
}


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("types", with_bfloat16(2))
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, types):
    scores, targets = types_of(types)
    loss, labels = LOSSES[name]
    torch.manual_seed(0)
    x, y = torch.randn(4, 3).to(scores), torch.randn(4, 3).to(targets)
    y = labels if labels is not None else y
    if labels is not None and scores != BF16:
        pytest.skip("labels have no such type")
    exact = name not in ("of logits", "margin")
    learns_as_float(Function(lambda y, x: (x * 1, loss(x, y)), x), y, steps=2, exact=exact)


# ---- Operators ----

OPERATORS = {
    "add": lambda x, y: x + 0.1 * y,
    "div": lambda x, y: x / (y.abs() + 1),
    "pow": lambda x, y: (x.abs() + 0.5) ** y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "matmul": lambda x, y: x @ y.t(),
    "baddbmm": lambda x, y: torch.baddbmm(x[None, :, :4], x[None], y.t()[None]),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "bilinear": lambda x, y: F.bilinear(x, y, torch.ones(2, 6, 6, dtype=y.dtype)),
    "softmax": lambda x, y: torch.softmax(x * 2, -1) + y,
    "sum": lambda x, y: x.sum(0) + y.mean(0),
    "lerp": lambda x, y: torch.lerp(x, y.to(x.dtype), 0.3),
    "index_add": lambda x, y: x.index_add(0, torch.tensor([1, 0]), y[:2].to(x.dtype)),
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y[:2], 0, 1, 3, 1),
    "sort": lambda x, y: torch.sort(x + y).values,
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.1),
    "clamp": lambda x, y: x.clamp(-0.3, 0.7) - y.clamp(max=0.1),
    "norm": lambda x, y: torch.linalg.vector_norm(x, dim=-1) + y.norm(),
    "cdist": lambda x, y: torch.cdist(x.float(), y.float()),
    "pytorch's own": lambda x, y: torch.linalg.qr(x).R.abs() + torch.special.bessel_j0(y)[:, :1],
    "dtype by name": lambda x, y: x.to(BF16) + y.sum(dtype=BF16),
    "new tensors": lambda x, y: x.new_full((4, 6), 0.5) * torch.ones_like(y) + torch.zeros(6),
    "constants": lambda x, y: x * (torch.arange(6, dtype=BF16) / 7) + y * torch.ones(6).half(),
    "values of constants": lambda x, y: x * torch.full((), 0.5, dtype=BF16).item() + y,
}


@pytest.mark.spec("10.2 bfloat16", "10.2 promotion")
@pytest.mark.parametrize("types", with_bfloat16(2))
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name, types):
    skip_refused(name, types)
    torch.manual_seed(0)
    x, y = (torch.randn(4, 6).to(dtype) for dtype in types_of(types))
    infers_as_float(Function(OPERATORS[name]), x, y)


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("types", with_bfloat16(2))
@pytest.mark.parametrize("name", ["add", "pow", "cat", "matmul", "softmax", "norm", "addcmul"])
def test_gradients_of_operators(name, types):
    torch.manual_seed(0)
    x, y = (torch.randn(4, 6).to(dtype) for dtype in types_of(types))

    def with_loss(x, y):
        out = OPERATORS[name](x, y)
        return out, poptorch.identity_loss(out.square().mean(), "none")

    learns_as_float(Function(with_loss, x, y))


# ---- Changes in place, and buffers ----


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("types", with_bfloat16(3))
def test_changes_in_place(types):
    own, other, third = types_of(types)

    def changed(x, y, z):
        x = x.clone()
        x[0] = y[1]
        x[:, 1:3] += z[:, 1:3]
        x.mul_(y).add_(z, alpha=0.3)
        taken = torch.zeros(4, 6, dtype=own)
        taken.copy_(y)
        taken[2:].copy_(z[2:] * 1.001)
        taken.index_put_((torch.tensor([0]),), x[1])
        filled = torch.empty_like(z).fill_(0.25).masked_fill_(x > 0, 0.3)
        return x, taken, filled, torch.add(x, y, out=torch.empty(4, 6))

    torch.manual_seed(0)
    infers_as_float(Function(changed), *(torch.randn(4, 6).to(t) for t in (own, other, third)))


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("types", with_bfloat16(2))
def test_buffers(types):
    held, given = types_of(types)

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.full((6,), 0.1).to(held))
            self.register_buffer("last", torch.zeros(4, 6).to(held))
            self.register_buffer("scale", torch.full((6,), 0.3).to(held))

        def forward(self, x):
            self.mean.mul_(0.9).add_(x.mean(0) * 0.1)
            self.last.copy_(x)
            return (x - self.mean) * self.scale + self.last

    torch.manual_seed(0)
    model = Mean()
    twin = twin_of(model)
    x = torch.randn(4, 6).to(given)
    ours = poptorch.inferenceModel(model, options())
    wanted = poptorch.inferenceModel(twin, options())
    for _ in range(3):
        assert_same(ours(x), wanted(in_float(x)))
    ours.copyWeightsToHost()
    wanted.copyWeightsToHost()
    for a, b in zip(model.buffers(), twin.buffers()):
        assert a.dtype == held and torch.equal(a, b.to(held))


# ---- Whole models ----


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 36, 3)

    def forward(self, x, labels):
        x = torch.relu(self.norm(self.conv(x)))
        out = self.fc(x.flatten(1))
        return out, F.cross_entropy(out, labels)


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("types", with_bfloat16(2))
def test_a_model(types):
    activation, weights = types_of(types)
    torch.manual_seed(0)
    model, x = Net().to(weights), torch.randn(4, 1, 8, 8).to(activation)
    learns_as_float(model, x, torch.tensor([0, 1, 2, 0]), steps=5)


@pytest.mark.spec("10.2 bfloat16")
@pytest.mark.parametrize("types", with_bfloat16(3))
def test_a_model_of_layers_of_several_types(types):
    torch.manual_seed(0)
    model, x = Net(), torch.randn(4, 1, 8, 8)
    for layer, dtype in zip((model.conv, model.norm, model.fc), types_of(types)):
        layer.to(dtype)
    for dtype in TYPES.values():
        learns_as_float(copy.deepcopy(model), x.to(dtype), torch.tensor([0, 1, 2, 0]))


@pytest.mark.spec("10.2 bfloat16")
def test_accumulation_and_device_iterations():
    torch.manual_seed(0)
    model = Net().to(BF16)
    twin = twin_of(model)
    x, labels = torch.randn(16, 1, 8, 8).to(BF16), torch.arange(16) % 3

    def losses(model, x):
        opts = options().deviceIterations(2).outputMode(poptorch.OutputMode.All)
        opts.Training.gradientAccumulation(2)
        optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.01)
        training = poptorch.trainingModel(model, opts, optimizer)
        return torch.stack([training(x, labels)[1] for _ in range(3)])

    assert_same(losses(model, x), losses(twin, x.float()))
