"""What forward may and may not do while it is captured, and what it may return."""

import inspect

import poptorch
import pytest
import torch
import torch.nn as nn
from scale import X, check_against_eager, train


# Values


def asks_int(self, y):
    return y[: int(y.sum())]


def asks_index(self, y):
    return y[list(range(y.argmax()))]


def asks_in(self, y):
    return y if y[0, 0] in [1.0, 2.0] else -y


def asks_equal(self, y):
    return y if torch.equal(y, y * 2) else -y


def copies_to_host(self, y):
    return y * y.detach().cpu()


def asserts(self, y):
    assert (y > -100).all()
    return y


@pytest.mark.spec("1.6 values are not there")
@pytest.mark.parametrize(
    "body",
    [asks_int, asks_index, asks_in, asks_equal, copies_to_host, asserts],
    ids=lambda b: b.__name__,
)
def test_other_ways_to_ask_for_a_value(body):
    lines, start = inspect.getsourcelines(body)
    with pytest.raises(poptorch.Error, match="looked at the value") as error:
        train(body)
    line = int(str(error.value).split("tracing_test.py:")[1].split(":")[0].split(" ")[0])
    assert start < line < start + len(lines)


@pytest.mark.spec("1.6 values are not there", "1.6 device of tensors")
def test_moving_constants_and_asking_for_the_device_is_no_question_for_a_value():
    def body(self, y):
        assert y.device.type == "cpu"
        mask = torch.tensor([1.0, 0.0, 2.0]).cpu().to(y.device)
        return y.to(y.device) * mask + torch.zeros(3, device=y.device)

    check_against_eager(body)


FACTORIES = {
    "arange": lambda: torch.arange(3) + torch.arange(0.0, 3.0),
    "empty": lambda: torch.empty(3).fill_(2),
    "full": lambda: torch.full((3,), 1.5),
    "full_like": lambda: torch.full_like(torch.ones(3), 2.5),
    "linspace": lambda: torch.linspace(0, 1, 3),
    "logspace": lambda: torch.logspace(0, 1, 3),
    "ones": lambda: torch.ones(3),
    "range": lambda: torch.arange(1, 4),
    "tensor": lambda: torch.tensor([1.0, 2.0, 3.0]),
    "zeros": lambda: torch.zeros(3),
    "zeros_like": lambda: torch.zeros_like(torch.ones(3)),
    "ones_like": lambda: torch.ones_like(torch.zeros(3)),
    "eye": lambda: torch.eye(3)[1],
    "as_tensor": lambda: torch.as_tensor([3.0, 2.0, 1.0]),
    "from_numpy": lambda: torch.from_numpy(__import__("numpy").ones(3, "float32")),
}


@pytest.mark.spec("1.6 factory functions")
@pytest.mark.parametrize("name", FACTORIES)
def test_tensors_made_in_forward(name):
    check_against_eager(lambda self, y: y * FACTORIES[name]() + FACTORIES[name]())


RANDOM_FACTORIES = {
    "rand": (lambda: torch.rand(4000), 0.5),
    "randn": (lambda: torch.randn(4000), 0.0),
    "randint": (lambda: torch.randint(0, 5, (4000,)), 2.0),
    "randperm": (lambda: torch.randperm(4000), 1999.5),
    "normal": (lambda: torch.normal(3.0, 0.5, (4000,)), 3.0),
    "uniform_": (lambda: torch.empty(4000).uniform_(0, 2), 1.0),
    "bernoulli": (lambda: torch.bernoulli(torch.full((4000,), 0.25)), 0.25),
}


@pytest.mark.spec("1.6 factory functions")
@pytest.mark.parametrize("name", RANDOM_FACTORIES)
def test_random_tensors_made_in_forward_are_new_in_every_call(name):
    make, mean = RANDOM_FACTORIES[name]

    class Draws(nn.Module):
        def forward(self, x):
            return x + make()

    executor = poptorch.inferenceModel(Draws(), poptorch.Options().randomSeed(7))
    first, second = executor(torch.zeros(4000)), executor(torch.zeros(4000))
    assert not torch.equal(first, second)
    assert first.mean().item() == pytest.approx(mean, abs=0.1)


@pytest.mark.spec("1.6 constants from outside")
def test_tensors_from_outside_are_constants():
    outside = torch.tensor([1.0, 2.0, 3.0])

    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.tensor([10.0, 20.0, 30.0])  # not registered

        def forward(self, x):
            return x + outside * self.table

    model = Uses()
    executor = poptorch.inferenceModel(model)
    expected = X + torch.tensor([10.0, 40.0, 90.0])
    assert torch.equal(executor(X), expected)
    outside.zero_()
    model.table.zero_()
    assert torch.equal(executor(X), expected)  # compiled in


