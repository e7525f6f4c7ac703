"""Names that some programs take from PopTorch's inner modules."""

import torch

from . import _wrapping, poptorch_core
from ._errors import createPoptorchError
from ._executor import PoplarExecutor

__all__ = ["PoplarExecutor", "createPoptorchError", "isDispatchTracing", "unwrapIfWrapped"]


def isDispatchTracing() -> bool:
    """True while forward is captured; then poptorch.isRunningOnIpu() is True as well."""
    return bool(poptorch_core.is_capturing())


def unwrapIfWrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The same module, with the classes that it and its weights had before training wrapped it."""
    for executor in _wrapping.executors_of(module):
        _wrapping.unwrap(module, executor)
    return module
