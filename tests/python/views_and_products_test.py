"""Values that lie in groups of channels, seen through views and multiplied: against float64."""

import copy

import pytest
import torch
import torch.nn as nn

import poptorch

VIEWS = {
    "flatten": lambda y: y.flatten(1),
    "patches": lambda y: y.flatten(2).transpose(1, 2),
    "permute": lambda y: y.permute(0, 2, 3, 1),
    "view": lambda y: y.view(y.size(0), 2, -1),
    "unsqueeze": lambda y: y.unsqueeze(1),
    "slice": lambda y: y[:, 3:8],
    "step": lambda y: y[:, :, ::2],
    "select": lambda y: y[:, 5],
    "chunk": lambda y: y.chunk(2, dim=1),
    "expand": lambda y: y.unsqueeze(0).expand(3, *y.shape),
}


class Viewed(nn.Module):
    def __init__(self, view, training):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3, padding=1)
        self.view = view
        self.training_step = training

    def forward(self, x):
        y = self.conv(x)
        seen = self.view(y)
        if not self.training_step:
            return seen
        return seen, poptorch.identity_loss((y * y).mean(), reduction="none")


def close(got, wanted, bound=1e-4):
    got = got if isinstance(got, (tuple, list)) else [got]
    wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
    for a, b in zip(got, wanted):
        if isinstance(a, (tuple, list)):
            close(a, b, bound)
            continue
        assert a.shape == b.shape
        assert (a.double() - b).abs().max() <= bound * b.abs().max()


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("training", [False, True])
def test_an_output_may_be_a_view(name, training):
    torch.manual_seed(1)
    model = Viewed(VIEWS[name], training)
    x = torch.randn(4, 16, 32, 32)
    wanted = copy.deepcopy(model).double()(x.double())
    if training:
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
        close(poptorch.trainingModel(model, optimizer=optimizer)(x), wanted)
    else:
        close(poptorch.inferenceModel(model)(x), wanted)


class Products(nn.Module):
    """Convolutions beside products, in both directions."""

    def __init__(self, channels, size, kind):
        super().__init__()
        self.conv = nn.Conv2d(8, channels, 3, padding=1)
        self.linear = nn.Linear(size, 24)
        self.p = nn.Parameter(torch.randn(size, 8) * 0.1)
        self.back = nn.Conv2d(channels, 8, 1)
        self.kind = kind

    def forward(self, x):
        y = self.conv(x)
        if self.kind == "linear":
            out = self.linear(y)
        elif self.kind == "matmul":
            out = y @ self.p
        elif self.kind == "bmm":
            rows = y.flatten(2)
            out = torch.bmm(rows.transpose(1, 2), rows).softmax(-1) @ rows.transpose(1, 2)
        else:
            out = self.back(y) @ self.p
        return out, poptorch.identity_loss((out * out).mean(), reduction="none")


@pytest.mark.parametrize("kind", ["linear", "matmul", "bmm", "between"])
@pytest.mark.parametrize("channels", [8, 12, 16])
@pytest.mark.parametrize("batch", [1, 8])
def test_products_beside_convolutions(kind, channels, batch):
    torch.manual_seed(2)
    model = Products(channels, 16, kind)
    x = torch.randn(batch, 8, 16, 16)
    exact = copy.deepcopy(model).double()
    wanted = exact(x.double())
    wanted[1].backward()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    training = poptorch.trainingModel(model, optimizer=optimizer)
    close(training(x), wanted)
    training.copyWeightsToHost()
    for (name, trained), reference in zip(model.named_parameters(), exact.parameters()):
        if reference.grad is None:
            continue
        change = before[name].double() - trained.detach().double()
        assert (change - reference.grad).abs().max() <= 1e-3 * reference.grad.abs().max(), name


@pytest.mark.parametrize(
    "fold", ["mean", "sum", "amax", "prod", "var", "softmax", "argmax", "cumsum"]
)
@pytest.mark.parametrize("dim", range(4))
def test_any_dimension_may_be_folded(fold, dim):
    torch.manual_seed(1)
    model = Viewed(lambda y: getattr(y, fold)(dim), False)
    for shape in [(4, 16, 9, 7), (1, 16, 3, 1)]:
        x = torch.randn(shape)
        if fold == "var" and shape[dim] == 1:
            continue
        wanted = copy.deepcopy(model).double()(x.double())
        close(poptorch.inferenceModel(model)(x), wanted)


@pytest.mark.parametrize("fold", ["mean", "sum", "amax"])
@pytest.mark.parametrize(
    "dims", [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 2, 3), (1, 2, 3)]
)
def test_any_dimensions_may_be_folded(fold, dims):
    torch.manual_seed(1)
    model = Viewed(lambda y: getattr(y, fold)(dims), False)
    x = torch.randn(4, 16, 9, 7)
    close(poptorch.inferenceModel(model)(x), copy.deepcopy(model).double()(x.double()))
