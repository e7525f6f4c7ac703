"""state_dict() and load_state_dict() of optimisers; checkpoints resume training bit for bit."""

import copy
import gc
import logging
import os
import pickle
import subprocess
import sys
import weakref

import poptorch
import pytest
import torch
from models import MLP, batch
from recorded import Recorded, recorded_gradients, step, train

GRADS = recorded_gradients(6)

KINDS = {
    "SGD": {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1},
    "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01, "betas": (0.8, 0.99)},
    "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
    "LAMB": {"lr": 0.01, "max_weight_norm": 20.0},
}
STATES = {
    "SGD": ["Accl", "Step"],
    "Adam": ["Accl1", "Accl2", "Step"],
    "AdamW": ["Accl1", "Accl2", "Step"],
    "RMSprop": ["Accl1", "Accl2", "Accl3", "Step"],
    "LAMB": ["Accl1", "Accl2", "Step"],
}


def made(name, model, **more):
    return getattr(poptorch.optim, name)(model.parameters(), **{**KINDS[name], **more})


def assert_equal_tensors(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name


@pytest.mark.spec("4.5 state_dict", "4.5 state_dict before compile", "4.5 names", "16 trap 8")
@pytest.mark.parametrize("name", KINDS)
def test_the_dictionary_has_the_programs_state(name):
    model = Recorded()
    optimizer = made(name, model)
    executor = poptorch.trainingModel(model, None, optimizer)
    before = optimizer.state_dict()
    assert before["ipu_state"] is None and before["ipu_param"] is None
    assert before["param_groups"][0]["params"] == [0, 1, 2]
    assert before["state"] == {}

    executor.compile(*[g.unsqueeze(0) for g in GRADS[0]])
    compiled = optimizer.state_dict()
    weights = dict(model.named_parameters())
    expected = {f"{prefix}___{w}" for prefix in STATES[name] for w in weights}
    assert set(compiled["ipu_state"]) == expected
    for state, tensor in compiled["ipu_state"].items():
        prefix, weight = state.split("___")
        assert tensor.dtype == torch.float32
        assert tensor.shape == (() if prefix == "Step" else weights[weight].shape)

    step(executor, GRADS[0])
    trained = optimizer.state_dict()
    assert all((trained["ipu_state"][f"Step___{w}"] == 1).all() for w in weights)
    for state in expected:
        assert not torch.equal(compiled["ipu_state"][state], trained["ipu_state"][state]), state


@pytest.mark.spec("4.5 names")
def test_the_numbers_of_the_dictionary():
    model = Recorded()
    optimizer = made("AdamW", model, weight_decay=0.25, loss_scaling=0.75)
    step(poptorch.trainingModel(model, None, optimizer), GRADS[0])
    numbers = optimizer.state_dict()["ipu_param"]
    lr = numbers["learningRate___specific___a"]
    assert lr.dtype == torch.float32 and lr.shape == () and torch.equal(lr, torch.tensor(0.01))
    assert numbers["weightDecay___specific___c"] == 0.25
    assert numbers["beta1___specific___b"] == torch.tensor(0.8)
    assert numbers["lossScaling_FLOAT"] == 0.75
    assert not [name for name in numbers if name.startswith("eps")]  # a constant

    model = Recorded()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.25, loss_scaling=2.0)
    step(poptorch.trainingModel(model, None, optimizer), GRADS[0])
    values = optimizer.state_dict()
    assert values["ipu_state"] == {}
    assert values["ipu_param"]["scaledLearningRate0___specific___a"] == 0.25
    assert values["ipu_param"]["weightDecayScaleFactor0___specific___a"] == 1 - 0.5 * 0.25

    model = Recorded()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.5, momentum=0.0)
    executor = poptorch.trainingModel(model, None, optimizer)
    step(executor, GRADS[0])
    values = optimizer.state_dict()
    assert "Accl___a" in values["ipu_state"]  # the momentum may change
    assert values["ipu_param"]["scaledMomentum2___specific___a"] == 0
    optimizer.param_groups[0]["momentum"] = 0.5
    executor.setOptimizer(optimizer)
    step(executor, GRADS[1])
    values = optimizer.state_dict()
    assert values["ipu_param"]["scaledMomentum2___specific___a"] == 0.5
    assert values["ipu_state"]["Accl___a"].norm() > 1


