"""Weights that are replaced, or get other memory, after the model was compiled."""

import copy

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

X = torch.linspace(-1, 1, 12).reshape(4, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen += 1
        y = self.fc(x) * self.scale + self.seen
        return y, F.mse_loss(y, torch.zeros_like(y))


def made():
    torch.manual_seed(0)
    return Net()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def eager_step(model):
    """One step of what a training executor does in a call."""
    parameters = list(model.parameters())
    for p in parameters:
        p.grad = None
    y, loss = model(X)
    loss.backward()
    torch.optim.SGD(parameters, lr=0.1).step()
    return y.detach()


def new_memory(model):
    model.fc.weight.data = model.fc.weight.data * 2


def there_and_back(model):
    model.double()
    model.float()


def vector(model):
    flat = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(flat * 1.5, model.parameters())


def new_parameter(model):
    model.fc.weight = nn.Parameter(model.fc.weight.detach() * 2)


def new_parameter_of_the_model_itself(model):
    model.scale = nn.Parameter(model.scale.detach() * 3)


def new_module(model):
    torch.manual_seed(5)
    model.fc = nn.Linear(3, 3)


def new_buffer(model):
    model.register_buffer("seen", torch.full((3,), 10.0))


def assigned_buffer(model):
    model.seen = torch.full((3,), 20.0)


def transposed(model):
    model.fc.weight.data = torch.arange(9.0).reshape(3, 3).t()


CHANGES = [
    new_memory,
    there_and_back,
    vector,
    new_parameter,
    new_parameter_of_the_model_itself,
    new_module,
    new_buffer,
    assigned_buffer,
    transposed,
]


def assert_same(ours, theirs):
    ours, theirs = ours.state_dict(), theirs.state_dict()
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, msg=name)


@pytest.mark.spec("1.3 host edits need a push", "1.4 copyWeightsToDevice")
@pytest.mark.parametrize("push", [True, False], ids=["pushed", "at the next call"])
@pytest.mark.parametrize("change", CHANGES)
def test_training_goes_on_with_what_the_module_has_now(change, push):
    model, eager = made(), made()
    executor = poptorch.trainingModel(model, optimizer=sgd(model))
    for _ in range(2):
        executor(X)
        eager_step(eager)
    change(model)
    change(eager)
    if push:
        executor.copyWeightsToDevice()
    for _ in range(2):
        y, _ = executor(X)
        torch.testing.assert_close(y, eager_step(eager))
    # Before anything else looks at a weight.
    torch.testing.assert_close(model.fc.weight.detach() + 0, eager.fc.weight.detach())
    executor(X)
    eager_step(eager)
    assert_same(model, eager)


@pytest.mark.parametrize("change", CHANGES)
def test_inference_sees_what_the_module_has_now(change):
    model, eager = made().eval(), made().eval()
    executor = poptorch.inferenceModel(model)
    executor(X)
    eager(X)
    change(model)
    change(eager)
    torch.testing.assert_close(executor(X)[0], eager(X)[0].detach())


@pytest.mark.parametrize("change", CHANGES)
def test_a_training_and_an_inference_model_share_what_was_replaced(change):
    model, eager = made(), made()
    training = poptorch.trainingModel(model, optimizer=sgd(model))
    training(X)
    eager_step(eager)
    inference = poptorch.inferenceModel(model)

    def check():
        copied = copy.deepcopy(eager)
        copied.seen = copied.seen.clone()
        torch.testing.assert_close(inference(X)[0], copied(X)[0].detach())

    check()
    change(model)
    change(eager)
    training(X)
    eager_step(eager)
    check()
    training(X)
    eager_step(eager)
    check()


def test_what_was_trained_belongs_to_the_tensor_that_was_there():
    model, eager = made(), made()
    executor = poptorch.trainingModel(model, optimizer=sgd(model))
    before, expected = model.fc.weight, eager.fc.weight
    executor(X)
    eager_step(eager)
    model.fc.weight = nn.Parameter(torch.zeros(3, 3))  # nobody has looked at the trained ones
    eager.fc.weight = nn.Parameter(torch.zeros(3, 3))
    assert_same(model, eager)
    torch.testing.assert_close(before.detach(), expected.detach())
    executor(X)
    eager_step(eager)
    assert_same(model, eager)
    torch.testing.assert_close(before.detach(), expected.detach())


def test_replacing_one_weight_keeps_the_training_of_the_others():
    model, eager = made(), made()
    executor = poptorch.trainingModel(model, optimizer=sgd(model))
    executor(X)
    eager_step(eager)
    for module in (model, eager):
        module.fc.weight = nn.Parameter(torch.zeros(3, 3))
    executor.copyWeightsToDevice()
    assert_same(model, eager)


def test_copy_weights_to_host_writes_to_what_is_there_now():
    model = made()
    executor = poptorch.trainingModel(model, optimizer=sgd(model))
    executor(X)
    trained = model.fc.weight.detach().clone()
    model.fc.weight = nn.Parameter(torch.zeros(3, 3))
    executor.copyWeightsToHost()
    assert torch.equal(model.fc.weight, trained)
    executor.destroy()
    assert torch.equal(model.fc.weight, trained)


