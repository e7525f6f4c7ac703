"""Every operator that PopTorch documents, by name: results and gradients are eager PyTorch's."""
import copy

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from poptorch.testing import allclose

QUIET = poptorch.Options().showCompilationProgressBar(False)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def uniform(*shape, low=0.1, high=0.9, seed=0):
    drawn = torch.rand(*shape, generator=torch.Generator().manual_seed(seed))
    return low + (high - low) * drawn


def integers(high, *shape, seed=0):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def floats_of(outputs):
    """The outputs that have a gradient, from whatever structure they are in."""
    if isinstance(outputs, torch.Tensor):
        return [outputs] if outputs.is_floating_point() else []
    return [tensor for item in outputs for tensor in floats_of(item)]


class Forward(nn.Module):
    """The operator alone. A module's parameters are its own; a function has none."""

    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, *tensors):
        return self.operator(*tensors)


class Trained(nn.Module):
    """The operator with floats as parameters, and a loss in which every output counts."""

    def __init__(self, operator, tensors):
        super().__init__()
        self.operator = operator
        self.floats = nn.ParameterList(
            nn.Parameter(t.clone()) for t in tensors if t.is_floating_point()
        )
        self.is_float = [t.is_floating_point() for t in tensors]
        with torch.no_grad():
            outputs = floats_of(copy.deepcopy(operator)(*(t.clone() for t in tensors)))
        for i, output in enumerate(outputs):
            weight = torch.linspace(0.5, 1.5, output.numel()).reshape(output.shape)
            self.register_buffer(f"weight{i}", weight)

    def forward(self, *others):
        floats, rest = iter(self.floats), iter(others)
        tensors = [next(floats) if is_float else next(rest) for is_float in self.is_float]
        # Some operators write to their inputs, and PyTorch forbids that for parameters.
        outputs = floats_of(
            self.operator(*(t + 0 if t.is_floating_point() else t for t in tensors))
        )
        loss = sum((out * getattr(self, f"weight{i}")).sum() for i, out in enumerate(outputs))
        return poptorch.identity_loss(loss, reduction="none")


def check_results(operator, tensors, rtol=1e-4, atol=1e-5):
    expected = copy.deepcopy(operator)(*(t.clone() for t in tensors))
    result = poptorch.inferenceModel(Forward(operator), QUIET.clone())(*tensors)
    assert allclose(expected, result, rtol=rtol, atol=atol), f"{expected}\n{result}"


def check_gradients(operator, tensors, rtol=1e-3, atol=1e-4):
    model = Trained(operator, tensors)
    others = [t for t in tensors if not t.is_floating_point()]
    eager = copy.deepcopy(model)
    eager(*others).backward()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    executor = poptorch.trainingModel(model, QUIET.clone(), optimizer)
    # A call needs an input of its own even where the operator has only parameters.
    executor(*others)
    executor.destroy()
    expected = {
        name: torch.zeros_like(value) if value.grad is None else value.grad
        for name, value in eager.named_parameters()
    }
    result = {name: before[name] - value.detach() for name, value in model.named_parameters()}
    assert allclose(expected, result, rtol=rtol, atol=atol), f"{expected}\n{result}"


def case(name, operator, *tensors, grad=True):
    return pytest.param(operator, tensors, grad, id=name)


def same(name, *tensors, grad=True, **arguments):
    """The function of this name in torch, with these tensors."""
    function = getattr(torch, name)
    return case(name, lambda *t: function(*t, **arguments), *tensors, grad=grad)


X = randn(3, 4)
Y = randn(3, 4, seed=1)
POSITIVE = uniform(3, 4)
BITS = integers(100, 3, 4).int()
MORE_BITS = integers(100, 3, 4, seed=1).int()
TRUTH = integers(2, 3, 4).bool()
INDEX = torch.tensor([0, 2, 1, 2])
ROWS = integers(3, 3, 4)

CREATION = [
    case("arange", lambda x: torch.arange(4) * x, X),
    case("fill", lambda x: torch.fill(x, 2.5) + x, X),
    case("fill_", lambda x: (x + 0).fill_(1.5) + x, X),
    case("full", lambda x: torch.full((3, 4), 2.5) * x, X),
    case("full_like", lambda x: torch.full_like(x, 2.5) * x, X),
    case("new_ones", lambda x: x.new_ones(3, 4) * x, X),
    case("new_zeros", lambda x: x.new_zeros(3, 4) + x, X),
    case("ones", lambda x: torch.ones(3, 4) * x, X),
    case("ones_like", lambda x: torch.ones_like(x) * x, X),
    case("zeros", lambda x: torch.zeros(3, 4) + x, X),
    case("zeros_like", lambda x: torch.zeros_like(x) + x, X),
]

