"""Models for tests of files and caches; in a module of their own, so that they can be pickled."""

import collections
import enum

import poptorch
import torch

Pair = collections.namedtuple("Pair", ["first", "second"])


class Way(enum.Enum):
    PLAIN = 1
    TWICE = 2


class Regression(torch.nn.Module):
    """Has dropout, statistics and a buffer of its own."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.drop = torch.nn.Dropout(0.25)
        self.out = torch.nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(1))
        self.loss = torch.nn.MSELoss()

    def forward(self, x, y=None):
        self.calls += 1
        out = self.out(self.drop(torch.relu(self.norm(self.fc(x)))))
        return out if y is None else (out, self.loss(out, y))


class HalfRegression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.half()

    def forward(self, x, y):
        out = self.fc(x)
        return out, poptorch.identity_loss((out - y).float().square(), "mean")


class Structured(torch.nn.Module):
    """Takes and returns containers, and constants."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, pair, *rest, way=Way.PLAIN, factor=2.0, options=None, **named):
        x = self.fc(pair.first) * (2 if way is Way.TWICE else 1) + pair.second["bias"]
        for item in rest:
            x = x + item
        for key in sorted(named):
            x = x * named[key]
        return {"x": x * factor, "pair": Pair(x + 1, [x.sum(), "text", None])}


class Opaque:
    """Neither data nor a container."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Opaque) and other.value == self.value


class TakesOpaque(torch.nn.Module):
    def forward(self, x, opaque):
        return x * opaque.value


class Unpicklable(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
        self.function = lambda x: x * 2

    def forward(self, x):
        return self.function(self.fc(x))


class Grouped(torch.nn.Module):
    """One weight for each of two replicas."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 4, 3))

    def forward(self, x, y):
        out = x @ self.weight
        return out, torch.nn.functional.mse_loss(out, y)


class CallsPyTorch(torch.nn.Module):
    """With operators that run PyTorch's kernels: one that a file may call, one that it may not."""

    def forward(self, x):
        return torch.linalg.qr(x)[0], torch.histc(x, 4, -1, 1)


class Constant(torch.nn.Module):
    def forward(self, x):
        return torch.ones(2)
