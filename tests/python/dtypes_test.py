"""Types of tensors: what goes in, what a program computes with, what comes out."""
import poptorch
import pytest
import torch
import torch.nn as nn

QUIET = poptorch.Options().showCompilationProgressBar(False)


class Forward(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def run(function, *tensors):
    return poptorch.inferenceModel(Forward(function), QUIET.clone())(*tensors)


@pytest.mark.spec("10.2 int64 and float64")
@pytest.mark.parametrize(
    "wide, narrow", [(torch.int64, torch.int32), (torch.float64, torch.float32)]
)
def test_64_bits_become_32(wide, narrow):
    x = torch.tensor([1, 2, 3], dtype=wide)
    result = run(lambda x: x + 1, x)
    assert result.dtype == narrow and result.tolist() == [2, 3, 4]
    assert x.dtype == wide


@pytest.mark.spec("10.2 int64 and float64")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.argmax(1),
        lambda x: (x > 0).sum(),
        lambda x: x.sort(1).indices,
        lambda x: x.to(torch.int64),
        lambda x: (x > 0).long() * 3,
    ],
    ids=["argmax", "sum of bools", "sort", "to", "long"],
)
def test_results_that_are_int64_in_pytorch(function):
    x = torch.tensor([[1.5, -2.0, 7.0], [3.0, 9.0, 0.5]])
    result = run(function, x)
    assert result.dtype == torch.int32
    assert torch.equal(result.long(), function(x))


@pytest.mark.spec("10.2 bfloat16")
def test_bfloat16_inputs_are_floats():
    x = torch.tensor([1.5, 2.5], dtype=torch.bfloat16)
    result = run(lambda x: x * 2, x)
    assert result.dtype == torch.float32 and result.tolist() == [3, 5]


@pytest.mark.spec("10.2 native types")
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int32, torch.bool, torch.int8, torch.uint8, torch.int16]
)
def test_types_that_stay(dtype):
    x = torch.tensor([[0, 1], [1, 0]], dtype=dtype)
    moved, as_float = run(lambda x: (x.transpose(0, 1)[0], x.float() * 2), x)
    assert moved.dtype == dtype and moved.tolist() == x[:, 0].tolist()
    assert as_float.tolist() == [[0, 2], [2, 0]]


@pytest.mark.spec("10.2 other types")
def test_complex_numbers_are_refused():
    with pytest.raises(poptorch.Error, match="Complex"):
        run(lambda x: x * 2, torch.ones(2, dtype=torch.complex64))


@pytest.mark.spec("10.2 zero elements", "1.5 zero elements")
def test_tensors_without_elements_are_refused():
    with pytest.raises(poptorch.Error, match="no elements"):
        run(lambda x: x * 2, torch.ones(2, 0))


NARROW = [torch.bool, torch.uint8, torch.int16, torch.int32, torch.float32]


@pytest.mark.spec("10.2 promotion")
@pytest.mark.parametrize("one", NARROW)
@pytest.mark.parametrize("other", NARROW)
def test_promotion_is_pytorchs(one, other):
    x = torch.tensor([1, 0, 1], dtype=one)
    y = torch.tensor([1, 1, 0], dtype=other)

    def both(x, y):
        return x * y, x + 1, x * 1.5

    results, expected = run(both, x, y), both(x, y)
    for result, eager in zip(results, expected):
        wanted = torch.int32 if eager.dtype == torch.int64 else eager.dtype
        assert result.dtype == wanted
        assert result.tolist() == eager.tolist()


@pytest.mark.spec("10.2 integer parameters")
def test_integer_parameters_and_buffers():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = nn.Parameter(torch.tensor([3, 1, 2]), requires_grad=False)
            self.register_buffer("offset", torch.tensor([10, 20, 30], dtype=torch.int32))

        def forward(self, x):
            return x + self.steps, x * self.offset

    summed, product = poptorch.inferenceModel(Table(), QUIET.clone())(torch.ones(3))
    assert summed.tolist() == [4, 2, 3] and product.tolist() == [10, 20, 30]