INDEX_AND_SHAPE = [
    case("bincount", lambda i: torch.bincount(i, minlength=5), integers(5, 20), grad=False),
    same("bucketize", X, boundaries=torch.tensor([-1.0, 0.0, 1.0]), grad=False),
    case("cat", lambda x, y: torch.cat([x, y], 1), X, Y),
    case("chunk", lambda x: torch.chunk(x, 2, 1), X),
    case("gather", lambda x, i: torch.gather(x, 0, i), X, ROWS),
    case("index_select", lambda x, i: torch.index_select(x, 1, i), X, INDEX),
    case(
        "index_reduce",
        lambda x, i, y: (x + 0).index_reduce_(0, i, y, "prod"),
        X,
        torch.tensor([0, 2]),
        randn(2, 4, seed=3),
    ),
    case("reshape", lambda x: x.reshape(2, 6), X),
    case("roll", lambda x: torch.roll(x, (1, -2), (0, 1)), X),
    case("scatter", lambda x, i, y: torch.scatter(x, 0, i, y), X, integers(3, 1, 4), randn(1, 4)),
    case("scatter_add", lambda x, i, y: torch.scatter_add(x, 0, i, y), X, ROWS, Y),
    case("scatter_reduce", lambda x, i, y: x.scatter_reduce(0, i, y, "amax"), X, ROWS, Y),
    case("stack", lambda x, y: torch.stack([x, y], 1), X, Y),
    case("split", lambda x: torch.split(x, [1, 3], 1), X),
    case("squeeze", lambda x: x.squeeze(1), randn(3, 1, 4)),
    same("t", X),
    case("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 0), X, ROWS),
    case("transpose", lambda x: x.transpose(0, 1), X),
    case("unbind", lambda x: torch.unbind(x, 1), X),
    case("unsqueeze", lambda x: x.unsqueeze(1), X),
    case("where", lambda c, x, y: torch.where(c, x, y), TRUTH, X, Y),
    case("expand", lambda x: x.expand(5, 3, 4), X),
    case("expand_as", lambda x, y: x.expand_as(y) * y, randn(1, 4), Y),
    case("masked_fill", lambda x, m: x.masked_fill(m, 2.0), X, TRUTH),
    case("index_fill_", lambda x, i: (x + 0).index_fill_(0, i, 2.0), X, torch.tensor([0, 2])),
    case("slice", lambda x: x[1:, 1:3], X),
    case("slice_with_step", lambda x: x[:, ::2], X),
    case("slice_assignment", lambda x, y: _with_slice(x, y), X, randn(3, 2)),
]


def _with_slice(x, y):
    x = x + 0
    x[:, 1:3] = y
    return x


def unary(*names, values=X, grad=True):
    return [same(name, values, grad=grad) for name in names]


def binary(*names, values=(X, Y), grad=True):
    return [same(name, *values, grad=grad) for name in names]


POINTWISE = [
    *unary("abs", "atan", "asinh", "ceil", "cos", "cosh", "exp", "expm1", "floor", "frac", "neg"),
    *unary("round", "sigmoid", "sign", "sin", "sinh", "square", "tan", "tanh", "trunc"),
    *unary("acos", "asin", "atanh", values=uniform(3, 4, low=-0.9)),
    *unary("acosh", values=uniform(3, 4, low=1.1, high=3.0)),
    *unary("log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt", values=POSITIVE),
    *unary("bitwise_not", values=BITS, grad=False),
    *binary("bitwise_and", "bitwise_or", "bitwise_xor", values=(BITS, MORE_BITS), grad=False),
    *binary("add", "mul", "sub"),
    *binary("div", "true_divide", values=(X, POSITIVE)),
    *binary("floor_divide", "fmod", "remainder", values=(X, POSITIVE), grad=False),
    *binary("logical_and", "logical_or", values=(TRUTH, TRUTH.flip(0)), grad=False),
    case("fmod_gradient", lambda x: torch.fmod(x, 0.7), X),
    case("remainder_gradient", lambda x: torch.remainder(x, 0.7), X),
    same("addcdiv", X, Y, POSITIVE, value=0.5),
    same("amax", X, dim=1),
    same("amin", X, dim=1),
    case("cdist", lambda x, y: torch.cdist(x, y), randn(2, 3, 4), randn(2, 5, 4, seed=1)),
    same("clamp", X, min=-0.5, max=0.5),
    same("clamp_max", X, max=0.5),
    same("clamp_min", X, min=-0.5),
    case("norm", lambda x: torch.norm(x, dim=1), X),
    case("pow", lambda x: torch.pow(x, 3), X),
    case("pow_of_tensors", lambda x, y: torch.pow(x, y), POSITIVE, Y),
]

REDUCTION = [
    same("all", TRUTH, dim=1, grad=False),
    same("any", TRUTH, dim=1, grad=False),
    same("argmax", X, dim=1, grad=False),
    same("argmin", X, dim=1, grad=False),
    same("count_nonzero", BITS, dim=1, grad=False),
    same("mean", X, dim=1),
    same("median", X, dim=1),
    same("prod", X, dim=1),
    same("logsumexp", X, dim=1),
    same("std", X, dim=1),
    same("std_mean", X, dim=1),
    same("sum", X, dim=1),
    same("var", X, dim=1),
    same("var_mean", X, dim=1),
    case("mean_of_all", lambda x: x.mean(), X),
    case("sum_of_all", lambda x: x.sum(), X),
]

COMPARE = [
    *binary("eq", "ge", "gt", "le", "lt", "ne", values=(BITS, MORE_BITS), grad=False),
    *binary("max", "min"),
    case("max_of_dimension", lambda x: tuple(torch.max(x, 1)), X),
    case("min_of_dimension", lambda x: tuple(torch.min(x, 1)), X),
    case("isnan", lambda x: torch.isnan(x / (x - x[0, 0])), X, grad=False),
    case("topk", lambda x: tuple(torch.topk(x, 2, sorted=True)), X),
    case("argsort", lambda x: torch.argsort(x, 1), X, grad=False),
    case("sort", lambda x: tuple(torch.sort(x, 1)), X),
]

LINALG = [
    case("linalg.norm", lambda x: torch.linalg.norm(x), X),
    case("linalg.matrix_norm", lambda x: torch.linalg.matrix_norm(x, 1), X),
    case("linalg.matrix_norm_fro", lambda x: torch.linalg.matrix_norm(x), X),
    case("linalg.vector_norm", lambda x: torch.linalg.vector_norm(x, 3, dim=1), X),
    case("cumsum", lambda x: torch.cumsum(x, 1), X),
    case("cumprod", lambda x: torch.cumprod(x, 1), X),
    case("cross", lambda x, y: torch.cross(x, y, dim=1), randn(4, 3), randn(4, 3, seed=1)),
    case("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), randn(3), randn(4)),
    case("cartesian_prod", lambda x, y: torch.cartesian_prod(x, y), randn(3), randn(4)),
    case("tensordot", lambda x, y: torch.tensordot(x, y, dims=([1], [1])), X, Y),
    case("addmm", lambda b, x, y: torch.addmm(b, x, y), randn(3, 3), X, randn(4, 3)),
    case("matmul", lambda x, y: torch.matmul(x, y), randn(2, 3, 4), randn(4, 5)),
    case("bmm", lambda x, y: torch.bmm(x, y), randn(2, 3, 4), randn(2, 4, 5)),
]


def layer(name, *arguments, x, functional=None, **options):
    """A module of torch.nn, its parameters drawn the same way each time."""
    torch.manual_seed(3)
    return case(name, getattr(nn, name)(*arguments, **options).train(), x)


IMAGES = {1: randn(2, 4, 6), 2: randn(2, 4, 6, 6), 3: randn(2, 4, 6, 6, 6)}


def for_dimensions(pattern, *arguments, dimensions=(1, 2, 3), **options):
    return [layer(pattern % d, *arguments, x=IMAGES[d], **options) for d in dimensions]


class First(nn.Module):
    """A recurrent layer without its last states."""

    def __init__(self, recurrent):
        super().__init__()
        self.recurrent = recurrent

    def forward(self, x):
        return self.recurrent(x)[0]


class WeightNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.utils.weight_norm(nn.Linear(4, 3))

    def forward(self, x):
        return self.layer(x)


def recurrent(name, **options):
    torch.manual_seed(3)
    return case(name, First(getattr(nn, name)(4, 5, **options)), randn(6, 2, 4))


NN = [
    *for_dimensions("Conv%dd", 4, 5, 3, padding=1),
    *for_dimensions("ConvTranspose%dd", 4, 5, 3, stride=2),
    *for_dimensions("MaxPool%dd", 2),
    *for_dimensions("AvgPool%dd", 2),
    *for_dimensions("AdaptiveAvgPool%dd", 2),
    *for_dimensions("ReflectionPad%dd", 1),
    *for_dimensions("ReplicationPad%dd", 1),
    *for_dimensions("ConstantPad%dd", 1, 0.5),
    layer("ZeroPad2d", 1, x=IMAGES[2]),
    *(layer(name, x=X) for name in ("ELU", "CELU", "GELU", "Hardshrink", "LeakyReLU", "Mish")),
    *(layer(name, x=X) for name in ("ReLU", "SELU", "SiLU", "Sigmoid", "Softplus", "Softsign")),
    *(layer(name, x=X) for name in ("Softshrink", "Tanh", "PReLU", "Hardtanh", "GLU")),
    layer("LogSoftmax", 1, x=X),
    layer("Softmax", 1, x=X),
    layer("Threshold", 0.1, 2.0, x=X),
    case("RReLU", nn.RReLU().eval(), X),
    case("glu", F.glu, X),
    *for_dimensions("BatchNorm%dd", 4),
    layer("LayerNorm", 4, x=X),
    layer("GroupNorm", 2, 4, x=IMAGES[2]),
    *for_dimensions("InstanceNorm%dd", 4, affine=True),
    case("InstanceNorm2d_plain", nn.InstanceNorm2d(4), IMAGES[2]),
    case("weight_norm", WeightNorm(), X),
    *(recurrent(name) for name in ("RNN", "GRU", "LSTM")),
    case("GRU_without_bias", First(nn.GRU(4, 5, bias=False)), randn(6, 2, 4)),
    layer("Identity", x=X),
    layer("Linear", 4, 5, x=X),
    case("Bilinear", nn.Bilinear(4, 4, 2), X, Y),
    case("Dropout_of_inference", nn.Dropout().eval(), X),
    case("Embedding", nn.Embedding(5, 3), integers(5, 2, 4)),
    case("Embedding_padding_idx", nn.Embedding(5, 3, padding_idx=1), integers(5, 2, 4)),
    case("EmbeddingBag", nn.EmbeddingBag(5, 3), integers(5, 2, 4)),
    case("one_hot", lambda i: F.one_hot(i, 5), integers(5, 2, 4), grad=False),
    case("Upsample_nearest", nn.Upsample(scale_factor=2), IMAGES[2]),
    case("Upsample_bilinear", nn.Upsample(scale_factor=2, mode="bilinear"), IMAGES[2]),
    case("Upsample_bicubic", nn.Upsample(scale_factor=2, mode="bicubic"), IMAGES[2]),
]

CLASSES = integers(4, 3)
SIGNS = TRUTH.float() * 2 - 1
PROBABILITIES = torch.softmax(Y, 1)


def loss(name, *tensors, **options):
    return case(name, getattr(nn, name)(**options), *tensors)


LOSSES = [
    loss("L1Loss", X, Y),
    loss("MSELoss", X, Y),
    loss("CrossEntropyLoss", X, CLASSES),
    case("CrossEntropyLoss_ignore_index", nn.CrossEntropyLoss(ignore_index=1), X, CLASSES),
    case("NLLLoss", lambda x, y: F.nll_loss(F.log_softmax(x, 1), y), X, CLASSES),
    case("BCELoss", lambda x: F.binary_cross_entropy(x, PROBABILITIES), POSITIVE),
    case("BCELoss_weight", lambda x: F.binary_cross_entropy(x, PROBABILITIES, POSITIVE), POSITIVE),
    case("KLDivLoss", lambda x: F.kl_div(x, PROBABILITIES, reduction="batchmean"), X),
    loss("PoissonNLLLoss", X, POSITIVE),
    case("HingeEmbeddingLoss", lambda x: F.hinge_embedding_loss(x, SIGNS), X),
    loss("BCEWithLogitsLoss", X, POSITIVE),
    case("BCEWithLogitsLoss_pos_weight", nn.BCEWithLogitsLoss(pos_weight=POSITIVE[0]), X, POSITIVE),
    loss("SmoothL1Loss", X, Y),
    case("SoftMarginLoss", lambda x: F.soft_margin_loss(x, SIGNS), X),
    case("CosineEmbeddingLoss", lambda x, y: F.cosine_embedding_loss(x, y, SIGNS[:, 0]), X, Y),
    case("MarginRankingLoss", lambda x, y: F.margin_ranking_loss(x, y, SIGNS), X, Y),
    loss("TripletMarginLoss", X, Y, POSITIVE),
    case("multilabel_soft_margin", lambda x: F.multilabel_soft_margin_loss(x, PROBABILITIES), X),
    case(
        "CTCLoss",
        lambda x: F.ctc_loss(
            F.log_softmax(x, 2),
            torch.tensor([[1, 2, 1], [3, 1, 2]]),
            torch.tensor([10, 10]),
            torch.tensor([3, 2]),
        ),
        randn(10, 2, 5),
    ),
]

UNDOCUMENTED = [
    same("addcmul", X, Y, POSITIVE, value=0.5),
    case("addmv", lambda b, x, y: torch.addmv(b, x, y), randn(3), X, randn(4)),
    *binary("atan2", "maximum", "minimum"),
    case("baddbmm", torch.baddbmm, randn(2, 3, 5), randn(2, 3, 4), randn(2, 4, 5)),
    case("broadcast_to", lambda x: torch.broadcast_to(x, (2, 3, 4)), X),
    case("col2im", lambda x: F.fold(x, (4, 4), 2), randn(1, 12, 9)),
    case("im2col", lambda x: F.unfold(x, 2), randn(1, 3, 4, 4)),
    case("copy_", lambda x, y: (x + 0).copy_(y) * x, X, Y),
    case("cosine_similarity", lambda x, y: F.cosine_similarity(x, y), X, Y),
    case("detach", lambda x: x * x.detach(), X),
    case("dot", torch.dot, randn(4), randn(4, seed=1)),
    case("einsum", lambda x, y: torch.einsum("ij,kj->ik", x, y), X, Y),
    *unary("erf", "erfc", "flatten"),
    case("flip", lambda x: torch.flip(x, (0, 1)), X),
    case("hardsigmoid", F.hardsigmoid, X),
    case("hardswish", F.hardswish, X),
    case("index", lambda x, i: x[i], X, torch.tensor([2, 0])),
    case(
        "index_put",
        lambda x, i, y: torch.index_put(x, (i,), y, accumulate=True),
        X,
        torch.tensor([2, 2]),
        randn(2, 4, seed=2),
    ),
    case("linear", F.linear, X, Y),
    case("log_sigmoid", F.logsigmoid, X),
    same("logical_not", TRUTH, grad=False),
    case("mm", torch.mm, X, randn(4, 3)),
    case("mv", torch.mv, X, randn(4)),
    case("nansum", lambda x: torch.nansum(x, 1), X),
    case("narrow", lambda x: x.narrow(1, 1, 2), X),
    case("new_full", lambda x: x.new_full((3, 4), 2.5) * x, X),
    case("numpy_T", lambda x: x.T, X),
    case("pairwise_distance", F.pairwise_distance, X, Y),
    case("permute", lambda x: x.permute(2, 0, 1), randn(2, 3, 4)),
    case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), IMAGES[2]),
    case("repeat", lambda x: x.repeat(2, 3), X),
    case("rsub", lambda x: 1.5 - x, X),
    case("select", lambda x: x.select(1, 2), X),
    case("to", lambda x: x.to(torch.int32), 10 * X, grad=False),
    case("triu", lambda x: torch.triu(x), X),
    case("type_as", lambda x, y: (x > 0).type_as(y) * y, X, Y),
    case("unfold", lambda x: x.unfold(1, 2, 1), X),
    case("upsample_linear1d", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), IMAGES[1]),
    case(
        "upsample_trilinear3d",
        lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
        IMAGES[3],
    ),
    case("view", lambda x: x.view(6, 2), X),
]


