"""What Python must do while forward is captured: say which module runs, refuse to show values."""

import contextlib
import functools
import sys
import types
from typing import Optional

import torch
from torch.distributions import Distribution
from torch.nn.modules import module as torch_module

from . import poptorch_core
from ._logging import logger
from ._static_forms import gaussian_nll_loss, static_forms
from .ops import identity_loss


def _library_function(frame: Optional[types.FrameType]) -> str:
    """The function of PyTorch that the user's code called and that `frame` is part of, if any."""
    function = ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] != "torch":
            break
        code = frame.f_code
        if code.co_name != "_call_impl":  # how modules are called
            function = f"{module}.{getattr(code, 'co_qualname', code.co_name)}"
        frame = frame.f_back
    return function


def _refuse(name):
    """In the place of a method that shows values: constants' are there, the program's are not."""
    shown = f"{name.strip('_')}()" if name.startswith("__") else f".{name}()"

    def method(self, *args, **kwargs):
        # Another thread is at its own work.
        if poptorch_core.is_capturing() and not poptorch_core.has_value(self):
            function = _library_function(sys._getframe(1))
            try:
                poptorch_core.refuse_value(shown + (f" in {function}" if function else ""))
            except poptorch_core.Error as error:  # as what operators refuse comes out of PyTorch
                raise RuntimeError(error.message) from None
        return _ORIGINAL[name](self, *args, **kwargs)

    method.__name__ = name
    return method


def _unavailable(name):
    def method(self, *args, **kwargs):
        if not poptorch_core.is_capturing():
            return _ORIGINAL[name](self, *args, **kwargs)
        return f"tensor(<unavailable>, shape={list(self.shape)}, dtype={self.dtype})"

    method.__name__ = name
    return method


_SHOW_VALUES = (
    "numpy",
    "__array__",
    "tolist",
    "data_ptr",
    "cpu",
    "item",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
)
_PATCHES = {
    **{name: _refuse(name) for name in _SHOW_VALUES},
    "__repr__": _unavailable("__repr__"),
    "__format__": _unavailable("__format__"),
}
_ORIGINAL = {name: getattr(torch.Tensor, name) for name in _PATCHES}
_INHERITED = _PATCHES.keys() - vars(torch.Tensor).keys()


# Losses that PyTorch puts together in Python: what they return is the loss, not a part of it.
_LOSSES = {
    name: getattr(torch.nn.functional, name)
    for name in (
        "kl_div",
        "gaussian_nll_loss",
        "multilabel_soft_margin_loss",
        "triplet_margin_with_distance_loss",
    )
}


_STATIC_LOSSES = {"gaussian_nll_loss": gaussian_nll_loss}


def _marked(name, loss):
    static = _STATIC_LOSSES.get(name, loss)

    @functools.wraps(loss)
    def marked(*args, **kwargs):
        if not poptorch_core.is_capturing():
            return loss(*args, **kwargs)
        return identity_loss(static(*args, **kwargs), "none")

    return marked


_AUTOCAST_ENTER = torch.autocast.__enter__


def _warn_of_autocast() -> None:
    logger.warning(
        "forward runs under torch.autocast, which a program does not follow: it computes in "
        "float32, so that its results are float32 and more precise than eager PyTorch's; leave "
        "autocast out to silence this"
    )


def _enter_autocast(autocast):
    if poptorch_core.is_capturing() and autocast._enabled:
        _warn_of_autocast()
    return _AUTOCAST_ENTER(autocast)


class _Registered:
    """Parameters and buffers as they are registered; forward must not register others."""

    def __init__(self, model):
        self._tables = [
            (f"{name}." if name else "", module, table, dict(table))
            for name, module in model.named_modules()
            for table in (module._parameters, module._buffers)
            if isinstance(table, dict)  # scripted modules have tables that cannot be changed
        ]
        # Plain attributes are put back too: what forward computed into them has no values.
        self._attributes = [(vars(module), dict(vars(module))) for module in model.modules()]

    def restore(self):
        """Undo what forward registered; return the name of the first such tensor, or None."""
        changed = None
        for attributes, before in self._attributes:
            tensors = {
                name
                for name, value in (*attributes.items(), *before.items())
                if isinstance(value, torch.Tensor)
            }
            for name in tensors & before.keys():
                attributes[name] = before[name]
            for name in tensors - before.keys():
                del attributes[name]
        for prefix, module, table, before in self._tables:
            for name in {**before, **table}:
                if before.get(name) is table.get(name) and (name in before) == (name in table):
                    continue
                # Batch norm keeps its own count of batches, in more than one way.
                if not isinstance(module, torch.nn.modules.batchnorm._NormBase):
                    changed = changed or prefix + name
            table.clear()
            table.update(before)
        return changed


@contextlib.contextmanager
def capturing(model: torch.nn.Module):
    """Report module paths of `model` to the capture and guard values, for one forward."""
    names = {id(module): name for name, module in model.named_modules()}
    registered = _Registered(model)
    changed = None

    def enter(module, _):
        if not poptorch_core.is_capturing():
            return
        poptorch_core.push_module(names.get(id(module), type(module).__name__))

    def leave(module, _, __):
        if not poptorch_core.is_capturing():
            return
        poptorch_core.pop_module()

    handles = (
        torch_module.register_module_forward_pre_hook(enter),
        torch_module.register_module_forward_hook(leave),
    )
    for name, method in _PATCHES.items():
        setattr(torch.Tensor, name, method)
    for name, loss in _LOSSES.items():
        setattr(torch.nn.functional, name, _marked(name, loss))
    torch.autocast.__enter__ = _enter_autocast
    if torch.is_autocast_cpu_enabled():
        _warn_of_autocast()
    # Distributions look at their parameters' values to check them.
    checks_arguments = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        with static_forms():
            yield
    finally:
        for name, method in _ORIGINAL.items():
            if name in _INHERITED:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, method)
        for name, loss in _LOSSES.items():
            setattr(torch.nn.functional, name, loss)
        torch.autocast.__enter__ = _AUTOCAST_ENTER
        Distribution.set_default_validate_args(checks_arguments)
        for handle in handles:
            handle.remove()
        poptorch_core.clear_modules()
        changed = registered.restore()
    if changed:
        raise poptorch_core.Error(
            f"forward assigned or deleted '{changed}': parameters and buffers cannot be replaced "
            "while a model runs as a program; change it in place instead, for example with copy_()"
        )
