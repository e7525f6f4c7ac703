"""Functions that a model's forward may call."""

import torch

from . import poptorch_core
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
        reduction in _REDUCTIONS
    ), f'Unsupported reduction type! Expected one of {_REDUCTIONS}, got "{reduction}"'
    return torch.ops.poptorch.identity_loss(x, _REDUCTIONS.index(reduction))


def isRunningOnIpu() -> bool:
    """True while forward is being captured for a program."""
    return poptorch_core.is_capturing()
