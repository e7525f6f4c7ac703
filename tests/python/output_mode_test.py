"""Which values a call returns, in which shapes and which order."""

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

All, Final = poptorch.OutputMode.All, poptorch.OutputMode.Final
EveryN, Sum = poptorch.OutputMode.EveryN, poptorch.OutputMode.Sum


class Several(nn.Module):
    """Outputs of all kinds: rows, a scalar, whole numbers, flags, a constant."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.table = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x, labels=None):
        y = self.fc(x)
        results = y, x.sum(), x.argmax(1), x > 0, self.table
        if labels is None:
            return results
        return results + (F.mse_loss(y, labels),)


def options(iterations=1, accumulation=1, mode=None, period=None):
    opts = poptorch.Options().deviceIterations(iterations)
    if accumulation != 1:
        opts.Training.gradientAccumulation(accumulation)
    if mode is not None:
        opts.outputMode(mode, period)
    return opts


def rows(count, seed=0):
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))


def kept(mode, period, iterations, accumulation):
    """The micro-batches whose values come back, in order."""
    everything = range(iterations * accumulation)
    if mode == Final:
        return [everything[-1]]
    if mode == EveryN:
        return [i for i in everything if (i // accumulation + 1) % period == 0]
    return list(everything)


def expected(values, mode):
    """The values of the micro-batches that are kept, as one result."""
    if mode == Sum:
        if values[0].dtype == torch.bool:
            return torch.stack(values).any(0)
        return torch.stack(values).sum(0).to(values[0].dtype)
    if len(values) == 1:
        return values[0]
    return torch.stack(values) if values[0].dim() == 0 else torch.cat(values)


MODES = [(All, None), (Final, None), (Sum, None), (EveryN, 2), (EveryN, 1), (EveryN, 4)]


@pytest.mark.spec("5 All", "5 EveryN", "5 Final", "5 Sum", "5 scalar outputs", "5 order")
@pytest.mark.spec("5 constant outputs", "2.2 outputMode")
@pytest.mark.parametrize("mode,period", MODES, ids=str)
def test_inference(mode, period):
    model = Several()
    x = rows(8)
    results = poptorch.inferenceModel(model, options(4, 1, mode, period))(x)
    parts = [model(x[i : i + 2]) for i in range(0, 8, 2)]
    chosen = [parts[i] for i in kept(mode, period, 4, 1)]
    for k, result in enumerate(results[:4]):
        want = expected([part[k].detach() for part in chosen], mode)
        if want.dtype == torch.int64:
            want = want.int()
        assert result.shape == want.shape and result.dtype == want.dtype
        torch.testing.assert_close(result, want)
    assert torch.equal(results[4], model.table)  # a constant is never multiplied


@pytest.mark.spec("5 All", "5 EveryN", "5 Final", "5 Sum", "5 scalar outputs", "5 order")
@pytest.mark.parametrize("mode,period", MODES, ids=str)
def test_training_with_accumulation(mode, period):
    torch.manual_seed(3)
    model = Several().train()
    x, labels = rows(4 * 2 * 2), torch.randn(16, 2)
    weights = [p.detach().clone() for p in model.parameters()]
    training = poptorch.trainingModel(
        model, options(4, 2, mode, period), torch.optim.SGD(model.parameters(), lr=0.1)
    )
    results = training(x, labels)
    training.destroy()

    # The same by hand: two micro-batches of two rows, then an update with their mean gradient.
    with torch.no_grad():
        for p, w in zip(model.parameters(), weights):
            p.copy_(w)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parts = []
    for iteration in range(4):
        optimizer.zero_grad()
        for step in range(2):
            at = slice((iteration * 2 + step) * 2, (iteration * 2 + step) * 2 + 2)
            part = model(x[at], labels[at])
            (part[5] / 2).backward()
            parts.append(part)
        optimizer.step()
    chosen = [parts[i] for i in kept(mode, period, 4, 2)]
    for k in (0, 1, 2, 3, 5):
        want = expected([part[k].detach() for part in chosen], mode)
        assert results[k].shape == want.shape
        torch.testing.assert_close(results[k].to(want.dtype), want, rtol=1e-5, atol=1e-6)


@pytest.mark.spec("5 defaults")
def test_defaults_are_final_for_training_and_all_for_inference():
    model = Several()
    loss = poptorch.trainingModel(model, options(3))(rows(6), torch.zeros(6, 2))[5]
    assert loss.shape == ()
    y, total, *_ = poptorch.inferenceModel(model, options(3))(rows(6))
    assert y.shape == (6, 2) and total.shape == (3,)


@pytest.mark.spec("5 scalar outputs")
def test_one_value_keeps_its_shape():
    model = Several()
    for mode in (All, Final, Sum):
        y, total, *_ = poptorch.inferenceModel(model, options(1, 1, mode))(rows(2))
        assert y.shape == (2, 2) and total.shape == ()


@pytest.mark.spec("5 EveryN", "2.2 outputMode")
def test_the_period_must_divide_the_iterations():
    with pytest.raises(poptorch.Error, match="divide"):
        poptorch.inferenceModel(Several(), options(4, 1, EveryN, 3))
    with pytest.raises(AssertionError):
        poptorch.Options().outputMode(EveryN)


@pytest.mark.spec("5 All", "2.2 deviceIterations")
def test_fifty_iterations_report_every_loss():
    """As a training loop does that logs each step's loss."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, y):
            out = self.model(x)
            return out, F.mse_loss(out, y)

    opts = poptorch.Options().deviceIterations(50).outputMode(poptorch.OutputMode.All)
    wrapped = WithLoss().train()
    training = poptorch.trainingModel(
        wrapped, opts, poptorch.optim.SGD(wrapped.parameters(), lr=0.05)
    )
    data = torch.randn(1000, 4)
    loader = poptorch.DataLoader(
        opts,
        torch.utils.data.TensorDataset(data, data.sum(1, keepdim=True)),
        batch_size=4,
        shuffle=True,
    )
    assert len(loader) == 5
    losses = []
    for x, y in loader:
        assert x.shape == (200, 4)
        out, loss = training(x, y)
        assert out.shape == (200, 1) and loss.shape == (50,)
        # The outputs belong to the inputs of the same place.
        per_step = (out - y).pow(2).reshape(50, 4).mean(1)
        torch.testing.assert_close(per_step, loss, rtol=1e-4, atol=1e-6)
        losses.append(loss.mean().item())
    assert losses[-1] < losses[0] / 3


@pytest.mark.spec("5 Sum")
def test_whole_numbers_add_up_and_flags_are_joined():
    class Counts(nn.Module):
        def forward(self, x):
            return (x > 0).sum(0), x > 0, (x * 0).to(torch.uint8) + 100

    x = torch.tensor([[1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    opts = poptorch.Options().deviceIterations(3).outputMode(Sum)
    count, positive, small = poptorch.inferenceModel(Counts(), opts)(x)
    assert count.dtype == torch.int32 and count.tolist() == [2, 1]
    assert positive.dtype == torch.bool and positive.tolist() == [[True, True]]
    assert small.dtype == torch.uint8 and small.tolist() == [[44, 44]]  # 300, wrapped around
