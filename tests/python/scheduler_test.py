"""Learning-rate schedulers of PyTorch: setOptimizer() after each step follows eager training."""

import copy
import warnings

import poptorch
import pytest
import torch
from recorded import Recorded, assert_same_weights, recorded_gradients, step
from torch.optim import lr_scheduler

EPOCHS = 8

SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=2, gamma=0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], gamma=0.1),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.8),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=EPOCHS),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: (epoch + 1) / EPOCHS),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=EPOCHS + 1),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(
        o, 0.01, 0.1, step_size_up=3, cycle_momentum="momentum" in o.defaults
    ),
}


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        # The scheduler cannot know that the optimiser's step is in the program.
        warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
        yield


@pytest.mark.spec("1.4 setOptimizer", "4.4 explicit attributes are variable")
@pytest.mark.parametrize("module", [torch.optim, poptorch.optim], ids=["torch", "poptorch"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_schedule_follows_eager_training(scheduler, module):
    model, gradients = Recorded(), recorded_gradients(EPOCHS)
    reference = copy.deepcopy(model)

    theirs = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9, foreach=False)
    schedule = SCHEDULERS[scheduler](theirs)
    for grads in gradients:
        for parameter, grad in zip(reference.parameters(), grads):
            parameter.grad = grad.clone()
        theirs.step()
        schedule.step()

    ours = module.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = SCHEDULERS[scheduler](ours)
    executor = poptorch.trainingModel(model, None, ours)
    for grads in gradients:
        step(executor, grads)
        schedule.step()
        executor.setOptimizer(ours)
    assert_same_weights(model, reference)


@pytest.mark.spec("4.4 explicit attributes are variable")
def test_one_cycle_changes_the_betas_of_adam():
    model, gradients = Recorded(), recorded_gradients(EPOCHS)
    reference = copy.deepcopy(model)
    theirs = torch.optim.Adam(reference.parameters(), lr=0.05, foreach=False)
    schedule = SCHEDULERS["OneCycleLR"](theirs)
    for grads in gradients:
        for parameter, grad in zip(reference.parameters(), grads):
            parameter.grad = grad.clone()
        theirs.step()
        schedule.step()
    ours = poptorch.optim.Adam(model.parameters(), lr=0.05, betas=(0.9, 0.999))
    schedule = SCHEDULERS["OneCycleLR"](ours)
    executor = poptorch.trainingModel(model, None, ours)
    for grads in gradients:
        step(executor, grads)
        schedule.step()
        executor.setOptimizer(ours)
    assert_same_weights(model, reference)


@pytest.mark.spec("4.4 torch optimizers", "4.4 changed constant")
def test_one_cycle_cannot_change_the_constant_betas_of_pytorchs_adam():
    model, gradients = Recorded(), recorded_gradients(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    schedule = SCHEDULERS["OneCycleLR"](optimizer)
    executor = poptorch.trainingModel(model, None, optimizer)
    step(executor, gradients[0])
    schedule.step()
    with pytest.raises(poptorch.Error, match="betas of group 0 is constant"):
        executor.setOptimizer(optimizer)


@pytest.mark.spec("1.4 setOptimizer", "16 trap 7")
def test_a_new_learning_rate_needs_setOptimizer():
    model, gradients = Recorded(), recorded_gradients(1)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.5)
    executor = poptorch.trainingModel(model, None, optimizer)
    values = [model.a.detach().clone()]
    for lr in (0.5, 0.0, 0.0):
        optimizer.param_groups[0]["lr"] = lr
        step(executor, gradients[0])
        values.append(model.a.detach().clone())
    moves = [later - earlier for earlier, later in zip(values, values[1:])]
    assert moves[0].norm() > 1
    assert torch.allclose(moves[0], moves[2], atol=1e-5)
    executor.setOptimizer(optimizer)
    step(executor, gradients[0])
    assert torch.equal(model.a, values[-1])


@pytest.mark.spec("1.4 setOptimizer")
def test_plateaus_lower_the_learning_rate():
    model = Recorded()
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    executor = poptorch.trainingModel(model, None, optimizer)
    gradients = recorded_gradients(1)[0]
    for _ in range(3):
        step(executor, gradients)
        schedule.step(1.0)
        executor.setOptimizer(optimizer)
    numbers = optimizer.state_dict()["ipu_param"]
    assert numbers["learningRate___specific___a"].item() == pytest.approx(0.025)
