"""Functions that a model's forward may call."""

import torch

from . import poptorch_core
from ._checks import short, spoken_class, whole_number
from ._multi_conv import MultiConv  # noqa: F401
from ._annotations import (  # noqa: F401
    Attribute,
    BeginBlock,
    Block,
    BlockFunction,
    NameScope,
    nop,
    recomputationCheckpoint,
    removeBlocks,
    serializedMatMul,
    set_available_memory,
)

_REDUCTIONS = ("sum", "mean", "none")


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Reduce `x` ("sum", "mean" or "none") and mark the result as the loss to train on."""
    assert (
        isinstance(reduction, str) and reduction in _REDUCTIONS
    ), f"Unsupported reduction type! Expected one of {_REDUCTIONS}, got {short(reduction)}"
    assert isinstance(x, torch.Tensor), f"identity_loss takes a tensor, not {spoken_class(x)}"
    return torch.ops.poptorch.identity_loss(x, _REDUCTIONS.index(reduction))


def isRunningOnIpu() -> bool:
    """True while forward is being captured for a program."""
    return poptorch_core.is_capturing()


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """True where there is a device of that many IPUs, in use or not.

    Devices are virtual: there are 16 IPUs, or as many as the environment variable TESSERA_NUM_IPUS
    says. There is none while POPTORCH_IPU_MODEL or POPTORCH_SMALL_IPU_MODEL is set.
    """
    return poptorch_core.ipuHardwareIsAvailable(min(whole_number("num_ipus", num_ipus), 2**31))


def ipuHardwareVersion() -> int:
    """The generation of the hardware, 2; AssertionError where there is none."""
    return poptorch_core.ipuHardwareVersion()
