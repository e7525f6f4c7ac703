"""The CTC loss against PyTorch: padded and concatenated labels, lengths as inputs or constants."""

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

TIME, BATCH, CLASSES, LONGEST = 12, 6, 5, 4
TARGETS = torch.tensor(
    [[1, 2, 3, 4], [1, 1, 2, 2], [3, 0, 0, 0], [4, 4, 4, 4], [2, 3, 0, 0], [1, 2, 0, 0]]
)
# The fourth is too short for its repeated labels; the fifth has none.
INPUT_LENGTHS = torch.tensor([12, 9, 5, 5, 12, 2])
TARGET_LENGTHS = torch.tensor([4, 4, 1, 4, 0, 2])
FITS = torch.tensor([0, 1, 2, 4, 5])


class Speech(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.linear = nn.Linear(3, CLASSES)
        self.options = options

    def forward(self, x, targets, input_lengths, target_lengths):
        log_probs = F.log_softmax(self.linear(x), dim=-1)
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, **self.options)


def features():
    torch.manual_seed(5)
    return 2 * torch.randn(TIME, BATCH, 3)


def check(inputs, **options):
    """Loss and gradients of the weights; the executor, for its graph."""
    torch.manual_seed(1)
    model = Speech(**options)
    expected = model(*inputs)
    expected.sum().backward()
    gradients = [p.grad for p in model.parameters()]
    before = [p.detach().clone() for p in model.parameters()]

    class Summed(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *inputs):
            loss = self.model(*inputs)
            if options.get("reduction") == "none":
                return loss, poptorch.identity_loss(loss, reduction="sum")
            return loss, loss

    summed = Summed()
    executor = poptorch.trainingModel(
        summed, optimizer=torch.optim.SGD(summed.parameters(), lr=1.0)
    )
    loss = executor(*inputs)[0]
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-5, equal_nan=True)
    for p, start, gradient in zip(model.parameters(), before, gradients):
        torch.testing.assert_close(
            start - p.detach(), gradient, rtol=1e-4, atol=2e-6, equal_nan=True
        )
    return executor


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_padded_labels_and_lengths_as_inputs(reduction, zero_infinity):
    inputs = (features(), TARGETS, INPUT_LENGTHS, TARGET_LENGTHS)
    executor = check(inputs, reduction=reduction, zero_infinity=zero_infinity)
    text = executor._core.graph_text()
    assert text.count("= ctc_loss(") == 1 and text.count("= ctc_loss_backward(") == 1


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_lengths_as_tuples(reduction):
    x = features()[:, FITS]
    lengths = (tuple(INPUT_LENGTHS[FITS].tolist()), tuple(TARGET_LENGTHS[FITS].tolist()))
    check((x, TARGETS[FITS], *lengths), reduction=reduction)


@pytest.mark.parametrize("as_tuples", [False, True])
def test_labels_in_one_row(as_tuples):
    row = torch.cat([t[:n] for t, n in zip(TARGETS[FITS], TARGET_LENGTHS[FITS])])
    lengths = (INPUT_LENGTHS[FITS], TARGET_LENGTHS[FITS])
    if as_tuples:
        lengths = tuple(tuple(n.tolist()) for n in lengths)

    class Fixed(Speech):  # the labels are not cut into micro-batches: they belong to the model
        def forward(self, x):
            return super().forward(x, row, *lengths)

    torch.manual_seed(1)
    model = Fixed()
    x = features()[:, FITS]
    expected = model(x)
    expected.backward()
    wanted = [(p - p.grad).detach() for p in model.parameters()]
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
    torch.testing.assert_close(executor(x), expected.detach())
    for p, q in zip(model.parameters(), wanted):
        torch.testing.assert_close(p.detach(), q, rtol=1e-4, atol=2e-6)


def test_lengths_may_change_from_call_to_call():
    torch.manual_seed(1)
    model = Speech()
    model.eval()
    executor = poptorch.inferenceModel(model)
    for i in range(3):
        inputs = (features(), TARGETS, torch.full((BATCH,), 9 + i), torch.full((BATCH,), 1 + i))
        torch.testing.assert_close(executor(*inputs), model(*inputs).detach())
    with pytest.raises(poptorch.Error, match="input length 13 of sample 0"):
        executor(features(), TARGETS, torch.full((BATCH,), 13), torch.full((BATCH,), 1))


def test_another_blank_and_int32():
    inputs = (features()[:, FITS], (TARGETS[FITS] + 2).int() % 5)
    check((*inputs, INPUT_LENGTHS[FITS].int(), TARGET_LENGTHS[FITS].int()), blank=2)


def test_one_sequence_without_a_batch():
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, CLASSES)
            self.loss = nn.CTCLoss()

        def forward(self, x):
            log_probs = self.linear(x).log_softmax(-1)
            return self.loss(log_probs, torch.tensor([1, 2, 2]), torch.tensor(7), torch.tensor(3))

    model = One()
    x = torch.randn(7, 3)
    torch.testing.assert_close(poptorch.inferenceModel(model)(x), model(x).detach())
