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