@pytest.mark.spec("1.6 distributions")
def test_distributions_do_not_look_at_their_arguments():
    class Draws(nn.Module):
        def forward(self, mean, scale):
            normal = torch.distributions.Normal(mean, scale)
            return normal.log_prob(mean + 1), torch.distributions.Bernoulli(scale).probs

    checks = torch.distributions.Distribution._validate_args
    mean, scale = torch.zeros(3), torch.full((3,), 0.5)
    result, _ = poptorch.inferenceModel(Draws())(mean, scale)
    torch.testing.assert_close(result, torch.distributions.Normal(mean, scale).log_prob(mean + 1))
    assert torch.distributions.Distribution._validate_args == checks  # outside they do as before


# Registered tensors


def assigns_parameter(self):
    self.weight = nn.Parameter(self.weight * 2)


def deletes_parameter(self):
    del self.weight


def assigns_buffer(self):
    self.steps = self.steps + 1


def deletes_buffer(self):
    del self.steps


def assigns_in_part(self):
    self.part.bias = nn.Parameter(torch.ones(2))


def registers_anew(self):
    self.register_buffer("brand_new", torch.ones(2))


class Changes(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("steps", torch.zeros(2))
        self.part = nn.Linear(2, 2)
        self.change = change

    def forward(self, x):
        y = self.part(x * self.weight + self.steps)
        self.change(self)
        return poptorch.identity_loss(y, "sum")


@pytest.mark.spec("1.6 parameter assignment")
@pytest.mark.parametrize(
    "change,name",
    [
        (assigns_parameter, "weight"),
        (deletes_parameter, "weight"),
        (assigns_buffer, "steps"),
        (deletes_buffer, "steps"),
        (assigns_in_part, "part.bias"),
        (registers_anew, "brand_new"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
@pytest.mark.parametrize("wrap", [poptorch.trainingModel, poptorch.inferenceModel])
def test_forward_must_not_assign_or_delete(change, name, wrap):
    model = Changes(change)
    before = dict(model.named_parameters()), dict(model.named_buffers())
    executor = wrap(model)
    with pytest.raises(
        poptorch.Error, match=f"(Parameter|Buffer) {name} is .*when calling the forward method"
    ):
        executor(torch.ones(1, 2))
    after = dict(model.named_parameters()), dict(model.named_buffers())
    for a, b in zip(before, after):
        assert list(a) == list(b) and all(a[k] is b[k] for k in a)


@pytest.mark.spec("1.6 parameter assignment")
def test_copying_into_a_buffer_is_the_way():
    def body(self, y):
        self.steps.copy_(self.steps * 2 + 1)
        return y * self.steps

    check_against_eager(body)


@pytest.mark.spec("1.6 batch norm exempt")
def test_batch_norm_may_count():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return poptorch.identity_loss(self.inner(x), "mean")

    executor = poptorch.trainingModel(Loss())
    executor(torch.randn(8, 3))
    assert model[0].running_mean.abs().sum() > 0


# Operators


@pytest.mark.spec("1.6 unsupported operators")
def test_all_operators_that_no_program_can_have_are_named():
    def body(self, y):
        spectrum = torch.fft.rfft(y)
        magnitude = spectrum.abs()
        return torch.view_as_real(spectrum * 1j).sum() + magnitude.sum() + y.sum()

    with pytest.raises(poptorch.Error) as error:
        train(body)
    message = str(error.value)
    for name in ("aten::_fft_r2c", "aten::abs", "aten::mul.Tensor"):
        assert name in message, message
    assert "tracing_test.py" in message and "ComplexFloat" in message
    assert "aten::add" not in message and "aten::sum" not in message


@pytest.mark.spec("1.6 unsupported operators")
def test_a_sparse_matrix_is_named_too():
    matrix = torch.eye(2).to_sparse()

    with pytest.raises(poptorch.Error, match="not supported.*Sparse"):
        train(lambda self, y: torch.sparse.mm(matrix, y))


@pytest.mark.spec("1.6 unsupported operators")
def test_complex_constants_are_worked_out():
    def body(self, y):
        turn = torch.polar(torch.ones(3), torch.tensor([0.0, 1.0, 2.0]))
        return y * turn.real + turn.imag

    check_against_eager(body)


# Results


def infer(forward, *args, options=None):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.tensor([7.0, 8.0])
            self.scale = nn.Parameter(torch.tensor([2.0]))

    Model.forward = forward
    executor = poptorch.inferenceModel(Model(), options)
    return executor, executor(*args)


@pytest.mark.spec("1.6 None output")
def test_forward_may_return_nothing():
    executor, result = infer(lambda self, x: None, X)
    assert result is None and executor(X) is None
    _, result = infer(lambda self, x: (x + 1, None, [None, {"a": None}]), X)
    assert torch.equal(result[0], X + 1) and result[1:] == (None, [None, {"a": None}])

    def changes(self, x):
        x.mul_(2)

    x = torch.ones(2)
    executor, _ = infer(changes, x)
    executor(x)
    assert x.tolist() == [4.0, 4.0]


@pytest.mark.spec("1.6 returned structure")
def test_values_that_are_no_tensors_come_back_as_captured():
    calls = []

    def forward(self, x):
        calls.append(1)
        return {"z": x + 1, "a": ("text", len(calls)), "shape": x.shape, "type": x.dtype}

    executor, first = infer(forward, X)
    second = executor(X * 2)
    assert list(first) == list(second) == ["z", "a", "shape", "type"]
    assert second["a"] == ("text", 1) and second["shape"] == (2, 3)
    assert second["type"] is torch.float32 and torch.equal(second["z"], X * 2 + 1)


@pytest.mark.spec("1.6 returned structure")
def test_named_results_of_pytorch_keep_their_type():
    _, result = infer(lambda self, x: torch.max(x, 1), X)
    assert type(result) is torch.return_types.max and result.indices.tolist() == [2, 1]


@pytest.mark.spec("1.6 host outputs")
def test_a_tensor_from_outside_is_returned_as_captured_with_a_warning():
    options = poptorch.Options().deviceIterations(2)
    with pytest.warns(UserWarning, match="Output expected to be on the IPU"):
        executor, (computed, table) = infer(lambda self, x: (x + 1, self.table), X, options=options)
    assert table.tolist() == [7.0, 8.0] and computed.shape == (2, 3)
    assert executor(X)[1].tolist() == [7.0, 8.0]


@pytest.mark.spec("1.6 host outputs")
def test_a_constant_made_in_forward_is_no_warning_and_new_in_every_call(recwarn):
    options = poptorch.Options().deviceIterations(2)
    executor, (_, made) = infer(lambda self, x: (x, torch.arange(3)), X, options=options)
    assert made.tolist() == [0, 1, 2] and made.dtype == torch.int32  # not multiplied, not 64-bit
    made.zero_()
    assert executor(X)[1].tolist() == [0, 1, 2]
    assert not [w for w in recwarn if "Output expected" in str(w.message)]


@pytest.mark.spec("1.6 output twice")
def test_a_tensor_returned_twice_is_two_tensors():
    def forward(self, x):
        y = x + 1
        return y, [y, y.view(-1)], x, self.scale, self.scale

    executor, _ = infer(forward, X)
    for _ in range(2):
        first, (second, flat), same, scale, again = executor(X)
        assert torch.equal(first, X + 1) and torch.equal(second, X + 1)
        assert torch.equal(flat, (X + 1).view(-1)) and torch.equal(same, X)
        assert scale.tolist() == again.tolist() == [2.0]
        first.zero_(), scale.zero_()
        assert torch.equal(second, X + 1) and again.tolist() == [2.0]
        assert same.data_ptr() != X.data_ptr()


@pytest.mark.spec("1.6 no device op")
@pytest.mark.parametrize(
    "forward,expected",
    [
        (lambda self, x: x, X),
        (lambda self, x: torch.ones(2), torch.ones(2)),
        (lambda self, x: torch.arange(4.0).sum(), torch.tensor(6.0)),
        (lambda self, x: self.scale, torch.tensor([2.0])),
        (lambda self, x: "text", "text"),
        (lambda self, x: x.shape, (2, 3)),
        (lambda self, x: x.view(3, 2), X.view(3, 2)),
    ],
    ids=["input", "constant", "computed constant", "weight", "text", "shape", "view"],
)
def test_models_without_any_operator_run(forward, expected):
    executor, first = infer(forward, X)
    for result in (first, executor(X), executor(X)):
        same = torch.equal if isinstance(expected, torch.Tensor) else (lambda a, b: a == b)
        assert same(result, expected)
    executor.copyWeightsToDevice()
    executor.detachFromDevice()
    executor.attachToDevice()
    executor.destroy()


@pytest.mark.spec("1.6 returned structure")
def test_an_object_that_hides_tensors_is_refused():
    class Hides:
        def __init__(self, value):
            self.value = value

    with pytest.raises(poptorch.Error, match="Hides.*'value'.*registerCustomArgParser"):
        infer(lambda self, x: Hides(x + 1), X)
    with pytest.raises(poptorch.Error, match="Hides.*'value'"):
        infer(lambda self, x: (x, [{"deep": Hides(x + 1)}]), X)
    for forward in (lambda self, x: {x + 1}, lambda self, x: Hides([x + 1])):
        with pytest.raises(poptorch.Error, match="would have no values"):
            infer(forward, X)
    with pytest.raises(poptorch.Error, match="generator.*tuple"):
        infer(lambda self, x: (x + i for i in range(2)), X)
    _, result = infer(lambda self, x: Hides(torch.ones(1)), X)
    assert result.value.item() == 1
