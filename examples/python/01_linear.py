"""Fits a straight line."""

import poptorch
import torch


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, x, y=None):
        out = self.linear(x)
        if y is None:
            return out
        return out, torch.nn.functional.mse_loss(out, y)


x = torch.linspace(-1, 1, 64).reshape(64, 1)
y = 3 * x + 1

model = Line()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
training = poptorch.trainingModel(model, optimizer=optimizer)
for _ in range(200):
    _, loss = training(x, y)

assert loss < 1e-4
