"""Operators as users meet them: results and gradients against eager PyTorch."""

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

LEARNING_RATE = 0.5


class Weighted(nn.Module):
    """Puts `body` between a weight and a loss that all results matter to."""

    def __init__(self, start, body):
        super().__init__()
        self.weight = nn.Parameter(start.clone())
        self.body = body

    def forward(self, x):
        y = self.body(self.weight * x)
        scale = torch.arange(1.0, y.numel() + 1).view(y.shape) / y.numel()
        return y, poptorch.identity_loss(y * scale, reduction="sum")


def check(body, start):
    start = torch.as_tensor(start)
    x = torch.ones_like(start)
    reference = Weighted(start, body)
    expected, loss = reference(x)
    loss.backward()
    model = Weighted(start, body)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    result, _ = poptorch.trainingModel(model, optimizer=optimizer)(x)
    torch.testing.assert_close(result, expected.detach())
    torch.testing.assert_close(model.weight.detach(), start - LEARNING_RATE * reference.weight.grad)


WITHOUT_ZERO = [[2.0, -3.0, 0.5], [1.5, 4.0, -1.0]]
ONE_ZERO = [[2.0, 0.0, 0.5], [1.5, 4.0, -1.0]]
TWO_ZEROS = [[2.0, 0.0, 0.0, 3.0], [0.0, 4.0, -1.0, 0.0]]


@pytest.mark.parametrize("start", [WITHOUT_ZERO, ONE_ZERO, TWO_ZEROS])
@pytest.mark.parametrize(
    "body",
    [
        lambda y: y.prod(),
        lambda y: y.prod(1),
        lambda y: y.prod(0, keepdim=True),
        lambda y: y.cumprod(1),
        lambda y: y.cumprod(-2) * 2,
    ],
)
def test_products_have_gradients_at_zeros(body, start):
    check(body, start)


@pytest.mark.parametrize("start", [WITHOUT_ZERO, [[1.0, 1.0, 2.0], [0.0, 1.0, 5.0]]])
def test_medians_share_their_gradient(start):
    check(torch.median, start)
    check(torch.nanmedian, start)


MASK = torch.tensor([[True, False, True], [False, False, True]])


def fill_in_place(y):
    z = torch.zeros(2, 3) + y
    z.masked_fill_(MASK, y.sum())
    return z


@pytest.mark.parametrize(
    "body",
    [
        lambda y: y.masked_fill(MASK, y.mean()),
        fill_in_place,
        lambda y: torch.zeros(2, 3).masked_scatter(MASK, y * 2),
        lambda y: y.masked_scatter(MASK, y.flip(1)),
    ],
)
def test_masks_have_gradients(body):
    check(body, WITHOUT_ZERO)


@pytest.mark.parametrize(
    "body",
    [
        lambda y: F.glu(y.view(1, 6)),
        lambda y: F.bilinear(y, y.flip(0), torch.arange(18.0).view(2, 3, 3) / 7),
        lambda y: F.unfold(y.view(1, 1, 2, 3), 2),
        lambda y: F.fold(y.view(1, 6, 1), (3, 2), (3, 2)),
        lambda y: y.unfold(1, 2, 1),
        lambda y: torch.rot90(y),
        lambda y: torch.cdist(y, y.flip(1), p=1.0),
        lambda y: torch.linalg.cross(y, y.roll(1, 1)),
        lambda y: F.adaptive_max_pool1d(y, 2),
        lambda y: F.interpolate(y.view(1, 2, 3), size=7, mode="linear"),
        lambda y: F.interpolate(y.view(1, 1, 2, 3), scale_factor=2.5, mode="bicubic"),
        lambda y: F.pad(y.view(1, 1, 1, 2, 3), (2, 1, 1, 0, 0, 0), mode="reflect"),
        lambda y: torch.logcumsumexp(y, 1),
        lambda y: torch.cummax(y, 1).values,
        lambda y: torch.kthvalue(y, 2).values,
        lambda y: torch.renorm(y, 2, 0, 1.5),
        lambda y: torch.scatter_reduce(y, 1, torch.tensor([[0, 0, 1]]), y * 3, "amax"),
        lambda y: y.index_reduce(1, torch.tensor([0, 2, 2]), y, "mean"),
        lambda y: torch.diag_embed(y, 1),
        lambda y: torch.trace(y) * y,
        lambda y: torch.take(y, torch.tensor([0, 5, -1])),
        lambda y: F.multi_margin_loss(y, torch.tensor([0, 2])),
        lambda y: F.multilabel_margin_loss(y, torch.tensor([[0, 2, -1], [1, -1, 0]])),
        lambda y: torch.lgamma(y.abs() + 0.5) + torch.digamma(y.abs() + 0.5),
        lambda y: torch.logit(y.sigmoid()) + torch.erfinv(y.tanh()),
        lambda y: F.rrelu(y, training=False),
        lambda y: torch.fake_quantize_per_tensor_affine(y, 0.25, 2, -8, 7),
    ],
)
def test_operators_match_eager(body):
    check(body, WITHOUT_ZERO)


