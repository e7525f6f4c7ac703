"""Optimisers: they carry numbers; the update itself is part of the compiled program.

`torch.optim.SGD`, `Adam`, `AdamW` and `RMSprop` can be used as they are. The classes here have the
same arguments, in PyTorch's order, and after them those of PopTorch. None stands for the default.

* `loss_scaling` multiplies the loss and is divided out of its gradients again, in programs with
  gradients in float16; float32's range needs no help, and results are those of a scaling by one;
* `accum_type`, torch.float16 or torch.float32, is the type that gradients are gathered in over
  micro-batches, and those of momenta the types that the program remembers them in;
* `max_grad_norm`: the gradients of all weights together are scaled down to this norm;
* `foreach`, `capturable`, `differentiable`, `fused` only concern `step()` on the host.

What is given may change after the model was compiled (see `Optimizer.variable_attrs`), and
`setOptimizer()` tells the program; what is left out is constant, `lr` too.
"""

import inspect
import math
import numbers
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Tuple

import torch

from ._checks import short, spoken_class, truth
from ._logging import logger
from ._optimizer import Optimizer, described

__all__ = ["SGD", "Adam", "AdamW", "LAMB", "Optimizer", "RMSprop", "described"]


_FLAGS = frozenset(
    "nesterov amsgrad maximize capturable differentiable centered use_combined_accum "
    "bias_correction use_tf_variant".split()
)


def _given(arguments: Mapping[str, Any]) -> Dict[str, Any]:
    """Of a constructor's locals() those that are arguments and not None."""
    left_out = ("self", "params", "__class__")
    given = {n: v for n, v in arguments.items() if n not in left_out and v is not None}
    for name, value in given.items():
        if name == "betas":
            if not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
                raise TypeError(f"betas must be two numbers, not {short(value)}")
            if len(value) != 2:
                raise ValueError(f"betas must be two numbers, not {len(value)}")
            for beta in list(value):
                _check_number("each of betas", beta)
        elif name in _FLAGS:
            truth(name, value)
        elif name not in ("foreach", "fused") and not name.endswith("accum_type"):
            _check_number(name, value)
    return given


def _check_number(name: str, value: Any) -> None:
    one = isinstance(value, torch.Tensor) and value.numel() == 1
    if isinstance(value, bool) or not (one or isinstance(value, numbers.Real)):
        raise TypeError(f"{name} must be a number, not {spoken_class(value)}")


def _known(base: type, given: Mapping[str, Any]) -> Dict[str, Any]:
    """The given arguments that this version of PyTorch has. `fused` is for weights on a GPU."""
    parameters = inspect.signature(base.__init__).parameters  # type: ignore[misc]
    return {n: v for n, v in given.items() if n in parameters and n != "fused"}


