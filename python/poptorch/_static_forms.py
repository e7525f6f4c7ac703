"""Functions of PyTorch whose kernels look at values, in forms that do not, for use in forward."""

import contextlib
import functools
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch

from . import poptorch_core


def _max_pool1d(*args: Any, **kwargs: Any) -> torch.Tensor:
    # Without gradients PyTorch runs a kernel that is hidden from every dispatcher.
    return torch.max_pool1d_with_indices(*args, **kwargs)[0]


def _bincount(
    input: torch.Tensor, weights: Optional[torch.Tensor] = None, minlength: int = 0
) -> torch.Tensor:
    """Counts of 0 to minlength - 1; others are not counted, for there is no place for them."""
    if minlength < 1:
        raise poptorch_core.Error(
            "bincount needs minlength, the number of bins: the largest value is only known when "
            "the program runs"
        )
    counted = torch.ones_like(input) if weights is None else weights
    known = (input >= 0) & (input < minlength)
    bins = torch.zeros(minlength, dtype=counted.dtype)
    counted = torch.where(known, counted, torch.zeros_like(counted))
    return bins.scatter_add(0, input.clamp(0, minlength - 1).long(), counted)


_FORMS: Dict[Tuple[Any, str], Callable[..., torch.Tensor]] = {
    (torch, "max_pool1d"): _max_pool1d,
    (torch, "bincount"): _bincount,
    (torch.Tensor, "bincount"): _bincount,
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
