"""Recurrent networks: one node for a layer and direction, with PyTorch's numbers."""

import copy

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F


class Tagger(nn.Module):
    """Predicts a number for every step; the last states count too."""

    def __init__(self, kind, features=6, hidden=10, **options):
        super().__init__()
        self.rnn = kind(features, hidden, **options)
        directions = 2 if options.get("bidirectional") else 1
        self.head = nn.Linear(directions * hidden, 1)

    def forward(self, x, target=None, states=None):
        y, last = self.rnn(x) if states is None else self.rnn(x, states)
        y = self.head(y).squeeze(-1)
        if target is None:
            return y
        ends = sum(s.pow(2).mean() for s in (last if isinstance(last, tuple) else (last,)))
        return y, poptorch.identity_loss(F.mse_loss(y, target) + 0.1 * ends, reduction="none")


CASES = [
    (nn.LSTM, {}),
    (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    (nn.LSTM, {"num_layers": 2, "batch_first": True, "bias": False}),
    (nn.GRU, {}),
    (nn.GRU, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    (nn.GRU, {"bias": False}),
    (nn.RNN, {}),
    (nn.RNN, {"nonlinearity": "relu", "num_layers": 2, "bidirectional": True}),
]
IDS = [f"{kind.__name__}-{'-'.join(options)}" for kind, options in CASES]


def make(kind, options, seed=1):
    torch.manual_seed(seed)
    return Tagger(kind, **options).train()


def batch(options, seed=0, time=7, size=8):
    torch.manual_seed(100 + seed)
    shape = (size, time) if options.get("batch_first") else (time, size)
    return torch.randn(*shape, 6), torch.randn(*shape)


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-12)).item()


def eager_gradients(model, inputs, dtype):
    model = copy.deepcopy(model).to(dtype)
    model(*(x.to(dtype) for x in inputs))[1].backward()
    return {name: p.grad for name, p in model.named_parameters()}


def our_gradients(model, inputs):
    lr = 2.0**40  # the step that is taken is the gradient, not its rounding against the weight
    model = copy.deepcopy(model)
    before = {name: p.detach().clone().double() for name, p in model.named_parameters()}
    poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=lr))(*inputs)
    return {name: (before[name] - p.detach()) / lr for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind,options", CASES, ids=IDS)
def test_gradients_are_as_close_to_float64_as_eager(kind, options):
    model, inputs = make(kind, options), batch(options)
    exact = eager_gradients(model, inputs, torch.float64)
    eager = eager_gradients(model, inputs, torch.float32)
    for name, ours in our_gradients(model, inputs).items():
        allowed = 3 * relative(eager[name], exact[name]) + 1e-5
        assert relative(ours, exact[name]) <= allowed, name


class InPlace(Tagger):
    def forward(self, x, target):
        y, _ = self.rnn(x)
        y = self.head(F.elu_(y)).squeeze(-1)
        return y, poptorch.identity_loss(F.mse_loss(y, target), reduction="none")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_outputs_may_be_changed_in_place(kind):
    torch.manual_seed(4)
    model, inputs = InPlace(kind).train(), batch({})
    ours = our_gradients(model, inputs)
    for name, right in eager_gradients(model, inputs, torch.float64).items():
        assert relative(ours[name], right) < 1e-5, name


@pytest.mark.parametrize("kind,options", CASES, ids=IDS)
def test_twenty_steps_follow_eager(kind, options):
    model = make(kind, options)
    reference = copy.deepcopy(model)
    numbers = {"lr": 0.05, "momentum": 0.9}
    eager = torch.optim.SGD(reference.parameters(), **numbers)
    executor = poptorch.trainingModel(
        model, optimizer=poptorch.optim.SGD(model.parameters(), **numbers)
    )
    for step in range(20):
        inputs = batch(options, seed=step)
        eager.zero_grad()
        reference(*inputs)[1].backward()
        eager.step()
        executor(*inputs)
    expected = reference.state_dict()
    for name, value in model.state_dict().items():
        # A bias that stays near zero keeps the roundings of twenty sums in another order.
        assert relative(value, expected[name]) <= 2e-5, name


@pytest.mark.parametrize("kind,options", CASES, ids=IDS)
def test_inference_follows_eager(kind, options):
    model = make(kind, options).eval()
    x, _ = batch(options)
    torch.testing.assert_close(poptorch.inferenceModel(model)(x), model(x).detach())


@pytest.mark.parametrize("kind,options", CASES, ids=IDS)
def test_a_layer_and_direction_is_one_node(kind, options):
    model = make(kind, options)
    executor = poptorch.trainingModel(model)
    executor.compile(*batch(options))
    lines = executor._core.graph_text().splitlines()
    parts = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    name = kind.__name__.lower()
    forward = [line for line in lines if f"= {name}(" in line]
    assert len(forward) == parts
    assert len([line for line in lines if f"= {name}_backward(" in line]) == parts
    assert not any(f"= {op}(" in line for line in lines for op in ("sigmoid", "tanh", "relu"))
    assert all('in "rnn"' in line and "rnn_test.py" in line for line in forward)


def test_states_are_inputs_and_get_gradients():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 4)
            self.h0, self.c0 = (nn.Parameter(torch.randn(1, 5, 4)) for _ in range(2))

        def forward(self, x):
            y, (h, c) = self.rnn(x, (self.h0, self.c0))
            return h, c, poptorch.identity_loss((y * y).sum() + c.sum(), reduction="none")

    torch.manual_seed(0)
    model = Stateful()
    reference = copy.deepcopy(model)
    x = torch.randn(3, 5, 3)
    h, c, loss = reference(x)
    loss.backward()
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
    ours = executor(x)
    for got, wanted in zip(ours, (h, c, loss)):
        torch.testing.assert_close(got, wanted.detach())
    for (name, p), q in zip(model.named_parameters(), reference.parameters()):
        torch.testing.assert_close(p.detach(), (q - q.grad).detach(), msg=name)


