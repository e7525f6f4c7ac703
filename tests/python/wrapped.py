"""What the tests of wrapping share: a module, a training, a program in a process of its own."""

import os
import subprocess
import sys

import poptorch
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import MLP, batch

QUIET = poptorch.Options().showCompilationProgressBar(False)


class Direct(nn.Module):
    """Parameters and a buffer of its own, besides those of a sub-module."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer("offset", torch.ones(3))
        self.sub = nn.Linear(3, 3)
        self.flag = "at wrapping"

    def forward(self, x):
        y = self.sub(x) * self.scale + self.offset
        return y, F.mse_loss(y, torch.zeros_like(y))

    def describe(self, prefix):
        return f"{prefix}: {self.flag}"


def train(model, steps=1, **kwargs):
    executor = poptorch.trainingModel(model, QUIET.clone(), **kwargs)
    name = "MLP" if isinstance(model, MLP) else type(model).__name__
    for step in range(steps):
        executor(*(batch(name, seed=step) if name != "PoptorchDirect" else (torch.ones(2, 3),)))
    return executor


def run_program(code, **environment):
    """Run a Python program; its result, with output as text."""
    return subprocess.run(
        [sys.executable, "-B", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