def test_embedding_bags_train():
    class Bags(nn.Module):
        def __init__(self, mode):
            super().__init__()
            torch.manual_seed(3)
            self.bags = nn.EmbeddingBag(6, 4, mode=mode)

        def forward(self, indices, offsets):
            y = self.bags(indices, offsets)
            return y, poptorch.identity_loss(y * y, reduction="sum")

    indices, offsets = torch.tensor([0, 5, 2, 2, 1]), torch.tensor([0, 2, 4])
    for mode in ["sum", "mean", "max"]:
        reference, model = Bags(mode), Bags(mode)
        expected, loss = reference(indices, offsets)
        loss.backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        executor = poptorch.trainingModel(model, optimizer=optimizer)
        result, _ = executor(indices.int(), offsets.int())
        torch.testing.assert_close(result, expected.detach())
        weight = Bags(mode).bags.weight - LEARNING_RATE * reference.bags.weight.grad
        torch.testing.assert_close(model.bags.weight.detach(), weight.detach())


def test_weight_norm_trains():
    torch.manual_seed(1)
    reference = nn.utils.weight_norm(nn.Linear(3, 4))
    model = nn.utils.weight_norm(nn.Linear(3, 4))
    model.load_state_dict(reference.state_dict())
    x, y = torch.randn(5, 3), torch.randn(5, 4)

    class WithLoss(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x, y):
            return F.mse_loss(self.inner(x), y)

    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    poptorch.trainingModel(WithLoss(model), optimizer=optimizer)(x, y)
    F.mse_loss(reference(x), y).backward()
    for name, parameter in model.named_parameters():
        theirs = dict(reference.named_parameters())[name]
        torch.testing.assert_close(
            parameter.detach(), theirs.detach() - LEARNING_RATE * theirs.grad
        )


def test_output_padding_of_transposed_convolutions_may_exceed_the_stride():
    weight = torch.arange(24.0).view(2, 2, 3, 2) / 24

    def body(y):
        return F.conv_transpose2d(
            y.view(1, 2, 3, 4), weight, stride=(2, 1), dilation=(1, 2), output_padding=(1, 1)
        )

    check(body, torch.arange(24.0) / 10)


