"""Results of a call are ordinary tensors, behind which there is nothing to differentiate."""

import functools

import torch

from . import poptorch_core

_backward = torch.Tensor.backward


@functools.wraps(_backward)
def _refusing_backward(self, *args, **kwargs):
    # Told by their memory: marking the tensors themselves would cost every call something. Behind
    # those of torch.compile() there is a program for their gradients.
    if self.grad_fn is None and poptorch_core.is_result(self):
        raise poptorch_core.Error(
            "backward() cannot be called explicitly on outputs of a PopTorch model. If you're "
            "using a trainingModel, its call has run forward, backward and the update of the "
            "weights, so that backward() and optimizer.step() are left out. If you're using an "
            "inferenceModel, use a trainingModel instead: inference has no backward pass"
        )
    return _backward(self, *args, **kwargs)


torch.Tensor.backward = _refusing_backward  # type: ignore[method-assign,assignment]