@pytest.mark.spec("4.5 state_dict")
def test_device_state_is_read_only_where_it_is_newer(caplog):
    model = Recorded()
    optimizer = made("Adam", model)
    executor = train(model, optimizer, GRADS[:1])
    first = optimizer.state_dict()
    assert len(first["ipu_state"]) == 9  # whoever looks fetches them
    with caplog.at_level(logging.DEBUG, "poptorch::python"):
        again = optimizer.state_dict()
    assert "Using cached optimiser state dict" in caplog.text
    assert all(again["ipu_state"][n] is t for n, t in first["ipu_state"].items())
    kept = copy.deepcopy(first["ipu_state"])
    step(executor, GRADS[1])
    later = optimizer.state_dict()["ipu_state"]
    assert not torch.equal(later["Accl1___a"], kept["Accl1___a"])
    assert_equal_tensors(first["ipu_state"], kept)  # what was handed out stays


def interrupted(name, split, options, inputs, path, **more):
    """Train, save a checkpoint as users do, load it into new objects, train on."""
    model = Recorded()
    optimizer = made(name, model, **more)
    executor = poptorch.trainingModel(model, options, optimizer)
    for args in inputs[:split]:
        executor(*args)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    executor.destroy()
    del executor, optimizer, model

    checkpoint = torch.load(path)
    model = Recorded()
    model.load_state_dict(checkpoint["model"])
    optimizer = made(name, model, **more)
    optimizer.load_state_dict(checkpoint["optimizer"])
    executor = poptorch.trainingModel(model, options, optimizer)
    for args in inputs[split:]:
        executor(*args)
    return model, optimizer


