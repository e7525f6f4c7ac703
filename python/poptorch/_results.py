"""Results of a call are ordinary tensors, behind which there is nothing to differentiate."""

import functools

import torch

from . import poptorch_core

_backward = torch.Tensor.backward


@functools.wraps(_backward)
def _refusing_backward(self, *args, **kwargs):
    # Told by their memory: marking the tensors themselves would cost every call something.
    if poptorch_core.is_result(self):
        raise poptorch_core.Error(
            "backward() cannot be called explicitly on outputs of a PopTorch model: a call of a "
            "trainingModel has run forward, backward and the update of the weights, so leave "
            "backward() and optimizer.step() out; an inferenceModel has no backward pass"
        )
    return _backward(self, *args, **kwargs)


torch.Tensor.backward = _refusing_backward  # type: ignore[method-assign,assignment]
