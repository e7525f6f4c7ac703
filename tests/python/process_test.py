"""Executors as guests in a Python process: the interpreter's lock, Ctrl-C, threads."""

import copy
import os
import signal
import threading
import time

import poptorch
import pytest
import torch
import torch.nn as nn
from models import MLP, BatchNormCNN, batch


class Heavy(nn.Module):
    """A call of many device iterations takes long enough to be interrupted."""

    def __init__(self, size=160):
        super().__init__()
        self.layer = nn.Linear(size, size)

    def forward(self, x):
        for _ in range(8):
            x = torch.tanh(self.layer(x))
        return x, poptorch.identity_loss(x, reduction="mean")


def heavy(iterations):
    torch.manual_seed(1)
    model = Heavy()
    executor = poptorch.trainingModel(model, poptorch.Options().deviceIterations(iterations))
    x = torch.randn(160, 160).repeat(iterations, 1)
    executor.compile(x)
    return model, executor, x


def test_ctrl_c_ends_a_long_call_and_the_executor_goes_on():
    model, executor, x = heavy(4000)
    before = model.layer.weight.detach().clone()
    pressed = []

    def press():
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.3, press).start()
    with pytest.raises(KeyboardInterrupt):
        executor(x)
        pytest.skip("the machine finished the call before it was interrupted")
    after = model.layer.weight.detach().clone()
    assert not torch.equal(before, after)  # what was done before stays done
    assert after.isfinite().all()
    executor.detachFromDevice()
    assert torch.equal(model.layer.weight, after)
    executor.destroy()


def test_other_threads_of_python_run_during_a_call():
    _, executor, x = heavy(300)
    ticks = []
    done = threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    executor(x)
    end = time.monotonic()
    done.set()
    thread.join()
    assert sum(start < t < end for t in ticks) > 2


def train(model, steps=30):
    options = poptorch.Options().randomSeed(3)
    executor = poptorch.trainingModel(model, options)
    for step in range(steps):
        executor(*batch(model.__class__.__name__.replace("Poptorch", ""), seed=step))
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_two_executors_on_two_threads():
    models = [MLP().train(), BatchNormCNN().train(), MLP().train()]
    expected = [train(copy.deepcopy(model)) for model in models]
    results = [None] * 3

    def work(i, model):
        results[i] = train(model)

    threads = [threading.Thread(target=work, args=item) for item in enumerate(models)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours, alone in zip(results, expected):
        assert ours is not None
        assert all(torch.equal(ours[name], alone[name]) for name in alone)


def test_one_executor_on_two_threads_takes_turns():
    torch.manual_seed(7)
    model = MLP().train()
    executor = poptorch.inferenceModel(model)
    x = torch.randn(16, 20)
    expected = executor(x)
    wrong = []

    def work():
        for _ in range(50):
            if not torch.equal(executor(x), expected):
                wrong.append(True)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_eager_work_on_another_thread_is_not_captured():
    """While one thread captures, another works eagerly with the same functions."""
    stop = threading.Event()
    failures = []

    def eager():
        while not stop.is_set():
            try:
                value = torch.ones(3).add(1)
                assert value.tolist() == [2.0, 2.0, 2.0]
                assert value.numpy().sum() == 6
                assert "2." in repr(value)
            except Exception as error:  # reported below
                failures.append(error)
                return

    thread = threading.Thread(target=eager)
    thread.start()
    for _ in range(20):
        poptorch.trainingModel(MLP().train()).compile(*batch("MLP"))
    stop.set()
    thread.join()
    assert not failures
