"""Optimisers: they carry numbers; the update itself is part of the compiled program.

`torch.optim.SGD`, `Adam`, `AdamW` and `RMSprop` can be used as they are. The classes here have the
same arguments, in PyTorch's order, and after them those of PopTorch:

* `loss_scaling` multiplies the loss and is divided out of its gradients again; programs compute in
  float32, whose range needs no help, so that results are those of a scaling by one;
* `accum_type` and the types of momenta: float16 or float32; kept in float32;
* `max_grad_norm`: the gradients of all weights together are scaled down to this norm;
* `maximize`, `foreach`, `capturable`, `differentiable`, `fused` only concern `step()` on the host.
"""

import inspect
import math
from typing import Iterable, Optional, Tuple

import torch

from ._logging import logger

# What an optimiser has once, whatever a group says.
_OPTIMIZER_WIDE = (
    "loss_scaling",
    "accum_type",
    "velocity_accum_type",
    "first_order_momentum_accum_type",
    "second_order_momentum_accum_type",
    "use_combined_accum",
    "bias_correction",
    "use_tf_variant",
    "max_grad_norm",
)


def _given(**arguments) -> dict:
    """The arguments that are not None: for the others the base class has defaults."""
    return {name: value for name, value in arguments.items() if value is not None}


def _known(base: type, **arguments) -> dict:
    """The given arguments that this version of PyTorch has."""
    parameters = inspect.signature(base.__init__).parameters
    return {name: value for name, value in _given(**arguments).items() if name in parameters}


def _accum_type(name: str, dtype: Optional[torch.dtype]) -> torch.dtype:
    assert dtype in (
        None,
        torch.float16,
        torch.float32,
    ), f"{name} must be torch.float16 or torch.float32, not {dtype}"
    if dtype == torch.float16:
        logger.info("%s=torch.float16 is kept in float32", name)
    return dtype or torch.float32


class _PopTorchOptimizer:
    """What the classes below add to PyTorch's."""

    def _set_extras(self, loss_scaling, **extras):
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        for name, value in extras.items():
            is_type = name.endswith("accum_type")
            setattr(self, name, _accum_type(name, value) if is_type else value)

    def __getstate__(self):
        # PyTorch's keeps only its own attributes, which are those of a copy then.
        extras = {name: getattr(self, name) for name in _OPTIMIZER_WIDE if hasattr(self, name)}
        return {**super().__getstate__(), **extras}


