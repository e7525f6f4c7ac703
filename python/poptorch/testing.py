"""Comparing what a model gives on the device with what it gives without."""

from typing import Any, Mapping

import torch


def allclose(
    expected_output: Any,
    poptorch_out: Any,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> bool:
    """True where both have the same structure and their tensors are close.

    Tuples, lists and dictionaries may be nested. Tensors are compared as torch.allclose does, after
    giving both the wider of their types: what is int64 or float64 on the host comes back from the
    device with 32 bits. Other values must be equal.
    """
    if isinstance(expected_output, torch.Tensor) or isinstance(poptorch_out, torch.Tensor):
        return _close(expected_output, poptorch_out, rtol, atol, equal_nan)
    if isinstance(expected_output, Mapping):
        if not isinstance(poptorch_out, Mapping):
            return False
        return list(expected_output) == list(poptorch_out) and all(
            allclose(value, poptorch_out[key], rtol, atol, equal_nan)
            for key, value in expected_output.items()
        )
    if isinstance(expected_output, (tuple, list)):
        if type(expected_output) is not type(poptorch_out):
            return False
        return len(expected_output) == len(poptorch_out) and all(
            allclose(one, other, rtol, atol, equal_nan)
            for one, other in zip(expected_output, poptorch_out)
        )
    return bool(expected_output == poptorch_out)


def _close(one: Any, other: Any, rtol: float, atol: float, equal_nan: bool) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    if one.shape != other.shape:
        return False
    wider = torch.promote_types(one.dtype, other.dtype)
    if wider in (torch.float16, torch.bfloat16):  # the host has few kernels for them
        wider = torch.float32
    return torch.allclose(one.to(wider), other.to(wider), rtol, atol, equal_nan)
