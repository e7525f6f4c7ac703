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
