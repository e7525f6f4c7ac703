"""Counts what the direct algorithm needs: two operations for each product of a convolution or a
matrix product, forward and backward, padding included. Everything else is not counted.
"""
import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ATEN = torch.ops.aten


def _convolution(output, weight):
    """`output`: what meets one filter's weights each; the input of a transposed convolution."""
    return 2 * output.numel() * math.prod(weight.shape[1:])


def _of_call(call, arguments, result):
    if call is ATEN.convolution.default:
        data, weight, transposed = arguments[0], arguments[1], arguments[6]
        return _convolution(data if transposed else result, weight)
    if call is ATEN.convolution_backward.default:
        gradient, data, weight, transposed = *arguments[:3], arguments[7]
        once = _convolution(data if transposed else gradient, weight)
        return once * sum(arguments[10][:2])
    if call in (ATEN.mm.default, ATEN.bmm.default):
        return 2 * result.numel() * arguments[0].shape[-1]
    if call in (ATEN.addmm.default, ATEN.baddbmm.default):
        return 2 * result.numel() * arguments[1].shape[-1]
    return 0


class Flops(TorchDispatchMode):
    """While it is entered, `count` grows with every call of PyTorch."""

    count = 0

    def __torch_dispatch__(self, call, types, arguments=(), keywords=None):
        result = call(*arguments, **(keywords or {}))
        self.count += _of_call(call, arguments, result)
        return result