def test_a_checkpoint_has_the_trained_weights():
    model = made()
    executor = poptorch.trainingModel(model, optimizer=sgd(model))
    executor(X)
    model.fc.weight = nn.Parameter(torch.zeros(3, 3))
    for _ in range(3):
        executor(X)
    saved = {k: v.clone() for k, v in model.state_dict().items()}
    assert saved["fc.weight"].abs().sum() > 0
    executor.copyWeightsToHost()
    for name, value in model.state_dict().items():
        assert torch.equal(value, saved[name])


def other_shape(model):
    model.fc.weight = nn.Parameter(torch.zeros(1, 3))


def other_type(model):
    model.half()


def gone(model):
    del model.fc.weight
    model.fc.weight = torch.zeros(3, 3)


MISFITS = {
    other_shape: r"parameter 'fc.weight' changed .*was Float\[3, 3\], now it is Float\[1, 3\]",
    other_type: r"'\S+' changed .*was Float\[3.*\], now it is Half\[3.*\]",
    gone: r"parameter 'fc.weight' changed .*the module has it no longer",
}


@pytest.mark.parametrize("change", MISFITS)
def test_a_weight_that_no_longer_fits_is_named(change):
    model = made()
    executor = poptorch.trainingModel(model, optimizer=sgd(model))
    executor(X)
    scale = model.scale.detach().clone()
    change(model)
    for act in (
        lambda: executor(X),
        executor.copyWeightsToDevice,
        executor.copyWeightsToHost,
        lambda: executor(x=X),
    ):
        with pytest.raises(poptorch.Error, match=MISFITS[change]):
            act()
    model.state_dict()  # reading is no crime
    executor.destroy()
    torch.testing.assert_close(model.scale.detach().float(), scale, atol=1e-3, rtol=1e-3)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(3, 3, bias=False)
        self.decode = nn.Linear(3, 3, bias=False)
        self.decode.weight = self.encode.weight

    def forward(self, x):
        y = self.decode(torch.tanh(self.encode(x)))
        return y, F.mse_loss(y, x)


def test_tied_weights_stay_tied_or_are_refused():
    model = Tied()
    executor = poptorch.trainingModel(model)
    executor(X)
    both = nn.Parameter(torch.eye(3))
    model.encode.weight = model.decode.weight = both
    expected = torch.tanh(X)
    torch.testing.assert_close(executor(X)[0], expected)
    assert model.encode.weight is both and not torch.equal(both, torch.eye(3))
    model.decode.weight = nn.Parameter(torch.eye(3))
    for _ in range(2):
        with pytest.raises(poptorch.Error, match="'encode.weight' .*tensor as 'decode.weight'"):
            executor(X)
    with pytest.raises(poptorch.Error, match="'encode.weight' .*same tensor as 'decode.weight'"):
        executor.copyWeightsToDevice()


def test_weights_that_become_one_are_refused():
    model = Tied()
    model.decode = nn.Linear(3, 3, bias=False)
    executor = poptorch.trainingModel(model)
    executor(X)
    model.decode.weight = model.encode.weight
    for _ in range(2):
        with pytest.raises(poptorch.Error, match="'decode.weight' .*memory with 'encode.weight'"):
            executor(X)
    model.decode.weight = nn.Parameter(torch.zeros(3, 3))
    assert executor(X)[0].abs().sum() == 0
    executor.copyWeightsToHost()
    model.decode.weight.data = model.encode.weight.detach().clone()
    executor(X)
    model.decode.weight = nn.Parameter(model.encode.weight.detach().clone())
    model.encode.weight = model.decode.weight  # with the same values
    with pytest.raises(poptorch.Error, match="memory with"):
        executor(X)


class Derived(torch.Tensor):
    pass


def test_a_buffer_of_another_class_is_refused_in_every_call():
    model = made()
    executor = poptorch.trainingModel(model)
    executor(X)
    model.seen = torch.zeros(3).as_subclass(Derived)
    for _ in range(2):
        with pytest.raises(poptorch.Error, match="buffer 'seen' must be a torch.Tensor"):
            executor(X)


def test_modules_that_share_the_replaced_weight_of_another():
    """Two modules train; one takes the other's weight over."""
    first, second = made(), made()
    one = poptorch.trainingModel(first, optimizer=sgd(first))
    two = poptorch.trainingModel(second, optimizer=sgd(second))
    one(X), two(X)
    one(X)
    second.fc = first.fc  # newest on the device of the other executor
    eager = copy.deepcopy(second)
    y, _ = two(X)
    torch.testing.assert_close(y, eager_step(eager))
    eager_first = copy.deepcopy(first)
    torch.testing.assert_close(eager_first.fc.weight.detach(), eager.fc.weight.detach())
    y, _ = one(X)
    torch.testing.assert_close(y, eager_step(eager_first))