_MOMENT_TYPES: Dict[str, Any] = {
    "accum_type": torch.float32,
    "first_order_momentum_accum_type": torch.float32,
    "second_order_momentum_accum_type": torch.float32,
}


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent with momentum, dampening, weight decay and Nesterov momentum.

    `use_combined_accum` keeps velocities and gathers gradients in their weight's type, whatever
    `accum_type` and `velocity_accum_type` say; `velocity_scaling` does not change results.
    """

    _kind = "SGD"

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
        given = _given(locals())
        torch.optim.SGD.__init__(self, params, **_known(torch.optim.SGD, given))
        if use_combined_accum:
            self.defaults["velocity_scaling"] = given.get("velocity_scaling", 1.0)
            for group in self.param_groups:
                group.setdefault("velocity_scaling", self.defaults["velocity_scaling"])
        elif velocity_scaling is not None:
            logger.warning("velocity_scaling is only used with use_combined_accum=True")
        extras: Dict[str, Any] = {
            "loss_scaling": 1.0,
            "use_combined_accum": False,
            "accum_type": torch.float32,
            "velocity_accum_type": torch.float32,
            "max_grad_norm": math.inf,
        }
        self._add_extras(given, extras)


class Adam(Optimizer, torch.optim.Adam):
    """Adam; `weight_decay` is added to the gradient."""

    _kind = "Adam"

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
        given = _given(locals())
        torch.optim.Adam.__init__(self, params, **_known(torch.optim.Adam, given))
        extras: Dict[str, Any] = {"loss_scaling": 1.0, **_MOMENT_TYPES, "max_grad_norm": math.inf}
        self._add_extras(given, extras)


class AdamW(Optimizer, torch.optim.AdamW):
    """AdamW: Adam whose weight decay does not pass through the moments.

    `bias_correction=False` leaves out the correction for the first steps.
    """

    _kind = "AdamW"
    bias_correction: bool

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
        given = _given(locals())
        torch.optim.AdamW.__init__(self, params, **_known(torch.optim.AdamW, given))
        extras: Dict[str, Any] = {
            "loss_scaling": 1.0,
            "bias_correction": True,
            **_MOMENT_TYPES,
            "max_grad_norm": math.inf,
        }
        self._add_extras(given, extras)

    def step(self, closure: Optional[Callable[[], float]] = None) -> Optional[float]:
        """One step on the host, for models that run without a wrapper; as the program does it."""
        if self.bias_correction:
            return super().step(closure)
        return _step_on_host(self, closure)

    def _move(self, weight: torch.Tensor, group: Mapping[str, Any], way: torch.Tensor) -> None:
        weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(way, alpha=group["lr"])


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop, also centred and with momentum.

    `use_tf_variant=True` is TensorFlow's: the mean square begins as one, eps is under the root, and
    the learning rate is a factor of what is added to the momentum.
    """

    _kind = "RMSprop"

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
        given = _given(locals())
        torch.optim.RMSprop.__init__(self, params, **_known(torch.optim.RMSprop, given))
        self._add_extras(given, {"loss_scaling": 1.0, **_MOMENT_TYPES, "use_tf_variant": False})


class LAMB(Optimizer):
    """LAMB: AdamW's direction, scaled for each weight to min(‖w‖, max_weight_norm)."""

    _kind = "LAMB"
    bias_correction: bool

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
        given = _given(locals())
        defaults: Dict[str, Any] = {
            "lr": 1e-3,
            "betas": (0.9, 0.999),
            "eps": 1e-8,
            "weight_decay": 1e-2,
            "max_weight_norm": 65500.0,
        }
        defaults.update({name: given[name] for name in defaults if name in given})
        for name in ("lr", "eps", "weight_decay", "max_weight_norm"):
            if not defaults[name] >= 0:
                raise ValueError(f"LAMB's {name} must not be negative, got {defaults[name]}")
        for beta in defaults["betas"]:
            if not 0 <= beta < 1:
                raise ValueError(f"LAMB's betas must be at least 0 and below 1, got {beta}")
        torch.optim.Optimizer.__init__(self, params, defaults)
        self._add_extras(given, {"bias_correction": True, "loss_scaling": 1.0, **_MOMENT_TYPES})

    def step(self, closure: Optional[Callable[[], float]] = None) -> Optional[float]:
        """One step on the host, for models that run without a wrapper."""
        return _step_on_host(self, closure)

    def _move(self, weight: torch.Tensor, group: Mapping[str, Any], way: torch.Tensor) -> None:
        way = way.add(weight, alpha=group["weight_decay"])
        length, way_length = weight.norm().item(), way.norm().item()
        trust = 1.0
        if length != 0 and way_length != 0:
            trust = min(length, group["max_weight_norm"]) / way_length
        weight.sub_(way, alpha=group["lr"] * trust)


@torch.no_grad()
def _step_on_host(optimizer: Any, closure: Optional[Callable[[], float]]) -> Optional[float]:
    """A step of AdamW or LAMB; they differ in how a weight goes the way that the moments point."""
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.grad is not None:
                way = _way_of_moments(
                    weight.grad, optimizer.state[weight], group, optimizer.bias_correction
                )
                optimizer._move(weight, group, way)
    return loss


def _way_of_moments(
    grad: torch.Tensor, state: Dict[str, Any], group: Mapping[str, Any], corrected: bool
) -> torch.Tensor:
    if not state:
        state["step"] = 0
        state["exp_avg"] = torch.zeros_like(grad)
        state["exp_avg_sq"] = torch.zeros_like(grad)
    state["step"] += 1
    beta1, beta2 = group["betas"]
    first = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
    second = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    if corrected:
        first = first / (1 - beta1 ** state["step"])
        second = second / (1 - beta2 ** state["step"])
    return first / second.sqrt().add_(group["eps"])