def test_one_sequence_without_a_batch_and_cells():
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(3, 4)
            self.lstm_cell = nn.LSTMCell(4, 5)
            self.gru_cell = nn.GRUCell(5, 2)

        def forward(self, x):
            y, last = self.rnn(x)
            h, c = self.lstm_cell(y)
            return self.gru_cell(h + c), last

    torch.manual_seed(0)
    model = Small().eval()
    x = torch.randn(6, 3)
    for got, wanted in zip(poptorch.inferenceModel(model)(x), model(x)):
        torch.testing.assert_close(got, wanted.detach())


def test_projections_are_taken_apart():
    model = nn.LSTM(3, 6, proj_size=2)
    x = torch.randn(4, 5, 3)
    y, (h, c) = model(x)
    executor = poptorch.inferenceModel(model)
    ours, (our_h, our_c) = executor(x)
    for got, wanted in zip((ours, our_h, our_c), (y, h, c)):
        torch.testing.assert_close(got, wanted.detach())
    assert "= lstm(" not in executor._core.graph_text()


def test_dropout_between_layers():
    class Wide(nn.Module):
        def __init__(self, p):
            super().__init__()
            self.rnn = nn.GRU(4, 64, num_layers=2, dropout=p)
            with torch.no_grad():
                for name, p in self.rnn.named_parameters():
                    p.zero_()
                # The second layer's new state is what the first one's output is multiplied with.
                self.rnn.bias_ih_l0[128:] = 0.5
                self.rnn.weight_ih_l1[128:] = 0.5 * torch.eye(64)

        def forward(self, x):
            y, _ = self.rnn(x)
            return y, poptorch.identity_loss(y, reduction="mean")

    x = torch.zeros(1, 64, 4)
    still = Wide(0.5).eval()
    torch.testing.assert_close(poptorch.inferenceModel(still)(x)[0], still(x)[0].detach())

    model = Wide(0.5).train()
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0))
    first, second = executor(x)[0], executor(x)[0]
    kept = first != 0
    assert 0.4 < kept.float().mean() < 0.6
    assert not torch.equal(first, second)
    inner = torch.tanh(torch.tensor(0.5)) * 0.5  # of the first layer, the update gate being a half
    torch.testing.assert_close(
        first[kept], torch.full_like(first[kept], torch.tanh(inner).item() * 0.5)
    )


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_same_bits_for_any_number_of_threads(kind, monkeypatch):
    def bits(threads):
        monkeypatch.setenv("TESSERA_NUM_THREADS", str(threads))
        torch.manual_seed(3)
        model = Tagger(kind, hidden=37, num_layers=2, bidirectional=True)
        executor = poptorch.trainingModel(
            model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.05)
        )
        for seed in range(3):
            executor(*batch({}, seed=seed, size=29))
        return [p.detach().clone() for p in model.parameters()]

    first = bits(1)
    for threads in (2, 3):
        assert all(torch.equal(a, b) for a, b in zip(bits(threads), first))


def test_gradients_of_gradients_are_refused():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 4)

        def forward(self, x):
            x = x * self.rnn.weight_ih_l0[0]
            y, _ = self.rnn(x)
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            return poptorch.identity_loss(slope.pow(2).sum(), reduction="none")

    with pytest.raises(poptorch.Error, match="gradients of gradients of lstm"):
        poptorch.trainingModel(Twice())(torch.randn(4, 2, 3))
