"""Functions of PyTorch whose kernels look at values, in forms that do not, for use in forward."""

import contextlib
import functools
import math
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch
from torch.nn.modules.adaptive import _ASMoutput
from torch.nn.modules.batchnorm import _BatchNorm

from . import poptorch_core


def _require(
    values: torch.Tensor,
    low: Optional[float],
    high: Optional[float],
    too_low: str,
    too_high: str,
) -> torch.Tensor:
    """The values, which the program checks when it runs."""
    return torch.ops.poptorch.require(values, low, high, too_low, too_high)


def _max_pool1d(*args: Any, **kwargs: Any) -> torch.Tensor:
    # Without gradients PyTorch runs a kernel that is hidden from every dispatcher.
    return torch.max_pool1d_with_indices(*args, **kwargs)[0]


def _bincount(
    input: torch.Tensor, weights: Optional[torch.Tensor] = None, minlength: int = 0
) -> torch.Tensor:
    """Counts of 0 to minlength - 1; a larger value has no place and is an error of the program."""
    if minlength < 1:  # known for a constant; refused for others
        return _ORIGINALS[(torch, "bincount")](input, weights, minlength)
    counted = torch.ones_like(input, dtype=torch.long) if weights is None else weights
    if not counted.is_floating_point():
        counted = counted.long() if weights is None else counted.double()
    bins = torch.zeros(minlength, dtype=counted.dtype)
    known = _require(
        input,
        0,
        minlength - 1,
        "bincount only supports 1-d non-negative integral inputs.",
        f"bincount: there is no bin for a value that is not below minlength={minlength}; "
        "pass a larger minlength",
    )
    return bins.scatter_add(0, known.long(), counted)


def _full(size: Any, fill_value: Any, **kwargs: Any) -> torch.Tensor:
    """With a tensor without dimensions for a number, of which PyTorch reads the value."""
    original = _ORIGINALS[(torch, "full")]
    is_known = not isinstance(fill_value, torch.Tensor) or poptorch_core.has_value(fill_value)
    if is_known or fill_value.dim() or fill_value.requires_grad or fill_value.is_complex():
        return original(size, fill_value, **kwargs)
    if kwargs.get("dtype") is None and kwargs.get("out") is None:
        alike = False if fill_value.dtype is torch.bool else 0
        kwargs["dtype"] = original((), 0.0 if fill_value.is_floating_point() else alike).dtype
    with torch.no_grad():
        return original(size, 0, **kwargs).copy_(fill_value)


class _Places:
    """Where a condition holds: how many places that are, only values say.

    Programs that ask for them and do not use them are no worse for it; every use is refused.
    """

    __slots__ = ("condition",)

    def __init__(self, condition: torch.Tensor):
        object.__setattr__(self, "condition", condition)

    def __getattribute__(self, name: str) -> Any:
        _ORIGINALS[(torch, "where")](object.__getattribute__(self, "condition"))  # is refused
        raise poptorch_core.Error("the places where a condition held were used after forward")


def _refuse_places(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.shape


for _name in {*vars(torch.Tensor), *vars(torch._C._TensorBase)}.difference(vars(_Places)):
    if _name.startswith("__") and _name not in ("__dict__", "__weakref__", "__new__", "__hash__"):
        setattr(_Places, _name, _refuse_places)


def _where(condition: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if args or kwargs or poptorch_core.has_value(condition):
        return _ORIGINALS[(torch, "where")](condition, *args, **kwargs)
    return tuple(_Places(condition) for _ in range(max(condition.dim(), 1)))


def gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """PyTorch's, which asks whether a variance is below 0; here the program finds out."""
    if var.shape == input.shape[:-1] and var.shape != input.shape:
        var = var.unsqueeze(-1)
    elif var.shape != input.shape and (
        var.shape[:-1] != input.shape[:-1] or var.shape[-1:] != torch.Size([1])
    ):
        raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    known = _require(var, 0, None, "var has negative entry/entries", "")
    # Where it is too small another value stands in, with the gradient of the variance itself.
    var = known + (known.clamp(min=eps) - known).detach()
    loss = (var.log() + (input - target) ** 2 / var) / 2
    if full:
        loss = loss + math.log(2 * math.pi) / 2
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def _adaptive_log_softmax(
    layer: torch.nn.AdaptiveLogSoftmaxWithLoss, input: torch.Tensor, target: torch.Tensor
) -> _ASMoutput:
    """From the probabilities of all classes: which cluster a target is in, only values say."""
    if input.shape[:-1] != target.shape:
        raise RuntimeError("Input and target should have the same size in the batch dimension.")
    in_words = f"Target values should be in [0, {layer.n_classes - 1}]"
    known = _require(target, 0, layer.n_classes - 1, in_words, in_words)
    every = layer.log_prob(input.reshape(-1, input.shape[-1]))
    output = every.gather(1, known.reshape(-1, 1)).reshape(target.shape)
    return _ASMoutput(output, -output.mean())


def _most_likely(layer: torch.nn.AdaptiveLogSoftmaxWithLoss, input: torch.Tensor) -> torch.Tensor:
    return layer.log_prob(input).argmax(1)


def _batch_norm(layer: _BatchNorm, input: torch.Tensor) -> torch.Tensor:
    """Without a momentum the statistics are the means over all batches so far."""
    cumulative = layer.momentum is None and layer.training and layer.track_running_stats
    if not cumulative:
        return _ORIGINALS[(_BatchNorm, "forward")](layer, input)
    layer._check_input_dim(input)
    statistics = (layer.running_mean, layer.running_var)
    of_batch = [statistic.clone() for statistic in statistics]
    layer.num_batches_tracked.add_(1)
    result = torch.nn.functional.batch_norm(
        input, *of_batch, layer.weight, layer.bias, True, 1.0, layer.eps
    )
    share = 1 / layer.num_batches_tracked.float()
    with torch.no_grad():
        for statistic, newest in zip(statistics, of_batch):
            statistic.copy_(torch.lerp(statistic, newest, share))
    return result


_FORMS: Dict[Tuple[Any, str], Callable[..., Any]] = {
    (torch, "max_pool1d"): _max_pool1d,
    (torch, "bincount"): _bincount,
    (torch.Tensor, "bincount"): _bincount,
    (torch, "full"): _full,
    (torch, "where"): _where,
    (torch.nn.AdaptiveLogSoftmaxWithLoss, "forward"): _adaptive_log_softmax,
    (torch.nn.AdaptiveLogSoftmaxWithLoss, "predict"): _most_likely,
    (_BatchNorm, "forward"): _batch_norm,
}


# Taken once: another thread may have put the forms in place when we ask.
_ORIGINALS = {place: getattr(*place) for place in _FORMS}


def _while_capturing(
    form: Callable[..., torch.Tensor], original: Callable[..., torch.Tensor]
) -> Callable[..., torch.Tensor]:
    @functools.wraps(original, assigned=("__name__", "__doc__"))
    def chosen(*args: Any, **kwargs: Any) -> torch.Tensor:
        if not poptorch_core.is_capturing():  # another thread, at its own work
            return original(*args, **kwargs)
        return form(*args, **kwargs)

    return chosen


@contextlib.contextmanager
def static_forms() -> Iterator[None]:
    """Put these forms in the place of PyTorch's functions, for one forward."""
    for place, form in _FORMS.items():
        setattr(*place, _while_capturing(form, _ORIGINALS[place]))
    try:
        yield
    finally:
        for place, original in _ORIGINALS.items():
            setattr(*place, original)