def check(operator, tensors, grad):
    check_results(operator, tensors)
    if grad:
        check_gradients(operator, tensors)


@pytest.mark.spec("10.1 creation")
@pytest.mark.parametrize("operator, tensors, grad", CREATION)
def test_creation(operator, tensors, grad):
    check(operator, tensors, grad)


@pytest.mark.spec("10.1 index and shape")
@pytest.mark.parametrize("operator, tensors, grad", INDEX_AND_SHAPE)
def test_index_and_shape(operator, tensors, grad):
    check(operator, tensors, grad)


@pytest.mark.spec("10.1 pointwise")
@pytest.mark.parametrize("operator, tensors, grad", POINTWISE)
def test_pointwise(operator, tensors, grad):
    check(operator, tensors, grad)


@pytest.mark.spec("10.1 reduction")
@pytest.mark.parametrize("operator, tensors, grad", REDUCTION)
def test_reduction(operator, tensors, grad):
    check(operator, tensors, grad)


@pytest.mark.spec("10.1 compare")
@pytest.mark.parametrize("operator, tensors, grad", COMPARE)
def test_compare(operator, tensors, grad):
    check(operator, tensors, grad)


@pytest.mark.spec("10.1 linalg")
@pytest.mark.parametrize("operator, tensors, grad", LINALG)
def test_linalg(operator, tensors, grad):
    check(operator, tensors, grad)


