"""Functions of the user's that run around every compilation in this process."""

import collections
from typing import Callable, Dict

from torch.utils.hooks import RemovableHandle

from . import poptorch_core
from ._checks import short

_before: Dict[int, Callable[[], None]] = collections.OrderedDict()
_after: Dict[int, Callable[[], None]] = collections.OrderedDict()


def _run(hooks):
    for hook in list(hooks.values()):  # one of them may remove itself
        hook()


poptorch_core.on_compile(lambda: _run(_before), lambda: _run(_after))


def _register(hooks, hook):
    if not callable(hook):
        raise RuntimeError(f"a compile hook must be callable without arguments, got {short(hook)}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def registerPreCompileHook(hook: Callable[[], None]) -> RemovableHandle:
    """Call `hook()` before every compilation; remove() of what is returned ends that.

    Hooks are called in the order in which they were registered.
    """
    return _register(_before, hook)


def registerPostCompileHook(hook: Callable[[], None]) -> RemovableHandle:
    """Call `hook()` after every compilation, also after one that failed."""
    return _register(_after, hook)
