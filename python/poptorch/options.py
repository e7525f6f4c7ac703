"""Options live in C++, where their rules are; this is where user code looks for them."""

from .poptorch_core import Options, _TrainingOptions

__all__ = ["Options", "_TrainingOptions"]
