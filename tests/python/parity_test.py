"""Training through the program against eager PyTorch."""

import copy

import poptorch
import pytest
import torch
from models import MLP, BatchNormCNN, SeedCNN, batch, relative

MODELS = [SeedCNN, MLP, BatchNormCNN]


@pytest.fixture(autouse=True)
def precise(monkeypatch):
    """The fast setting rounds more in large convolutions: precision_test.py is about that."""
    monkeypatch.setenv("TESSERA_PRECISION", "precise")


def make(model_class, seed=1):
    torch.manual_seed(seed)
    model = model_class()
    model.train()
    return model


def eager_gradients(model, inputs, dtype):
    model = copy.deepcopy(model).to(dtype)
    x, labels = inputs
    _, loss = model(x.to(dtype), labels)
    loss.backward()
    return {name: p.grad.double() for name, p in model.named_parameters()}


def our_gradients(model, inputs):
    # A power of two: the step that is taken is the gradient, not its rounding against the weight.
    lr = 2.0**40
    model = copy.deepcopy(model)
    before = {name: p.detach().clone().double() for name, p in model.named_parameters()}
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=lr))
    executor(*inputs)
    after = {name: p.detach().double() for name, p in model.named_parameters()}
    return {name: (before[name] - after[name]) / lr for name in before}


@pytest.mark.parametrize("model_class", MODELS)
def test_gradients_are_as_close_to_float64_as_eager(model_class):
    model = make(model_class)
    inputs = batch(model_class.__name__)
    exact = eager_gradients(model, inputs, torch.float64)
    eager = eager_gradients(model, inputs, torch.float32)
    ours = our_gradients(model, inputs)
    for name in exact:
        # A bias before a batch norm has no gradient: only its size matters, not its direction.
        if exact[name].norm() < 1e-9:
            assert ours[name].norm() < 1e-6, name
            continue
        allowed = 3 * relative(eager[name], exact[name]) + 1e-5
        assert relative(ours[name], exact[name]) <= allowed, name


SGD_VARIANTS = [
    {"lr": 0.01},
    {"lr": 0.01, "momentum": 0.9},
    {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01},
    {"lr": 0.01, "momentum": 0.9, "dampening": 0.5},
    {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
]


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, poptorch.optim.SGD])
@pytest.mark.parametrize("numbers", SGD_VARIANTS, ids=lambda n: "-".join(n))
@pytest.mark.parametrize("model_class", MODELS)
def test_twenty_steps_follow_eager(model_class, numbers, optimizer_class):
    model = make(model_class)
    reference = copy.deepcopy(model)
    eager = torch.optim.SGD(reference.parameters(), **numbers)
    executor = poptorch.trainingModel(
        model, optimizer=optimizer_class(model.parameters(), **numbers)
    )
    for step in range(20):
        inputs = batch(model_class.__name__, seed=step)
        eager.zero_grad()
        output, loss = reference(*inputs)
        loss.backward()
        eager.step()
        our_output, our_loss = executor(*inputs)
        torch.testing.assert_close(our_loss, loss.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(our_output, output.detach(), rtol=1e-3, atol=1e-4)
    expected = reference.state_dict()
    for name, value in model.state_dict().items():
        assert relative(value.double(), expected[name].double()) <= 1e-5, name


def test_parameter_groups_have_their_own_numbers():
    model = make(MLP)
    reference = copy.deepcopy(model)

    def groups(m):
        return [
            {"params": m.layers[0].parameters(), "lr": 0.1},
            {"params": m.layers[2].parameters(), "weight_decay": 0.1},
        ]  # the last layer is in no group

    eager = torch.optim.SGD(groups(reference), lr=0.01, momentum=0.5)
    executor = poptorch.trainingModel(
        model, optimizer=poptorch.optim.SGD(groups(model), lr=0.01, momentum=0.5)
    )
    for step in range(5):
        inputs = batch("MLP", seed=step)
        eager.zero_grad()
        reference(*inputs)[1].backward()
        eager.step()
        executor(*inputs)
    for (name, ours), theirs in zip(model.named_parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-5, atol=1e-6, msg=name)


def test_set_optimizer_changes_the_learning_rate_without_compiling():
    model = make(MLP)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, optimizer=optimizer)
    inputs = batch("MLP")
    executor(*inputs)
    compiled = executor.compilationTime()
    optimizer.param_groups[0]["lr"] = 0.0
    executor.setOptimizer(optimizer)
    before = copy.deepcopy(model.state_dict())
    executor(*inputs)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert executor.compilationTime() == compiled


@pytest.mark.parametrize("accumulation,iterations", [(4, 1), (1, 3), (2, 3)])
def test_accumulation_and_device_iterations_equal_separate_steps(accumulation, iterations):
    model = make(SeedCNN)
    reference = copy.deepcopy(model)
    options = poptorch.Options().deviceIterations(iterations)
    options.Training.gradientAccumulation(accumulation)
    executor = poptorch.trainingModel(
        model, options, poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    )
    count = accumulation * iterations
    x, labels = batch("SeedCNN", size=4 * count)
    output, loss = executor(x, labels)
    assert output.shape == (4, 10) and loss.shape == ()

    eager = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9)
    for i in range(iterations):
        eager.zero_grad()
        for j in range(accumulation):
            k = (i * accumulation + j) * 4
            _, last = reference(x[k : k + 4], labels[k : k + 4])
            (last / accumulation).backward()
        eager.step()
    torch.testing.assert_close(loss, last.detach(), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-4, atol=1e-6)


def test_batch_norm_statistics_follow_eager():
    model = make(BatchNormCNN)
    reference = copy.deepcopy(model)
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0))
    for step in range(3):
        inputs = batch("BatchNormCNN", seed=step)
        executor(*inputs)
        reference(*inputs)
    for (name, ours), theirs in zip(model.named_buffers(), reference.buffers()):
        torch.testing.assert_close(ours.detach(), theirs, rtol=1e-5, atol=1e-6, msg=name)
    assert model.bn1.num_batches_tracked.item() == 3
    assert model.bn1.num_batches_tracked.dtype == torch.int64


def train_bits(monkeypatch, threads, dropout=0.3):
    monkeypatch.setenv("TESSERA_NUM_THREADS", str(threads))
    torch.manual_seed(3)
    model = BatchNormCNN(dropout).train()
    options = poptorch.Options().randomSeed(7).deviceIterations(2)
    executor = poptorch.trainingModel(
        model, options, poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    )
    losses = [executor(*batch("BatchNormCNN", size=32, seed=s))[1] for s in range(5)]
    return losses, {k: v.clone() for k, v in model.state_dict().items()}


def test_same_bits_twice_and_for_any_number_of_threads(monkeypatch):
    first_losses, first = train_bits(monkeypatch, 1)
    for threads in (1, 2, 3):
        losses, weights = train_bits(monkeypatch, threads)
        assert all(torch.equal(a, b) for a, b in zip(losses, first_losses))
        assert all(torch.equal(weights[k], first[k]) for k in first)
