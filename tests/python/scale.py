"""A model with one weight, around what a test does in forward."""

import poptorch
import torch
import torch.nn as nn


class Scale(nn.Module):
    """Trains one weight; `body` is what the test is about."""

    def __init__(self, body):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.5, -2.0, 0.5]))
        self.register_buffer("steps", torch.zeros(3))
        self.body = body

    def forward(self, x):
        y = self.body(self, x * self.weight)
        return y, poptorch.identity_loss(y, reduction="mean")


X = torch.tensor([[1.0, 2.0, 3.0], [-4.0, 5.0, 0.25]])


def train(body, x=X):
    model = Scale(body)
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    return model, executor(x.clone())


def check_against_eager(body, x=X):
    model, (output, loss) = train(body, x)
    reference = Scale(body)
    expected, expected_loss = reference(x.clone())
    torch.testing.assert_close(output, expected.detach())
    torch.testing.assert_close(loss, expected_loss.detach())
    expected_loss.backward()
    with torch.no_grad():
        expected_weight = Scale(body).weight - 0.1 * reference.weight.grad
    torch.testing.assert_close(model.weight.detach(), expected_weight)
    torch.testing.assert_close(model.steps.detach(), reference.steps)