def test_a_changed_requires_grad_is_mentioned(caplog, capfd):
    model = made()
    executor = poptorch.trainingModel(model, optimizer=sgd(model))
    executor(X)
    model.fc.weight.requires_grad_(False)
    before = model.fc.weight.clone()
    executor(X)
    executor(X)
    text = caplog.text + capfd.readouterr().err
    assert text.count("requires_grad of 'fc.weight' became false") == 1
    assert not torch.equal(model.fc.weight, before)


def test_a_new_optimizer_over_the_new_parameters_is_accepted():
    model, eager = made(), made()
    optimizer = sgd(model)
    executor = poptorch.trainingModel(model, optimizer=optimizer)
    executor(X)
    eager_step(eager)
    new_parameter(model)
    new_parameter(eager)
    executor.setOptimizer(optimizer)  # the one before: its numbers count
    executor.setOptimizer(sgd(model))
    executor(X)
    eager_step(eager)
    assert_same(model, eager)
    other = made()
    with pytest.raises(poptorch.Error, match="parameters of group 0 cannot change"):
        executor.setOptimizer(sgd(other))


def test_weights_replaced_between_wrapping_and_compiling():
    model, eager = made(), made()
    executor = poptorch.trainingModel(model)
    new_parameter(model)
    new_parameter(eager)
    executor(X)
    loss = eager(X)[1]
    loss.backward()
    torch.optim.SGD(eager.parameters(), lr=0.01).step()
    assert_same(model, eager)


def test_channels_last_is_another_layout_of_the_same_weights():
    class Conv(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 2)

        def forward(self, x):
            y = self.conv(x)
            return (
                y,
                y.square().mean()
                if not poptorch.isRunningOnIpu()
                else poptorch.identity_loss(y.square(), "mean"),
            )

    torch.manual_seed(0)
    model = Conv()
    eager = copy.deepcopy(model)
    x = torch.randn(2, 3, 4, 4)
    executor = poptorch.trainingModel(model, optimizer=sgd(model))
    for step in range(3):
        if step == 1:
            model.to(memory_format=torch.channels_last)
        executor(x)
        optimizer = sgd(eager)
        optimizer.zero_grad()
        eager(x)[1].backward()
        optimizer.step()
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert_same(model, eager)


def test_a_tied_name_updates_a_named_buffer():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.ones(3))
            self.register_buffer("b", self.a)

        def forward(self, x):
            return x + self.a + self.b

    model = Twice()
    options = poptorch.Options().updatableNamedBuffers(["b"])
    executor = poptorch.inferenceModel(model, options)
    assert torch.equal(executor(X), X + 2)
    model.b.fill_(5)
    executor.copyNamedBuffersToDevice()
    torch.testing.assert_close(executor(X), X + 10)


def test_gradients_of_tied_parameters_survive_compiling():
    model = Tied()
    gradient = torch.ones(3, 3)
    model.encode.weight.grad = gradient
    poptorch.trainingModel(model)(X)
    assert model.encode.weight.grad is gradient


FREE = {
    "module.zero_grad": lambda model, optimizer: model.zero_grad(),
    "module.zero_grad(None)": lambda model, optimizer: model.zero_grad(set_to_none=True),
    "optimizer.zero_grad": lambda model, optimizer: optimizer.zero_grad(),
    "optimizer.zero_grad(None)": lambda model, optimizer: optimizer.zero_grad(set_to_none=True),
    "grad": lambda model, optimizer: model.fc.weight.grad,
    "numel": lambda model, optimizer: [p.numel() for p in [model.fc.weight]],
    "hash": lambda model, optimizer: {model.fc.weight},
}


@pytest.mark.parametrize("act", FREE)
def test_what_needs_no_values_fetches_none(act):
    model = made()
    optimizer = sgd(model)
    executor = poptorch.trainingModel(model, optimizer=optimizer)
    executor(X)
    model.fc.weight.grad = torch.ones(3, 3)
    FREE[act](model, optimizer)
    assert executor.copyWeightsToHostIfNeeded() is True
    gradient = model.fc.weight.grad
    assert "zero_grad" not in act or gradient is None or not gradient.any()


def test_a_weight_as_an_input_has_its_newest_values():
    class Product(nn.Module):
        def forward(self, x, w):
            return x @ w.t()

    model = made()
    training = poptorch.trainingModel(model, optimizer=sgd(model))
    product = poptorch.inferenceModel(Product())
    for _ in range(2):
        training(X)
        ours = product(X, model.fc.weight)
        torch.testing.assert_close(ours, X @ model.fc.weight.detach().t())


def test_an_overridden_copy_to_host_is_called():
    calls = []

    class Counting(poptorch.PoplarExecutor):
        def copyWeightsToHost(self):
            calls.append(1)
            super().copyWeightsToHost()

    model = made()
    executor = Counting(model, None, training=True, optimizer=sgd(model))
    executor(X)
    assert not calls
    model.state_dict()
    model.fc.weight + 0
    assert len(calls) == 1
    executor(X)
    executor.destroy()
    assert len(calls) == 2
