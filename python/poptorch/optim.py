"""Optimisers: they carry numbers; the update itself is part of the compiled program."""

import logging
import math
from typing import Optional

import torch

from . import poptorch_core


class SGD(torch.optim.SGD):
    """Stochastic gradient descent with momentum, dampening, weight decay and Nesterov momentum.

    `loss_scaling`, `velocity_scaling`, the accumulation types and `use_combined_accum` are
    accepted; in float32 they do not change results.
    """

    def __init__(
        self,
        params,
        lr,
        momentum: Optional[float] = None,
        dampening: Optional[float] = None,
        weight_decay: Optional[float] = None,
        nesterov: Optional[bool] = None,
        maximize: Optional[bool] = None,
        foreach: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        velocity_scaling: Optional[float] = None,
        use_combined_accum: Optional[bool] = None,
        accum_type: Optional[torch.dtype] = None,
        velocity_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[float] = None,
    ):
        super().__init__(
            params,
            lr,
            momentum=momentum or 0.0,
            dampening=dampening or 0.0,
            weight_decay=weight_decay or 0.0,
            nesterov=bool(nesterov),
        )
        for name, dtype in (
            ("accum_type", accum_type),
            ("velocity_accum_type", velocity_accum_type),
        ):
            assert dtype in (
                None,
                torch.float16,
                torch.float32,
            ), f"{name} must be torch.float16 or torch.float32, not {dtype}"
        if max_grad_norm not in (None, math.inf):
            raise poptorch_core.Error(
                f"max_grad_norm={max_grad_norm}: clipping the norm of the gradients is not there "
                "yet; leave it out"
            )
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self.velocity_scaling = 1.0 if velocity_scaling is None else velocity_scaling
        self.use_combined_accum = bool(use_combined_accum)
        self.accum_type = accum_type or torch.float32
        self.velocity_accum_type = velocity_accum_type or torch.float32


def groups_of(optimizer: torch.optim.Optimizer) -> list:
    """The parameter groups of a supported optimiser, as PyTorch keeps them."""
    assert isinstance(optimizer, torch.optim.SGD), (
        f"Unsupported optimizer type {type(optimizer).__name__}: use torch.optim.SGD or "
        "poptorch.optim.SGD"
    )
    if type(optimizer) not in (SGD, torch.optim.SGD):
        logging.getLogger("poptorch::python").warning(
            "%s is a subclass of a supported optimiser: its own step() is never run",
            type(optimizer).__name__,
        )
    return optimizer.param_groups