LARGE = 2**40


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + LARGE,
        lambda x: x < LARGE,
        lambda x: x.masked_fill(x > 1, LARGE),
        lambda x: x.clone().fill_(LARGE),
        lambda x: x + torch.arange(LARGE, LARGE + 3),
        lambda x: x + torch.full((3,), LARGE),
        lambda x: torch.where(x > 1, x, LARGE),
    ],
)
def test_an_integer_constant_beyond_32_bits_is_an_error(function):
    with pytest.raises(poptorch.Error, match="32 bits|2\\^32"):
        run(function, torch.tensor([1, 2, 3]))


@pytest.mark.parametrize("form", [lambda x: x, lambda x: x.view(2, 2).t()])
def test_an_integer_input_beyond_32_bits_is_an_error(form):
    x = torch.tensor([1, 2, -(2**31), 2**31 - 1])
    model = poptorch.inferenceModel(Forward(lambda labels: labels + 0), QUIET.clone())
    assert model(form(x)).tolist() == form(x).tolist()
    x[1] = 2**31
    with pytest.raises(poptorch.Error, match="input '.*' holds 2147483648, .* 32 bits"):
        model(form(x))


def test_an_integer_buffer_beyond_32_bits_is_an_error():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("offset", torch.tensor([1, LARGE]))

        def forward(self, x):
            return x + self.offset

    with pytest.raises(poptorch.Error, match=f"buffer 'offset' holds {LARGE}"):
        poptorch.inferenceModel(Table(), QUIET.clone())(torch.ones(2))


REDUCTIONS = {
    "cumsum": (lambda x, out: torch.cumsum(x, 1, out=out), (2, 3)),
    "cumprod": (lambda x, out: torch.cumprod(x, 1, out=out), (2, 3)),
    "sum": (lambda x, out: torch.sum(x, 1, out=out), (2,)),
    "nansum": (lambda x, out: torch.nansum(x, 1, out=out), (2,)),
    "prod": (lambda x, out: torch.prod(x, 1, out=out), (2,)),
    "mean": (lambda x, out: torch.mean(x, 1, out=out), (2,)),
    "amax": (lambda x, out: torch.amax(x, 1, out=out), (2,)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32])
def test_out_decides_the_type_of_a_reduction(name, dtype):
    reduction, shape = REDUCTIONS[name]

    def into(x):
        out = torch.zeros(shape, dtype=dtype)
        reduction(x, out)
        return out

    x = torch.tensor([[1.5, 2.7, 3.6], [0.4, 0.9, 5.5]])
    try:
        expected = into(x)
    except RuntimeError:
        with pytest.raises(poptorch.Error):
            run(into, x)
        return
    result = run(into, x)
    assert result.dtype == (torch.int32 if dtype == torch.int64 else dtype)
    torch.testing.assert_close(result.double(), expected.double())


def test_autocast_is_mentioned(capfd):
    def halved(x):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ x

    x = torch.full((4, 4), 1.001)
    torch.testing.assert_close(run(halved, x), x @ x)
    assert "torch.autocast" in capfd.readouterr().err


def test_autocast_around_a_model_keeps_no_weights():
    layer = nn.Linear(3, 3)
    x = torch.ones(2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        before = layer(x)
        poptorch.inferenceModel(layer, QUIET.clone())(x)
        assert torch.equal(layer(x), before)


def test_sums_and_products_in_bool_are_of_bools():
    x = torch.tensor([[1.6, -1.6], [0.4, 0.4]])
    total, product = run(lambda x: (x.sum(1, dtype=torch.bool), x.prod(1, dtype=torch.bool)), x)
    assert total.tolist() == [True, True] and product.tolist() == [True, True]


def test_out_takes_the_shape_of_the_result():
    vector, matrix = torch.rand(3), torch.rand(3, 4)
    into = lambda v, m: torch.matmul(v, m, out=torch.zeros(4))  # noqa: E731
    torch.testing.assert_close(run(into, vector, matrix), vector @ matrix)
    empty = lambda v, m: torch.mul(v, 2, out=torch.empty(0))  # noqa: E731
    torch.testing.assert_close(run(empty, vector, matrix), vector * 2)