class Planes(nn.Module):
    """Three planes of three classes each, as slices of one image and of one tensor of labels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.conv = nn.Conv2d(2, 9, 3, padding=1)

    def forward(self, images, labels):
        losses, found = [], []
        for scores, wanted in zip(self.conv(images).chunk(3, 1), labels.chunk(3, 1)):
            wanted = wanted.squeeze(1).long()
            weight = torch.where(wanted == 1, 5.0, 1.0) + 3 * (wanted == 2).float()
            losses.append((weight * F.cross_entropy(scores, wanted, reduction="none")).mean())
            losses.append(F.cross_entropy(scores, wanted))
            right = scores.argmax(1) == wanted
            found += [right.float().mean(), (right & (wanted != 0)).sum(), right.int()]
        return [*found, poptorch.identity_loss(sum(losses), "sum")]


@pytest.mark.parametrize("dtype", [torch.long, torch.int, torch.float])
def test_labels_may_be_slices(dtype):
    inputs = torch.randn(2, 2, 17, 23), torch.randint(3, (2, 3, 17, 23)).to(dtype)
    eager, model = Planes(), Planes()
    expected = eager(*inputs)
    expected[-1].backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    results = poptorch.trainingModel(model, optimizer=optimizer)(*inputs)
    for result, value in zip(results, expected):
        torch.testing.assert_close(result, value.detach().to(result.dtype))
    for p, q in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(p.detach(), (q - LEARNING_RATE * q.grad).detach())


NOT_NUMBERS = torch.full((2, 3), float("nan"))


@pytest.mark.parametrize("start", [WITHOUT_ZERO, ONE_ZERO, TWO_ZEROS])
@pytest.mark.parametrize("include_self", [True, False])
def test_products_at_places_have_gradients_at_zeros(start, include_self):
    size = len(start[0])
    index = torch.tensor([0, 2, 0, 1])[:size]

    def scattered(y):
        return y.scatter_reduce(1, index.expand(2, size), y * 2, "prod", include_self=include_self)

    check(scattered, start)
    check(lambda y: y.index_reduce(1, index, y * 2, "prod", include_self=include_self), start)


@pytest.mark.parametrize(
    "body",
    [
        lambda y: F.gaussian_nll_loss(y, y.flip(1), y.abs() / 2),
        lambda y: F.gaussian_nll_loss(y, y.flip(1), y[:, 0].abs(), full=True, reduction="none"),
        lambda y: y.index_fill(1, torch.tensor([0, -1]), 9.0),
        lambda y: F.conv1d(
            y.view(1, 2, 3, 1).expand(1, 2, 3, 3).diagonal(0, 2, 3), torch.ones(1, 2, 2)
        ),
        lambda y: F.conv1d(y.view(6).as_strided((1, 2, 3), (6, 2, 1)), torch.ones(1, 2, 2)),
        lambda y: F.conv1d((y.t() @ y).diagonal().expand(1, 2, 3), torch.ones(1, 2, 2)),
        lambda y: F.conv_transpose1d(
            y.view(1, 2, 3), torch.ones(2, 1, 2), output_padding=1, dilation=2
        ),
    ],
)
def test_more_operators_match_eager(body):
    check(body, WITHOUT_ZERO)


def test_zero_times_a_product_is_not_computed():
    """Eager's BLAS decides; some multiply NaN by zero."""

    class Model(torch.nn.Module):
        def forward(self, y):
            return torch.addmm(y, NOT_NUMBERS, torch.ones(3, 2), alpha=0)

    y = torch.randn(2, 2)
    assert torch.equal(poptorch.inferenceModel(Model())(y), y)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d, nn.BatchNorm2d])
def test_batch_norm_without_a_momentum(layer):
    torch.manual_seed(2)
    shape = (5, 3) if layer is nn.BatchNorm1d else (5, 3, 2, 2)
    batches = [torch.randn(shape) for _ in range(3)]
    reference, model = layer(3, momentum=None), layer(3, momentum=None)

    class WithLoss(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return F.mse_loss(self.inner(x), x * 2)

    ours = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    theirs = torch.optim.SGD(reference.parameters(), lr=LEARNING_RATE)
    training = poptorch.trainingModel(WithLoss(model), optimizer=ours)
    for x in batches:
        training(x)
        theirs.zero_grad()
        WithLoss(reference)(x).backward()
        theirs.step()
    training.copyWeightsToHost()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, reference.state_dict()[name])


def test_adaptive_log_softmax():
    torch.manual_seed(4)
    layer = nn.AdaptiveLogSoftmaxWithLoss(6, 20, [4, 10], div_value=2.0)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, target):
            output, loss = self.layer(x, target)
            return output, loss, self.layer.predict(x)

    x, target = torch.randn(5, 6), torch.tensor([0, 3, 5, 12, 19])
    expected, results = Both()(x, target), poptorch.inferenceModel(Both())(x, target)
    for result, eager in zip(results, expected):
        torch.testing.assert_close(result.double(), eager.detach().double(), rtol=1e-5, atol=1e-5)