class SGD(_PopTorchOptimizer, torch.optim.SGD):
    """Stochastic gradient descent with momentum, dampening, weight decay and Nesterov momentum.

    `velocity_scaling` and `use_combined_accum` are accepted; in float32 they do not change results.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float,
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
            **_given(
                momentum=momentum,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=nesterov,
            ),
            **_known(
                torch.optim.SGD, maximize=maximize, foreach=foreach, differentiable=differentiable
            ),
        )
        if velocity_scaling is not None and not use_combined_accum:
            logger.warning("velocity_scaling is only used with use_combined_accum=True")
        self.defaults["velocity_scaling"] = 1.0 if velocity_scaling is None else velocity_scaling
        for group in self.param_groups:
            group.setdefault("velocity_scaling", self.defaults["velocity_scaling"])
        self._set_extras(
            loss_scaling,
            accum_type=accum_type,
            velocity_accum_type=velocity_accum_type,
            use_combined_accum=bool(use_combined_accum),
            max_grad_norm=math.inf if max_grad_norm is None else max_grad_norm,
        )


class Adam(_PopTorchOptimizer, torch.optim.Adam):
    """Adam; `weight_decay` is added to the gradient."""

    def __init__(
        self,
        params: Iterable,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        amsgrad: Optional[bool] = None,
        foreach: Optional[bool] = None,
        maximize: Optional[bool] = None,
        capturable: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        fused: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[float] = None,
    ):
        del fused  # PyTorch refuses it for weights that are not on a GPU
        super().__init__(
            params,
            **_given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad),
            **_known(
                torch.optim.Adam,
                foreach=foreach,
                maximize=maximize,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )
        self._set_extras(
            loss_scaling,
            accum_type=accum_type,
            first_order_momentum_accum_type=first_order_momentum_accum_type,
            second_order_momentum_accum_type=second_order_momentum_accum_type,
            max_grad_norm=math.inf if max_grad_norm is None else max_grad_norm,
        )


class AdamW(_PopTorchOptimizer, torch.optim.AdamW):
    """AdamW: Adam whose weight decay does not pass through the moments.

    `bias_correction=False` leaves out the correction for the first steps.
    """

    def __init__(
        self,
        params: Iterable,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        amsgrad: Optional[bool] = None,
        maximize: Optional[bool] = None,
        foreach: Optional[bool] = None,
        capturable: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        fused: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        bias_correction: Optional[bool] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[float] = None,
    ):
        del fused
        super().__init__(
            params,
            **_given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad),
            **_known(
                torch.optim.AdamW,
                foreach=foreach,
                maximize=maximize,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )
        self._set_extras(
            loss_scaling,
            accum_type=accum_type,
            first_order_momentum_accum_type=first_order_momentum_accum_type,
            second_order_momentum_accum_type=second_order_momentum_accum_type,
            bias_correction=True if bias_correction is None else bool(bias_correction),
            max_grad_norm=math.inf if max_grad_norm is None else max_grad_norm,
        )


class RMSprop(_PopTorchOptimizer, torch.optim.RMSprop):
    """RMSprop, also centred and with momentum.

    `use_tf_variant=True` is TensorFlow's: the mean square begins as one, eps is under the root, and
    the learning rate is a factor of what is added to the momentum.
    """

    def __init__(
        self,
        params: Iterable,
        lr: Optional[float] = None,
        alpha: Optional[float] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        momentum: Optional[float] = None,
        centered: Optional[bool] = None,
        foreach: Optional[bool] = None,
        maximize: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        use_tf_variant: Optional[bool] = None,
    ):
        super().__init__(
            params,
            **_given(
                lr=lr,
                alpha=alpha,
                eps=eps,
                weight_decay=weight_decay,
                momentum=momentum,
                centered=centered,
            ),
            **_known(
                torch.optim.RMSprop,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
            ),
        )
        self._set_extras(
            loss_scaling,
            accum_type=accum_type,
            first_order_momentum_accum_type=first_order_momentum_accum_type,
            second_order_momentum_accum_type=second_order_momentum_accum_type,
            use_tf_variant=bool(use_tf_variant),
        )


class LAMB(_PopTorchOptimizer, torch.optim.Optimizer):
    """LAMB: AdamW's direction, scaled for each weight to min(‖w‖, max_weight_norm)."""

    def __init__(
        self,
        params: Iterable,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        bias_correction: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        max_weight_norm: Optional[float] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
    ):
        defaults = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2)
        defaults["max_weight_norm"] = 65500.0
        defaults.update(
            _given(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                max_weight_norm=max_weight_norm,
            )
        )
        for name in ("lr", "eps", "weight_decay", "max_weight_norm"):
            if not defaults[name] >= 0:
                raise ValueError(f"LAMB's {name} must not be negative, got {defaults[name]}")
        for beta in defaults["betas"]:
            if not 0 <= beta < 1:
                raise ValueError(f"LAMB's betas must be at least 0 and below 1, got {beta}")
        super().__init__(params, defaults)
        self._set_extras(
            loss_scaling,
            accum_type=accum_type,
            first_order_momentum_accum_type=first_order_momentum_accum_type,
            second_order_momentum_accum_type=second_order_momentum_accum_type,
            bias_correction=True if bias_correction is None else bool(bias_correction),
        )

    @torch.no_grad()
    def step(self, closure=None):
        """One step on the host, for models that run without a wrapper."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step_of(weight, group)
        return loss

    def _step_of(self, weight, group):
        state = self.state[weight]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        first = state["exp_avg"].mul_(beta1).add_(weight.grad, alpha=1 - beta1)
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
        if self.bias_correction:
            first = first / (1 - beta1 ** state["step"])
            second = second / (1 - beta2 ** state["step"])
        direction = first / second.sqrt().add_(group["eps"])
        direction.add_(weight, alpha=group["weight_decay"])
        length, direction_length = weight.norm().item(), direction.norm().item()
        trust = 1.0
        if length != 0 and direction_length != 0:
            trust = min(length, group["max_weight_norm"]) / direction_length
        weight.add_(direction, alpha=-group["lr"] * trust)


_KINDS = {
    "AdamW": torch.optim.AdamW,
    "Adam": torch.optim.Adam,
    "SGD": torch.optim.SGD,
    "RMSprop": torch.optim.RMSprop,
    "LAMB": LAMB,
}


def _numbers(group: dict) -> dict:
    """The entries of a parameter group that are numbers; of a pair of betas beta1 and beta2."""
    entries = {name: value for name, value in group.items() if name != "params"}
    if "betas" in entries:
        entries["beta1"], entries["beta2"] = entries.pop("betas")
    numbers = {}
    for name, value in entries.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError):
            pass  # schedulers and users put names and lists there too
    return numbers


def described(optimizer: torch.optim.Optimizer) -> tuple:
    """(kind, [(parameters, numbers) of each group], max_grad_norm), as the core takes them."""
    kind = next((name for name, base in _KINDS.items() if isinstance(optimizer, base)), None)
    assert kind, (
        f"Unsupported optimizer type {type(optimizer).__name__}: use SGD, Adam, AdamW or RMSprop "
        "of torch.optim or poptorch.optim, or poptorch.optim.LAMB"
    )
    if type(optimizer) not in (_KINDS[kind], globals()[kind]):
        logger.warning(
            "%s is a subclass of a supported optimiser: its own step() is never run",
            type(optimizer).__name__,
        )
    wide = {}
    if isinstance(optimizer, _PopTorchOptimizer):
        wide = {n: getattr(optimizer, n) for n in _OPTIMIZER_WIDE if hasattr(optimizer, n)}
    groups = []
    for group in optimizer.param_groups:
        ignored = [name for name in _OPTIMIZER_WIDE if name in group]
        if ignored:
            logger.warning(
                "%s of a parameter group is ignored: it belongs to the whole optimiser",
                ", ".join(ignored),
            )
        own = {name: value for name, value in group.items() if name not in ignored}
        groups.append((list(group["params"]), {**_numbers(own), **_numbers(wide)}))
    return kind, groups, float(wide.get("max_grad_norm", math.inf))
