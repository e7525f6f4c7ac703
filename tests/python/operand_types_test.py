"""Weights, biases and statistics of a type that the operator does not take.

Eager PyTorch refuses most of them. What it refuses we refuse by a sentence; what it takes has its
number. Nothing is read as if it were floating point.
"""

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

TYPES = [torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8, torch.bool]


class Program(nn.Module):
    def __init__(self, body, extra):
        super().__init__()
        self.body = body
        for name, value in extra.items():
            self.register_buffer(name, value)

    def forward(self, *inputs):
        return self.body(self, *inputs)


def as_eager(body, inputs, **extra):
    """The same result, or a refusal of both. Says whether it ran."""
    try:
        expected = Program(body, {name: value.clone() for name, value in extra.items()})(*inputs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
        with pytest.raises((poptorch.Error, RuntimeError, TypeError, ValueError)) as refusal:
            poptorch.inferenceModel(Program(body, extra))(*inputs)
        assert "internal error" not in str(refusal.value)
        return False
    result = poptorch.inferenceModel(Program(body, extra))(*inputs)
    torch.testing.assert_close(result, expected)
    return True


def ones(dtype, count):
    return torch.tensor([1, 0, 1, 1][:count]).to(dtype)


SCORES = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 3, 1, 2, 3])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_weights_of_classes(dtype, reduction):
    weight = ones(dtype, 4)

    def cross_entropy(self, x, t):
        return F.cross_entropy(x, t, weight=self.weight, reduction=reduction)

    def nll_loss(self, x, t):
        return F.nll_loss(F.log_softmax(x, 1), t, weight=self.weight, reduction=reduction)

    def multi_margin(self, x, t):
        return F.multi_margin_loss(x, t, weight=self.weight, reduction=reduction)

    for body in (cross_entropy, nll_loss, multi_margin):
        assert not as_eager(body, (SCORES, LABELS), weight=weight)


def test_the_refusal_says_what_was_wanted_and_what_came():
    def cross_entropy(self, x, t):
        return F.cross_entropy(x, t, weight=self.weight)

    with pytest.raises(poptorch.Error, match="expected scalar type Float but found Long"):
        poptorch.inferenceModel(Program(cross_entropy, {"weight": ones(torch.int64, 4)}))(
            SCORES, LABELS
        )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("which", ["weight", "bias"])
def test_weights_of_norms(dtype, which):
    def operands(self):
        return {which: self.extra}

    def layer_norm(self, x):
        return F.layer_norm(x, (4,), **operands(self))

    def group_norm(self, x):
        return F.group_norm(x, 2, **operands(self))

    def instance_norm(self, x):
        return F.instance_norm(x.unsqueeze(2).expand(5, 4, 3) * 1.5, **operands(self))

    def batch_norm(self, x):
        return F.batch_norm(x, None, None, training=True, **operands(self))

    for body in (layer_norm, group_norm, instance_norm, batch_norm):
        as_eager(body, (SCORES,), extra=ones(dtype, 4))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("training", [False, True])
def test_statistics_of_batch_norm(dtype, training):
    def batch_norm(self, x):
        return F.batch_norm(x, self.mean, self.var, training=training)

    as_eager(batch_norm, (SCORES,), mean=ones(dtype, 4), var=ones(dtype, 4))
    as_eager(batch_norm, (SCORES,), mean=torch.zeros(4), var=ones(dtype, 4))


@pytest.mark.parametrize("dtype", TYPES)
def test_weights_of_samples(dtype):
    def embedding_bag(self, x):
        return F.embedding_bag(
            LABELS, x, torch.tensor([0, 2]), mode="sum", per_sample_weights=self.weight
        )

    as_eager(embedding_bag, (SCORES,), weight=torch.tensor([1, 0, 1, 1, 1]).to(dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_losses_of_elements_with_weights(dtype):
    target = torch.rand(5, 4, generator=torch.Generator().manual_seed(2))

    def binary(self, x):
        return F.binary_cross_entropy(x.sigmoid(), target, weight=self.weight)

    def logits(self, x):
        return F.binary_cross_entropy_with_logits(x, target, weight=self.weight)

    def positive(self, x):
        return F.binary_cross_entropy_with_logits(x, target, pos_weight=self.weight)

    for body in (binary, logits):
        as_eager(body, (SCORES,), weight=ones(dtype, 4))
    # Eager takes one from it before it is floating point: bytes wrap there, bools cannot.
    if dtype not in (torch.uint8, torch.bool):
        as_eager(positive, (SCORES,), weight=ones(dtype, 4))


@pytest.mark.parametrize("dtype", TYPES)
def test_other_weights(dtype):
    weight = torch.ones(3, 4).to(dtype)
    generator = torch.Generator().manual_seed(3)
    image = torch.randn(2, 4, 5, 5, generator=generator)

    def linear(self, x):
        return F.linear(x, self.weight)

    def prelu(self, x):
        return F.prelu(x, self.weight[0])

    def bilinear(self, x):
        return F.bilinear(x, x, self.weight.view(1, 3, 4).expand(2, 3, 4)[:, :, :])

    def convolution(self, x):
        return F.conv2d(x, self.weight.view(3, 4, 1, 1))

    def bias(self, x):
        return F.conv2d(x, torch.ones(4, 4, 1, 1), self.weight[0])

    for body in (linear, prelu, bilinear):
        as_eager(body, (SCORES,), weight=weight)
    for body in (convolution, bias):
        as_eager(body, (image,), weight=weight)
