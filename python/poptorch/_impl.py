"""Names that some programs take from PopTorch's inner modules."""

import weakref
from typing import Any, List, TypeVar

import torch

from . import _wrapping, poptorch_core
from ._errors import createPoptorchError
from ._executor import PoplarExecutor

__all__ = ["PoplarExecutor", "createPoptorchError", "isDispatchTracing", "unwrapIfWrapped"]

_Wrapped = TypeVar("_Wrapped", torch.nn.Module, torch.Tensor)

# The executors that trained modules which are unwrapped for a while.
_unwrapped: "weakref.WeakKeyDictionary[torch.nn.Module, List[Any]]" = weakref.WeakKeyDictionary()


def isDispatchTracing() -> bool:
    """True while forward is captured; then poptorch.isRunningOnIpu() is True as well."""
    return bool(poptorch_core.is_capturing())


def unwrapIfWrapped(wrapped: _Wrapped) -> _Wrapped:
    """The same object, with the class that it had before training wrapped it.

    So have the weights of a module. _restoreWrapperIfNecessary() undoes it.
    """
    if isinstance(wrapped, torch.Tensor):
        _wrapping.unwrap_tensor(wrapped)
        return wrapped
    for executor in _wrapping.executors_of(wrapped):
        _unwrapped.setdefault(wrapped, []).append(weakref.ref(executor))
        _wrapping.unwrap(wrapped, executor)
    return wrapped


def _restoreWrapperIfNecessary(unwrapped: _Wrapped) -> _Wrapped:
    """The same object, wrapped again where unwrapIfWrapped() had unwrapped it."""
    if isinstance(unwrapped, torch.Tensor):
        _wrapping.wrap_tensor_again(unwrapped)
        return unwrapped
    for reference in _unwrapped.pop(unwrapped, []):
        executor = reference()
        if executor is not None:
            _wrapping.wrap(unwrapped, executor)
    return unwrapped
