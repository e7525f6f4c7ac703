"""Whole networks trained in half precision, beside the same in float32."""

import copy

import poptorch
import pytest
import torch
from zoo import ZOO, make

STEPS = 20
RATES = {"resnet18": 0.001}  # or there is no loss left to compare
BY_CHANCE = {"resnet18"}  # rounded to nearest, its weights lose the small updates of that rate
SCALING = 128.0  # small gradients are halves that way


def losses(name, model, inputs):
    options = poptorch.Options().showCompilationProgressBar(False).randomSeed(1)
    options.Precision.enableStochasticRounding(name in BY_CHANCE)
    lr = RATES.get(name, 0.01)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=lr, loss_scaling=SCALING)
    training = poptorch.trainingModel(model, options, optimizer)
    values = [training(*inputs)[1] for _ in range(STEPS)]
    assert training.hostCalls() == []
    training.destroy()
    return values


@pytest.mark.parametrize("name", ZOO)
def test_twenty_steps_in_half_follow_float32(name):
    model, batch = make(name)
    inputs = batch(0)
    expected = losses(name, copy.deepcopy(model), inputs)
    halves = [x.half() if x.is_floating_point() else x for x in inputs]
    ours = losses(name, copy.deepcopy(model).half(), halves)
    assert all(loss.dtype == torch.half for loss in ours)
    assert expected[-1] < expected[0]
    assert abs(ours[-1].item() - expected[-1].item()) <= 0.05 * expected[-1].item()