@pytest.mark.spec("4.5 load_state_dict", "4.5 state_dict")
@pytest.mark.parametrize("iterations, accumulation", [(1, 1), (2, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("name", KINDS)
def test_a_checkpoint_resumes_bit_for_bit(name, iterations, accumulation, tmp_path):
    options = poptorch.Options()
    options.deviceIterations(iterations)
    options.Training.gradientAccumulation(accumulation)
    samples = iterations * accumulation
    gradients = recorded_gradients(6 * samples)
    calls = [gradients[i : i + samples] for i in range(0, len(gradients), samples)]
    inputs = [[torch.stack(grads) for grads in zip(*call)] for call in calls]
    model = Recorded()
    optimizer = made(name, model)
    executor = poptorch.trainingModel(model, options, optimizer)
    for args in inputs:
        executor(*args)
    resumed, resumed_optimizer = interrupted(name, 3, options, inputs, tmp_path / "checkpoint.pt")
    assert_equal_tensors(resumed.state_dict(), model.state_dict())
    ours, theirs = resumed_optimizer.state_dict(), optimizer.state_dict()
    assert_equal_tensors(ours["ipu_state"], theirs["ipu_state"])
    assert_equal_tensors(ours["ipu_param"], theirs["ipu_param"])


PROGRAM = """
import sys
import poptorch, torch
from models import MLP, batch

path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
model = MLP().train()
optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.05)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
if first:
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
training = poptorch.trainingModel(model, None, optimizer)
for epoch in range(first, last):
    for i in range(3):
        torch.manual_seed(10 * epoch + i)
        _, loss = training(*batch("MLP"))
    scheduler.step()
    training.setOptimizer(optimizer)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict()}, path)
print(loss.item().hex())
"""


@pytest.mark.spec("4.5 load_state_dict")
def test_another_process_resumes_bit_for_bit(tmp_path):
    def run(path, first, last):
        folder = os.path.dirname(os.path.abspath(__file__))
        environment = dict(os.environ, PYTHONPATH=f"{folder}:{os.environ['PYTHONPATH']}")
        command = [sys.executable, "-B", "-c", PROGRAM, str(path), str(first), str(last)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    whole = run(tmp_path / "whole.pt", 0, 4)
    run(tmp_path / "half.pt", 0, 2)
    assert run(tmp_path / "half.pt", 2, 4) == whole
    ours, theirs = torch.load(tmp_path / "half.pt"), torch.load(tmp_path / "whole.pt")
    assert_equal_tensors(ours["model"], theirs["model"])
    assert_equal_tensors(ours["optimizer"]["ipu_state"], theirs["optimizer"]["ipu_state"])
    assert ours["optimizer"]["param_groups"] == theirs["optimizer"]["param_groups"]


@pytest.mark.spec("1.3 optimizer load_state_dict", "4.5 load_state_dict")
@pytest.mark.parametrize("name", KINDS)
def test_a_running_model_goes_back_to_a_checkpoint(name):
    model = Recorded()
    optimizer = made(name, model)
    executor = train(model, optimizer, GRADS[:2])
    weights = copy.deepcopy(model.state_dict())
    state = optimizer.state_dict()
    results = []
    for _ in range(2):
        for grads in GRADS[2:4]:
            step(executor, grads)
        results.append(copy.deepcopy(model.state_dict()))
        optimizer.param_groups[0]["lr"] = 0.5
        executor.setOptimizer(optimizer)
        model.load_state_dict(weights)  # the host's only: it goes with the optimiser's
        optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert_equal_tensors(results[1], results[0])


@pytest.mark.spec("1.3 optimizer load_state_dict")
def test_loading_a_state_keeps_the_trained_weights():
    model = Recorded()
    optimizer = made("SGD", model, lr=0.0)
    executor = train(model, optimizer, GRADS[:1])
    state = optimizer.state_dict()
    optimizer.param_groups[0]["lr"] = 0.5
    executor.setOptimizer(optimizer)
    step(executor, GRADS[1])
    optimizer.load_state_dict(state)  # with it the learning rate is 0 again
    step(executor, GRADS[2])
    trained = model.a.detach().clone()
    assert not torch.equal(trained, Recorded().a)
    step(executor, GRADS[3])
    assert torch.equal(model.a, trained)


@pytest.mark.spec("4.5 load_state_dict")
def test_edited_values_reach_the_program():
    model = Recorded()
    optimizer = made("Adam", model, eps=1e-8, weight_decay=0.0)
    executor = train(model, optimizer, GRADS[:1])
    values = optimizer.state_dict()
    for name, tensor in values["ipu_state"].items():
        values["ipu_state"][name] = torch.rand_like(tensor)
    for name in values["ipu_param"]:  # one for all parameters of the group
        torch.manual_seed(sum(map(ord, name.split("___")[0])))
        values["ipu_param"][name] = torch.rand(())
    optimizer.load_state_dict(values)
    loaded = optimizer.state_dict()
    assert_equal_tensors(loaded["ipu_state"], values["ipu_state"])
    step(executor, GRADS[1])
    now = optimizer.state_dict()
    assert_equal_tensors(now["ipu_param"], values["ipu_param"])
    for name, tensor in values["ipu_state"].items():
        assert not torch.equal(now["ipu_state"][name], tensor), name
    assert torch.equal(now["ipu_state"]["Step___a"], values["ipu_state"]["Step___a"] + 1)


@pytest.mark.spec("4.5 load_state_dict", "1.4 setOptimizer")
@pytest.mark.parametrize("wrapped", [False, True])
def test_numbers_that_are_set_after_loading_win(wrapped):
    model = Recorded()
    optimizer = made("Adam", model)
    executor = train(model, optimizer, GRADS[:1])
    values = optimizer.state_dict()
    if not wrapped:
        executor.destroy()
        optimizer = made("Adam", model)
    optimizer.load_state_dict(values)
    optimizer.param_groups[0]["lr"] = 0.25
    if wrapped:
        executor.setOptimizer(optimizer)
    else:
        executor = poptorch.trainingModel(model, None, optimizer)
    step(executor, GRADS[1])
    assert optimizer.state_dict()["ipu_param"]["learningRate___specific___a"] == 0.25


@pytest.mark.spec("4.5 missing entries")
def test_missing_entries_keep_the_devices_values(capfd):
    model = Recorded()
    optimizer = made("Adam", model)
    executor = train(model, optimizer, GRADS[:2])
    values = optimizer.state_dict()
    step(executor, GRADS[2])
    kept = optimizer.state_dict()["ipu_state"]["Accl1___a"]
    del values["ipu_state"]["Accl1___a"]
    lr = values["ipu_param"].pop("learningRate___specific___a")
    optimizer.load_state_dict(values)
    assert "Accl1___a" not in optimizer.state_dict()["ipu_state"]
    capfd.readouterr()
    executor.detachFromDevice()
    executor.attachToDevice()
    # The session is another one; nothing that the first had and nobody loaded is lost.
    now = optimizer.state_dict()
    assert "has no Accl1___a;" in capfd.readouterr().err
    assert now["ipu_param"]["learningRate___specific___a"] == lr
    assert torch.equal(now["ipu_state"]["Accl1___a"], kept)
    assert torch.equal(now["ipu_state"]["Step___a"], torch.tensor(2.0))


@pytest.mark.spec("4.5 load_state_dict errors")
def test_what_cannot_be_loaded():
    model = Recorded()
    optimizer = made("Adam", model)
    with pytest.raises(RuntimeError, match="because it is empty"):
        optimizer.load_state_dict({})
    theirs = torch.optim.Adam(model.parameters())
    step(poptorch.trainingModel(model, None, theirs), GRADS[0])
    with pytest.raises(RuntimeError, match="Only IPU optimizer states can be loaded onto the IPU"):
        optimizer.load_state_dict(theirs.state_dict())
    other = MLP().train()
    of_other = poptorch.optim.Adam(list(other.parameters())[:3])
    poptorch.trainingModel(other, None, of_other)(*batch("MLP"))
    values = of_other.state_dict()
    values["ipu_state"] = {
        f"Accl1___{name}": torch.zeros(5) for name, _ in model.named_parameters()
    }
    executor = poptorch.trainingModel(model, None, optimizer)
    optimizer.load_state_dict(values)
    with pytest.raises(poptorch.Error, match=r"'Accl1___a' that was loaded has shape \[5\]"):
        step(executor, GRADS[0])


@pytest.mark.spec("1.4 detachFromDevice", "1.4 destroy", "1.4 attachToDevice")
@pytest.mark.parametrize("name", KINDS)
def test_state_survives_detaching_and_destroying(name):
    model, reference = Recorded(), Recorded()
    train(reference, made(name, reference), GRADS)
    optimizer = made(name, model)
    executor = train(model, optimizer, GRADS[:2])
    executor.detachFromDevice()
    detached = optimizer.state_dict()
    executor.attachToDevice()
    assert_equal_tensors(optimizer.state_dict()["ipu_state"], detached["ipu_state"])
    step(executor, GRADS[2])
    executor.destroy()
    destroyed = optimizer.state_dict()
    assert destroyed["ipu_state"]["Step___a"] == 3
    step(executor, GRADS[3])  # compiles again
    executor.destroy()
    del executor
    gc.collect()
    assert optimizer.state_dict()["ipu_state"]["Step___a"] == 4
    executor = poptorch.trainingModel(model, None, optimizer)
    step(executor, GRADS[4])
    del executor  # never destroyed
    gc.collect()
    assert optimizer.state_dict()["ipu_state"]["Step___a"] == 5
    step(poptorch.trainingModel(model, None, optimizer), GRADS[5])
    assert torch.equal(model.a, reference.a)


@pytest.mark.spec("4.5 torch optimizers")
def test_pytorchs_optimizers_keep_no_state():
    model, reference = Recorded(), Recorded()
    executor = train(reference, torch.optim.SGD(reference.parameters(), 0.01, 0.9), GRADS[:1])
    executor.destroy()
    train(reference, torch.optim.SGD(reference.parameters(), 0.01, 0.9), GRADS[1:2])
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)
    executor = train(model, optimizer, GRADS[:1])
    assert optimizer.state_dict()["state"] == {}
    executor.destroy()
    train(model, optimizer, GRADS[1:2])
    assert torch.equal(model.a, reference.a)


@pytest.mark.spec("1.4 setOptimizer")
def test_another_optimizer_takes_over_and_the_first_keeps_its_state():
    model = Recorded()
    first = made("Adam", model)
    executor = train(model, first, GRADS[:2])
    second = made("Adam", model)
    executor.setOptimizer(second)
    assert first.state_dict()["ipu_state"]["Step___a"] == 2
    step(executor, GRADS[2])
    assert second.state_dict()["ipu_state"]["Step___a"] == 3  # the program went on
    assert first.state_dict()["ipu_state"]["Step___a"] == 2
    executor.setOptimizer(first)  # ... and is set back
    step(executor, GRADS[3])
    assert first.state_dict()["ipu_state"]["Step___a"] == 3
    assert second.state_dict()["ipu_state"]["Step___a"] == 3
    executor.detachFromDevice()
    third = made("Adam", model)
    executor.setOptimizer(third)
    step(executor, GRADS[4])
    assert third.state_dict()["ipu_state"]["Step___a"] == 4


@pytest.mark.spec("4.5 state_dict")
def test_copies_and_pickles_have_the_state():
    model = Recorded()
    optimizer = made("AdamW", model, loss_scaling=8.0, bias_correction=False, max_grad_norm=2.0)
    fresh = copy.deepcopy(optimizer)
    assert fresh.state_dict()["ipu_state"] is None
    assert (fresh.loss_scaling, fresh.bias_correction, fresh.max_grad_norm) == (8.0, False, 2.0)
    executor = train(model, optimizer, GRADS[:2])
    values = optimizer.state_dict()
    copies = [
        copy.copy(optimizer),
        copy.deepcopy(optimizer),
        pickle.loads(pickle.dumps(optimizer)),
    ]
    step(executor, GRADS[2])
    for again in copies:
        assert again.bias_correction is False and again.loss_scaling == 8.0
        assert_equal_tensors(again.state_dict()["ipu_state"], values["ipu_state"])
    executor.setOptimizer(copies[0])
    step(executor, GRADS[3])
    assert copies[0].state_dict()["ipu_state"]["Step___a"] == 3


def test_the_last_executor_of_an_optimizer_has_its_state():
    model, other = Recorded(), Recorded()
    parameters = [*model.parameters(), *other.parameters()]
    optimizer = poptorch.optim.Adam(parameters, lr=0.01)
    first = poptorch.trainingModel(model, None, optimizer)
    step(first, GRADS[0])
    second = poptorch.trainingModel(other, None, optimizer)
    step(first, GRADS[1])
    step(second, GRADS[2])
    assert optimizer.state_dict()["ipu_state"]["Step___a"] == 2
    first.detachFromDevice()
    step(first, GRADS[2])
    first.destroy()
    del first
    assert optimizer.state_dict()["ipu_state"]["Step___a"] == 2


def test_nothing_is_kept_alive():
    model = Recorded()
    optimizer = made("Adam", model)
    executor = train(model, optimizer, GRADS[:1])
    optimizer.state_dict()
    references = [weakref.ref(executor), weakref.ref(executor._core), weakref.ref(optimizer)]
    gc.disable()
    try:
        del executor, optimizer
        assert [reference() for reference in references] == [None, None, None]
    finally:
        gc.enable()
