"""Every loss of PyTorch is found and trains as eager does."""

import copy
from contextlib import suppress

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

G = torch.Generator().manual_seed(9)
TARGET = torch.rand(6, 4, generator=G)
OTHER = torch.randn(6, 4, generator=G)
CLASSES = torch.tensor([0, 3, 1, 2, 2, 0])
SIGNS = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
MULTILABEL = torch.tensor([[0, 2, -1, 1], [3, -1, 0, 0], [1, 2, 3, -1]] * 2)
BINARY = (TARGET > 0.5).float()

LOSSES = {
    "l1": lambda y: F.l1_loss(y, TARGET),
    "l1_sum": lambda y: F.l1_loss(y, TARGET, reduction="sum"),
    "mse": lambda y: F.mse_loss(y, TARGET),
    "smooth_l1": lambda y: F.smooth_l1_loss(y, TARGET, beta=0.5),
    "huber": lambda y: F.huber_loss(y, TARGET, delta=0.7),
    "cross_entropy": lambda y: F.cross_entropy(y, CLASSES),
    "cross_entropy_weight": lambda y: F.cross_entropy(y, CLASSES, weight=TARGET[0] + 0.1),
    "cross_entropy_ignore": lambda y: F.cross_entropy(y, CLASSES, ignore_index=2),
    "cross_entropy_smooth": lambda y: F.cross_entropy(y, CLASSES, label_smoothing=0.1),
    "cross_entropy_probabilities": lambda y: F.cross_entropy(y, TARGET.softmax(1)),
    "cross_entropy_2d": lambda y: F.cross_entropy(y.view(1, 4, 3, 2), CLASSES.view(1, 3, 2)),
    "nll": lambda y: F.nll_loss(y.log_softmax(1), CLASSES, reduction="sum"),
    "bce": lambda y: F.binary_cross_entropy(y.sigmoid(), TARGET),
    "bce_logits": lambda y: F.binary_cross_entropy_with_logits(
        y, BINARY, weight=TARGET, pos_weight=TARGET[1] + 1
    ),
    "kl_div": lambda y: F.kl_div(y.log_softmax(1), TARGET.softmax(1), reduction="batchmean"),
    "kl_div_log": lambda y: F.kl_div(
        y.log_softmax(1), TARGET.log_softmax(1), reduction="sum", log_target=True
    ),
    "poisson_nll": lambda y: F.poisson_nll_loss(y, TARGET, full=True),
    "gaussian_nll": lambda y: F.gaussian_nll_loss(y, OTHER, TARGET + 0.1),
    "hinge_embedding": lambda y: F.hinge_embedding_loss(y[:, 0], SIGNS),
    "soft_margin": lambda y: F.soft_margin_loss(y[:, 0], SIGNS),
    "cosine_embedding": lambda y: F.cosine_embedding_loss(y, OTHER, SIGNS, margin=0.1),
    "margin_ranking": lambda y: F.margin_ranking_loss(y[:, 0], y[:, 1], SIGNS, margin=0.2),
    "triplet_margin": lambda y: F.triplet_margin_loss(y, OTHER, TARGET),
    "triplet_distance": lambda y: F.triplet_margin_with_distance_loss(y, OTHER, TARGET),
    "multi_margin": lambda y: F.multi_margin_loss(y, CLASSES),
    "multilabel_margin": lambda y: F.multilabel_margin_loss(y, MULTILABEL),
    "multilabel_soft_margin": lambda y: F.multilabel_soft_margin_loss(y, BINARY),
    "none": lambda y: F.mse_loss(y, TARGET, reduction="none"),
}


class Net(nn.Module):
    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(4)
        self.fc = nn.Linear(5, 4)
        self.loss = loss

    def forward(self, x):
        y = self.fc(x)
        return y, self.loss(y)


@pytest.mark.parametrize("name", LOSSES)
def test_loss_follows_eager(name):
    model = Net(LOSSES[name])
    reference = copy.deepcopy(model)
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    eager = torch.optim.SGD(reference.parameters(), lr=0.1)
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    for _ in range(3):
        _, loss = executor(x)
        eager.zero_grad()
        _, expected = reference(x)
        expected.sum().backward()  # an unreduced loss sends back ones
        eager.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-4, atol=1e-6)


def test_a_loss_inside_a_marked_loss_gives_up_its_mark():
    model = Net(lambda y: poptorch.identity_loss(F.mse_loss(y, TARGET) * 3 + y.abs().mean(), "sum"))
    reference = Net(lambda y: F.mse_loss(y, TARGET) * 3 + y.abs().mean())
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.randn(6, 5)
    executor(x)
    reference(x)[1].backward()
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach(), (theirs - 0.1 * theirs.grad).detach())


def test_in_inference_losses_are_ordinary():
    model = Net(lambda y: F.mse_loss(y, TARGET) + F.l1_loss(y, TARGET))
    x = torch.randn(6, 5)
    ours = poptorch.inferenceModel(model)(x)
    torch.testing.assert_close(ours[1], model(x)[1].detach())


TARGETS = torch.tensor([0, 1, 1, 0])
LABEL_LOSSES = {
    "nll": lambda x, t: F.nll_loss(x.log_softmax(1), t),
    "nll2d": lambda x, t: F.nll_loss(x.reshape(1, 5, 2, 2).log_softmax(1), t.reshape(1, 2, 2)),
    "cross entropy": F.cross_entropy,
    "smoothed": lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
    "multi margin": F.multi_margin_loss,
    "multilabel margin": lambda x, t: F.multilabel_margin_loss(x[:, :4], t.expand(4, 4)),
    "one hot": lambda x, t: F.one_hot(t, 5),
    "take": lambda x, t: x.take(t),
}
WHOLE_TYPES = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


# From 2.14 on kernels alone refuse labels of 32 bits, not the rules that a program asks.
MAY_TAKE_SHORT_LABELS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)


def answers_like_eager(forward, *inputs, may_take_more=False):
    """Whether eager takes it; then the values are equal, else it is refused here as well."""
    executor = poptorch.inferenceModel(Forward(forward))
    try:
        expected = forward(*inputs)
    except RuntimeError:
        with suppress(poptorch.Error) if may_take_more else pytest.raises(poptorch.Error):
            executor(*inputs)
        return False
    torch.testing.assert_close(executor(*inputs).to(expected.dtype), expected)
    return True


class Forward(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.body = forward

    def forward(self, *inputs):
        return self.body(*inputs)


@pytest.mark.parametrize("name", LABEL_LOSSES)
def test_labels_have_the_types_that_eager_takes(name):
    torch.manual_seed(1)
    x = torch.randn(4, 5)
    taken = []
    for dtype in WHOLE_TYPES:
        more = MAY_TAKE_SHORT_LABELS and dtype == torch.int32
        loss, labels = LABEL_LOSSES[name], TARGETS.to(dtype)
        if answers_like_eager(loss, x, labels, may_take_more=more):
            taken.append(dtype)
    assert torch.int64 in taken and torch.int32 not in taken


def test_weights_of_whole_numbers_wrap_as_eagers():
    torch.manual_seed(1)
    x, y = torch.randn(4), TARGETS.float()
    loss = F.binary_cross_entropy_with_logits
    for dtype in WHOLE_TYPES:
        answers_like_eager(lambda x, y, w: loss(x, y, pos_weight=w), x, y, (TARGETS * 0).to(dtype))
        answers_like_eager(lambda x, y, w: loss(x, y, pos_weight=w), x, y, TARGETS.to(dtype))
        answers_like_eager(lambda x, y, w: loss(x, y, weight=w), x, y, TARGETS.to(dtype))
