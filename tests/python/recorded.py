"""A model whose gradients are its inputs, and training on gradients that were recorded."""

import poptorch
import torch
import torch.nn as nn

STEPS = 20


class Recorded(nn.Module):
    """The gradient of each weight is the input of its name."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.a = nn.Parameter(torch.randn(40, 30))
        self.b = nn.Parameter(torch.randn(17))
        self.c = nn.Parameter(torch.tensor(1.5))

    def forward(self, a, b, c):
        loss = (self.a * a[0]).sum() + (self.b * b[0]).sum() + (self.c * c[0]).sum()
        return poptorch.identity_loss(loss, reduction="sum")


def recorded_gradients(steps=STEPS):
    generator = torch.Generator().manual_seed(11)
    shapes = [p.shape for p in Recorded().parameters()]
    return [[torch.randn(s, generator=generator) * 3 for s in shapes] for _ in range(steps)]


def assert_same_weights(model, reference, tolerance=1e-6):
    for (name, ours), theirs in zip(model.named_parameters(), reference.parameters()):
        ours, theirs = ours.detach().double(), theirs.detach().double()
        assert torch.isfinite(ours).all(), name
        assert (ours - theirs).norm() <= tolerance * theirs.norm(), name


def train_eagerly(model, optimizer, gradients, max_grad_norm=None, each_step=None):
    for step, grads in enumerate(gradients):
        if each_step:
            each_step(step, optimizer)
        for parameter, grad in zip(model.parameters(), grads):
            parameter.grad = grad.clone()
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()


def step(executor, grads):
    """A call with these gradients."""
    return executor(*[g.unsqueeze(0) for g in grads])


def train(model, optimizer, gradients, options=None, each_step=None):
    executor = poptorch.trainingModel(model, options, optimizer)
    for i, grads in enumerate(gradients):
        if each_step and i:
            each_step(i, optimizer)
            executor.setOptimizer(optimizer)
        step(executor, grads)
    return executor
