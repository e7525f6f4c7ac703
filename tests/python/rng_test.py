"""Random numbers of programs: seeds, where they are, and that they go on where they stopped."""

import poptorch
import pytest
import torch
import torch.nn as nn


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 64)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        y = self.dropout(self.fc(x))
        return y, poptorch.identity_loss(y, reduction="sum")


def noise(seed=None):
    options = poptorch.Options()
    if seed is not None:
        options.randomSeed(seed)
    return poptorch.inferenceModel(Noise(), options)


X = torch.zeros(16)


@pytest.mark.spec("12 randomSeed", "2.2 randomSeed", "12 rng advances")
def test_equal_seeds_give_equal_runs():
    a, b, c = noise(7), noise(7), noise(8)
    first = a(X)
    assert torch.equal(first, b(X))
    assert not torch.equal(first, c(X))
    second = a(X)
    assert not torch.equal(first, second)
    assert torch.equal(second, b(X))


@pytest.mark.spec("12 randomSeed", "12 manual_seed")
def test_manual_seed_does_not_reach_the_device():
    torch.manual_seed(5)
    a = noise(7)(X)
    torch.manual_seed(6)
    executor = noise(7)
    torch.manual_seed(9)
    assert torch.equal(a, executor(X))
    without = []
    for _ in range(2):
        torch.manual_seed(1)
        without.append(noise()(X))
    assert not torch.equal(*without)


@pytest.mark.spec("12 manual_seed", "2.2 randomSeed")
def test_running_does_not_disturb_the_hosts_random_numbers():
    executor = noise(3)  # the option seeds PyTorch, at once
    expected = torch.rand(3)
    again = noise(3)
    again(X)
    again(X)
    assert torch.equal(torch.rand(3), expected)
    assert not executor.isCompiled()


@pytest.mark.spec("12 rng advances")
def test_every_micro_batch_draws_anew():
    options = poptorch.Options().deviceIterations(4).randomSeed(1)
    rows = poptorch.inferenceModel(Noise(), options)(torch.zeros(4, 8))
    assert len({tuple(row.tolist()) for row in rows}) == 4


@pytest.mark.spec("1.4 rng_state")
def test_rng_state_before_and_after_runs():
    executor = noise(11)
    with pytest.raises(poptorch.Error, match="not been compiled"):
        executor.rng_state
    with pytest.raises(poptorch.Error, match="not been compiled"):
        executor.rng_state = [1]
    executor.compile(X)
    assert executor.rng_state == [11]
    executor(X)
    state = executor.rng_state
    assert state[0] == 11 and len(state) > 1 and all(isinstance(word, int) for word in state)
    executor(X)
    assert executor.rng_state != state

    unseeded = noise()
    unseeded.compile(X)
    assert unseeded.rng_state is None
    unseeded.rng_state = None  # as it was given: nothing to restore
    unseeded(X)
    assert len(unseeded.rng_state) > 1


@pytest.mark.spec("1.4 rng_state", "12 rng advances")
def test_setting_the_state_repeats_what_followed():
    executor = noise(11)
    executor(X)
    state = executor.rng_state
    following = [executor(X) for _ in range(3)]
    executor.rng_state = state
    assert executor.rng_state == state
    assert all(torch.equal(executor(X), value) for value in following)
    executor.rng_state = [11]  # from the beginning
    assert executor.rng_state == [11]
    assert torch.equal(executor(X), noise(11)(X))
    # ... and in another executor, seeded otherwise or not at all
    for other in (noise(99), noise()):
        other.compile(X)
        other.rng_state = state
        assert torch.equal(other(X), following[0])


@pytest.mark.spec("1.4 rng_state")
@pytest.mark.parametrize("state", [[], [1, 2, 3]], ids=str)
def test_a_state_of_another_length_is_refused(state):
    executor = noise(1)
    executor.compile(X)
    with pytest.raises(ValueError, match="rng_state"):
        executor.rng_state = state


@pytest.mark.spec("12 rng across detach", "1.4 detachFromDevice", "1.4 attachToDevice")
def test_the_state_survives_detaching():
    straight, detached = noise(4), noise(4)
    assert torch.equal(straight(X), detached(X))
    state = detached.rng_state
    detached.detachFromDevice()
    assert detached.rng_state == state
    assert torch.equal(straight(X), detached(X))
    # Set while it is detached, it is what the next attaching sends.
    detached.detachFromDevice()
    detached.rng_state = state
    detached.attachToDevice()
    assert torch.equal(detached(X), (lambda e: (e(X), e(X))[1])(noise(4)))


@pytest.mark.spec("12 randomSeed", "12 dropout flag")
def test_dropout_follows_seed_and_flag():
    x = torch.ones(4, 64)

    def run(training, seed):
        torch.manual_seed(0)
        model = Dropped()
        model.train(training)
        options = poptorch.Options().randomSeed(seed)
        return poptorch.inferenceModel(model, options)(x)[0]

    assert (run(False, 1) == 0).sum() == 0
    dropped = run(True, 1)
    assert 0.3 < (dropped == 0).float().mean() < 0.7
    assert torch.equal(dropped, run(True, 1))
    assert not torch.equal(dropped == 0, run(True, 2) == 0)


@pytest.mark.spec("12 randomSeed")
def test_two_trainings_with_one_seed_are_the_same_bits():
    def train():
        torch.manual_seed(0)
        model = Dropped().train()
        options = poptorch.Options().randomSeed(42).deviceIterations(3)
        executor = poptorch.trainingModel(
            model, options, torch.optim.SGD(model.parameters(), lr=0.01)
        )
        for _ in range(3):
            executor(torch.ones(6, 64))
        return model.fc.weight.detach().clone()

    assert torch.equal(train(), train())
