"""state_dict() of an optimiser leaves its state on the device until somebody looks."""

import copy
import gc
import io
import pickle
import threading

import poptorch
import pytest
import torch
from models import MLP, batch


def trained(steps=1):
    torch.manual_seed(0)
    model = MLP()
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.01)
    executor = poptorch.trainingModel(model, optimizer=optimizer)
    for step in range(steps):
        executor(*batch("MLP", seed=step))
    return executor, optimizer, model  # whoever forgets the executor forgets the device


def waits(state):
    """True where nothing was fetched yet."""
    return getattr(state, "_snapshot", None) is not None


def values(optimizer):
    return {k: v.clone() for k, v in optimizer.state_dict()["ipu_state"].items()}


def assert_equal(ours, theirs):
    assert set(ours) == set(theirs)
    for name in theirs:
        assert torch.equal(ours[name], theirs[name]), name


@pytest.mark.spec("4.5 state_dict")
def test_nothing_is_fetched_for_those_who_do_not_look():
    executor, optimizer, _ = trained()
    kept = optimizer.state_dict()
    assert kept["param_groups"][0]["lr"] == 0.01
    assert "learningRate___specific___layers.0.weight" in kept["ipu_param"]
    assert waits(kept["ipu_state"])
    del kept
    executor(*batch("MLP"))
    last = optimizer.state_dict()["ipu_state"]
    assert waits(last) and isinstance(last, dict) and len(last) > 0 and not waits(last)
    assert not waits(optimizer.state_dict()["ipu_state"])  # they are here now


LOOKS = {
    "item": lambda state: {k: state[k] for k in sorted(state)},
    "items": lambda state: dict(state.items()),
    "unpacking": lambda state: {**state},
    "dict": dict,
    "copy": lambda state: state.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda state: pickle.loads(pickle.dumps(state)),
    "or": lambda state: state | {},
    "update": lambda state: update({}, state),
    "torch.save": lambda state: saved(state),
}


def update(target, state):
    target.update(state)
    return target


def saved(state):
    file = io.BytesIO()
    torch.save({"ipu_state": state}, file)
    assert b"poptorch" not in file.getvalue()
    file.seek(0)
    return torch.load(file)["ipu_state"]


@pytest.mark.spec("4.5 state_dict")
@pytest.mark.parametrize("look", LOOKS)
def test_whoever_looks_sees_the_state_of_the_moment(look):
    executor, optimizer, _ = trained()
    state = optimizer.state_dict()["ipu_state"]
    assert waits(state)
    seen = LOOKS[look](state)
    assert_equal(seen, values(optimizer))
    assert torch.equal(seen["Step___layers.0.weight"], torch.tensor(1.0))
    executor(*batch("MLP"))
    assert torch.equal(state["Step___layers.0.weight"], torch.tensor(1.0))


CHANGES = {
    "run": lambda executor, optimizer: executor(*batch("MLP")),
    "load": lambda executor, optimizer: optimizer.load_state_dict(trained(3)[1].state_dict()),
    "load and run": lambda executor, optimizer: (
        optimizer.load_state_dict(trained(3)[1].state_dict()),
        executor(*batch("MLP")),
    ),
    "detach": lambda executor, optimizer: executor.detachFromDevice(),
    "destroy": lambda executor, optimizer: executor.destroy(),
    "other optimizer": lambda executor, optimizer: (
        executor.setOptimizer(copy.copy(optimizer)),
        executor(*batch("MLP")),
    ),
}


@pytest.mark.spec("4.5 state_dict")
@pytest.mark.parametrize("change", CHANGES)
def test_what_was_asked_for_stays_what_it_was(change):
    expected = values(trained(2)[1])
    executor, optimizer, _ = trained(2)
    states = [optimizer.state_dict()["ipu_state"] for _ in range(2)]
    assert all(map(waits, states))
    CHANGES[change](executor, optimizer)
    for state in states:
        assert_equal(state, expected)


def test_a_state_outlives_its_executor():
    expected = values(trained(2)[1])
    executor, optimizer, _ = trained(2)
    state = optimizer.state_dict()["ipu_state"]
    del executor, optimizer
    gc.collect()
    assert_equal(state, expected)


def test_an_executor_may_go_while_another_fetches_its_weights():
    torch.manual_seed(0)
    model = MLP()
    inference = poptorch.inferenceModel(model)
    x, y = batch("MLP")
    inference(x, y)
    stop = threading.Event()
    failures = []

    def train_and_go():
        try:
            for _ in range(20):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
                poptorch.trainingModel(model, optimizer=optimizer)(x, y)
                gc.collect()
        except Exception as error:  # shown by the test
            failures.append(error)
        finally:
            stop.set()

    thread = threading.Thread(target=train_and_go)
    thread.start()
    while not stop.is_set():
        inference(x, y)
    thread.join()
    assert not failures
    torch.testing.assert_close(inference(x, y)[0], model(x, y)[0])
