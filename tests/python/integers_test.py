"""Whole numbers wrap, divide and shift as eager's do on this processor, for all pairs of bytes."""

import poptorch
import pytest
import torch
import torch.nn as nn

PAIRS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "gcd": torch.gcd,
    "lcm": torch.lcm,
    "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "<< in place": lambda a, b: (a + 0).__ilshift__(b),
    "<< -1": lambda a, b: torch.bitwise_left_shift(a, -1),
    ">> 9": lambda a, b: a >> 9,
    "<< 33": lambda a, b: torch.bitwise_left_shift(a, 33),
    "floor": lambda a, b: torch.div(a, b | 1, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b | 1, rounding_mode="trunc"),
    "remainder": lambda a, b: torch.remainder(a, b | 1),
    "fmod": lambda a, b: torch.fmod(a, b | 1),
    "pow": lambda a, b: torch.pow(a, b.abs()),
    "chain": lambda a, b: ((a + b) * a - b).abs() * 3 + a,
    "to float and back": lambda a, b: ((a * b).float() * 0.5).to(a.dtype) + b,
    "compared": lambda a, b: torch.where((a + b) > a, a * 2, 1 - b),
    "sum": lambda a, b: (a + b).sum(),
}


class Pair(nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, a, b):
        return self.operator(a, b)


def check(operator, values):
    a, b = (column.contiguous() for column in torch.cartesian_prod(values, values).unbind(1))
    expected = operator(a, b)
    found = poptorch.inferenceModel(Pair(operator))(a, b)
    assert torch.equal(found.to(expected.dtype), expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_all_pairs_of_bytes_give_what_eager_gives(name, dtype):
    limits = torch.iinfo(dtype)
    check(PAIRS[name], torch.arange(limits.min, limits.max + 1).to(dtype))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32], ids=str)
@pytest.mark.parametrize("name", ["left_shift", "right_shift", "<<", ">>", "<< -1", "<< 33"])
def test_wider_numbers_shift_as_eager(name, dtype):
    limits = torch.iinfo(dtype)
    edges = [limits.min, limits.min + 1, limits.max - 1, limits.max, -1000, 1000, 256]
    check(PAIRS[name], torch.tensor([*range(-70, 71), *edges], dtype=dtype))


def test_gcd_and_lcm_of_shorts_are_eagers():
    values = torch.tensor([*range(-70, 71), -32768, -32767, 32767, 12345], dtype=torch.int16)
    check(torch.gcd, values)
    check(torch.lcm, values)


def test_a_shift_out_of_32_bits_is_refused():
    x = torch.ones(2, dtype=torch.int64)
    with pytest.raises(poptorch.Error, match="its integers have 32 bits"):
        poptorch.inferenceModel(Pair(lambda a, b: torch.bitwise_left_shift(a, 40) + b))(x, x)