@pytest.mark.spec("10.1 nn")
@pytest.mark.parametrize("operator, tensors, grad", NN)
def test_nn(operator, tensors, grad):
    check(operator, tensors, grad)


@pytest.mark.spec("10.1 losses")
@pytest.mark.parametrize("operator, tensors, grad", LOSSES)
def test_losses(operator, tensors, grad):
    check(operator, tensors, grad)


@pytest.mark.spec("10.1 undocumented")
@pytest.mark.parametrize("operator, tensors, grad", UNDOCUMENTED)
def test_undocumented(operator, tensors, grad):
    check(operator, tensors, grad)


N = 20000


def drawn(name, draw, low, high, mean, std):
    return pytest.param(draw, low, high, mean, std, id=name)


def distribution(name, *parameters):
    return lambda x: getattr(torch.distributions, name)(*parameters).sample(x.shape)


@pytest.mark.spec("10.1 random")
@pytest.mark.parametrize(
    "draw, low, high, mean, std",
    [
        drawn("bernoulli", lambda x: torch.bernoulli(0 * x + 0.25), 0, 1, 0.25, 0.433),
        drawn("bernoulli_", lambda x: (x + 0).bernoulli_(0.25), 0, 1, 0.25, 0.433),
        drawn("randn", lambda x: torch.randn(x.shape), -6, 6, 0, 1),
        drawn("randn_like", torch.randn_like, -6, 6, 0, 1),
        drawn("normal", lambda x: torch.normal(1.0, 2.0, x.shape), -11, 13, 1, 2),
        drawn("normal_", lambda x: (x + 0).normal_(1.0, 2.0), -11, 13, 1, 2),
        drawn("rand", lambda x: torch.rand(x.shape), 0, 1, 0.5, 0.2887),
        drawn("uniform_", lambda x: (x + 0).uniform_(-1, 1), -1, 1, 0, 0.577),
        drawn("exponential_", lambda x: (x + 0).exponential_(2.0), 0, 12, 0.5, 0.5),
        drawn("randint", lambda x: torch.randint(0, 10, x.shape).float(), 0, 9, 4.5, 2.872),
        drawn("random_", lambda x: (x + 0).random_(0, 10), 0, 9, 4.5, 2.872),
        drawn("Bernoulli", distribution("Bernoulli", 0.25), 0, 1, 0.25, 0.433),
        drawn("Normal", distribution("Normal", 1.0, 2.0), -11, 13, 1, 2),
        drawn("Uniform", distribution("Uniform", -1.0, 1.0), -1, 1, 0, 0.577),
        drawn("Exponential", distribution("Exponential", 2.0), 0, 12, 0.5, 0.5),
        drawn("Dropout", lambda x: F.dropout(x + 1, 0.75, training=True), 0, 4, 1, 1.732),
        drawn("RReLU", lambda x: F.rrelu(x - 1, 0.2, 0.4, training=True), -0.4, -0.2, -0.3, 0.0577),
    ],
)
def test_random(draw, low, high, mean, std):
    options = QUIET.clone().randomSeed(7)
    executor = poptorch.inferenceModel(Forward(draw), options)
    first, second = executor(torch.zeros(N)).clone(), executor(torch.zeros(N))
    assert first.shape == (N,)
    assert low <= first.min() and first.max() <= high
    assert abs(first.mean() - mean) < 5 * std / N**0.5
    assert abs(first.std() - std) < 0.05 * std
    assert not torch.equal(first, second)
    again = poptorch.inferenceModel(Forward(draw), QUIET.clone().randomSeed(7))
    assert torch.equal(again(torch.zeros(N)), first)


@pytest.mark.spec("10.1 random")
def test_randperm():
    executor = poptorch.inferenceModel(Forward(lambda x: torch.randperm(10) + x), QUIET.clone())
    first, second = executor(torch.zeros(10)).clone(), executor(torch.zeros(10))
    assert first.sort().values.tolist() == list(range(10))
    assert not torch.equal(first, second)
