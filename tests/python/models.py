"""Small models that the tests train, written as users write them."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SeedCNN(nn.Module):
    """The Fashion-MNIST classifier of the tutorial."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(5, 12, 5)
        self.norm = nn.GroupNorm(3, 12)
        self.fc1 = nn.Linear(972, 100)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(100, 10)
        self.log_softmax = nn.LogSoftmax(dim=1)
        self.loss = nn.NLLLoss()

    def forward(self, x, labels=None):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.relu(self.conv2(x)))
        x = torch.flatten(x, start_dim=1)
        x = self.relu(self.fc1(x))
        x = self.log_softmax(self.fc2(x))
        if self.training:
            return x, self.loss(x, labels)
        return x


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)
        )

    def forward(self, x, labels=None):
        x = self.layers(x)
        if labels is None:
            return x
        return x, F.cross_entropy(x, labels)


class BatchNormCNN(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(16, 5)

    def forward(self, x, labels=None):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)), inplace=True)
        x = self.dropout(F.adaptive_avg_pool2d(x, 1).flatten(1))
        x = self.fc(x)
        if labels is None:
            return x
        return x, F.cross_entropy(x, labels)


class LinearWithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.loss = nn.MSELoss()

    def forward(self, x, y):
        out = self.fc(x)
        return out, self.loss(out, y)


def batch(name, size=16, seed=0):
    """One batch of inputs for a model of that class name."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"SeedCNN": (1, 28, 28), "MLP": (20,), "BatchNormCNN": (3, 12, 12)}
    classes = {"SeedCNN": 10, "MLP": 4, "BatchNormCNN": 5}
    x = torch.randn(size, *shapes[name], generator=generator)
    return x, torch.randint(classes[name], (size,), generator=generator)


def relative(a, b):
    """How far a tensor is from what it should be, by norms."""
    return ((a - b).norm() / b.norm().clamp_min(1e-12)).item()
