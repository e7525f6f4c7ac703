"""Convolutions that an IPU computes side by side, and what may be said about each of them."""

import numbers
from types import TracebackType
from typing import Any, Callable, List, Optional, Type

import torch

from . import poptorch_core
from ._checks import short, spoken_class, whole_number
from .enums import MultiConvPlanType


def _one_or_each(name: str, value: Any, kind: str, fits: Callable[[Any], bool]) -> Optional[List]:
    """A value for all convolutions, or a list or tuple of one for each; None takes it back."""
    if value is None:
        return None
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    for one in values:
        assert fits(one), f"{name} takes {kind}, or a list of one for each, not {short(one)}"
    if not values:
        raise ValueError(f"{name} takes {kind}, or a list of one for each; the list is empty")
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


class MultiConv:
    """`with poptorch.MultiConv():` lets an IPU compute the convolutions inside side by side.

    Here they run as they always do. Of what can be said about them only the type of partials has an
    influence; it goes before that of the options, for the convolutions and for their gradients.
    """

    def __init__(self) -> None:
        self._available_memory_proportions: Optional[List[float]] = None
        self._partials_types: Optional[List[torch.dtype]] = None
        self._enable_conv_dithering: Optional[List[bool]] = None
        self._plan_type: Optional[MultiConvPlanType] = None
        self._per_conv_reserved_tiles: Optional[int] = None
        self._cycle_back_off: Optional[float] = None

    def availableMemoryProportions(self, value: Any) -> "MultiConv":
        """Say how much of an IPU's memory each convolution may use. Recorded."""
        name = "availableMemoryProportions"
        values = _one_or_each(name, value, "a number", _is_number)
        if values and not all(0 <= share <= 1 for share in values):
            raise ValueError(f"{name} takes numbers from 0 to 1, not {short(value)}")
        self._available_memory_proportions = values
        return self

    def partialsTypes(self, value: Any) -> "MultiConv":
        """Say what sums of each convolution of halves are kept in: torch.float or torch.half."""
        name = "partialsTypes"
        types = _one_or_each(name, value, "a torch.dtype", lambda v: isinstance(v, torch.dtype))
        for dtype in types or ():
            if dtype not in (torch.float, torch.half):
                raise ValueError(f"{name} takes torch.float or torch.half, not {dtype}")
        self._partials_types = types
        return self

    def enableConvDithering(self, value: Any) -> "MultiConv":
        """Say for each convolution whether its tiles begin elsewhere. Recorded."""
        self._enable_conv_dithering = _one_or_each(
            "enableConvDithering", value, "a bool", lambda v: isinstance(v, bool)
        )
        return self

    def planType(self, value: Optional[MultiConvPlanType]) -> "MultiConv":
        """Say whether they run side by side or one after the other. Recorded."""
        assert value is None or isinstance(
            value, MultiConvPlanType
        ), f"planType takes a poptorch.MultiConvPlanType, not {spoken_class(value)}"
        self._plan_type = value
        return self

    def perConvReservedTiles(self, value: int) -> "MultiConv":
        """Say how many tiles each convolution has at least. Recorded."""
        self._per_conv_reserved_tiles = whole_number(
            "perConvReservedTiles", value, 0, AssertionError
        )
        return self

    def cycleBackOff(self, value: float) -> "MultiConv":
        """Say how much longer they may take for the sake of memory, from 0 to 1. Recorded."""
        assert _is_number(value), f"cycleBackOff takes a number, not {spoken_class(value)}"
        if not 0 <= value <= 1:
            raise ValueError(f"cycleBackOff takes a number from 0 to 1, not {short(value)}")
        self._cycle_back_off = float(value)
        return self

    def __enter__(self) -> "MultiConv":
        if poptorch_core.is_capturing():
            poptorch_core.begin_multi_conv()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not poptorch_core.is_capturing():
            return
        if error is not None:
            poptorch_core.forget_multi_conv()
            return
        count = poptorch_core.end_multi_conv(
            [dtype == torch.half for dtype in self._partials_types or ()]
        )
        for name, values in (
            ("availableMemoryProportions", self._available_memory_proportions),
            ("enableConvDithering", self._enable_conv_dithering),
        ):
            if values is not None and len(values) not in (1, count):
                raise poptorch_core.Error(
                    f"MultiConv.{name} has {len(values)} values, but there are {count} "
                    "convolutions inside"
                )
