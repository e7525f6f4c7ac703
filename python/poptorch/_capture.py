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
            poptorch_core.refuse_value(shown + (f" in {function}" if function else ""))
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
_LOSSES = {name: getattr(torch.nn.functional, name) for name in poptorch_core.losses_in_python()}


_STATIC_LOSSES = {"gaussian_nll_loss": gaussian_nll_loss}


def _marked(name, loss):
    static = _STATIC_LOSSES.get(name, loss)

    @functools.wraps(loss)
    def marked(*args, **kwargs):
        if not poptorch_core.is_capturing():
            return loss(*args, **kwargs)
        return identity_loss(static(*args, **kwargs), "none")

    return marked


def _pre_hooks(module):
    return getattr(module, "_forward_pre_hooks", {}).values()  # scripted modules have none


def _change(name, before, after):
    """What became of a parameter or a buffer in forward."""
    if name not in before:
        return (
            " is added to the model when calling the forward method: a program has those that "
            "were there when it was compiled; register it in __init__"
        )
    if name not in after:
        return (
            " is removed from the model when calling the forward method: a program keeps what it "
            "was compiled with"
        )
    return (
        " is reassigned within the model when calling the forward method: it cannot be replaced "
        f"while the model runs as a program; change it in place, with self.{name}.copy_(src)"
    )


def _autocasts():
    if hasattr(torch, "get_autocast_dtype"):  # from PyTorch 2.4 on
        return torch.is_autocast_enabled("cpu")
    return torch.is_autocast_cpu_enabled()


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


def _check_initialized(model):
    """Forward would draw the first values of a lazy module: the program would in every call."""
    for path, module in model.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
                raise poptorch_core.Error(
                    f"'{path}.{name}' of a lazy module has neither size nor values yet; call the "
                    "module itself once with a batch, which gives it both, before it is compiled"
                )


class _Registered:
    """Parameters and buffers as they are registered; forward must not register others."""

    def __init__(self, model):
        _check_initialized(model)
        self._tables = [
            (f"{kind} {name}." if name else f"{kind} ", module, table, dict(table))
            for name, module in model.named_modules()
            for kind, table in (("Parameter", module._parameters), ("Buffer", module._buffers))
            if isinstance(table, dict)  # scripted modules have tables that cannot be changed
        ]
        # Plain attributes are put back too: what forward computed into them has no values.
        self._attributes = [
            (f"{name}." if name else "", module, vars(module), dict(vars(module)))
            for name, module in model.named_modules()
        ]
        self._versions = [
            (prefix + name, value, value._version)
            for prefix, _, _, before in self._attributes
            for name, value in before.items()
            if isinstance(value, torch.Tensor) and not value.is_inference()
        ]

    def warn_of_attributes(self):
        """Say which tensors forward put into plain attributes, or changed: that does not stay."""
        for name, tensor, version in self._versions:
            if tensor._version != version:
                logger.warning(
                    "forward changed '%s' in place, which is no registered buffer: it keeps its "
                    "value, from which every run starts; use register_buffer()",
                    name,
                )
        for prefix, module, attributes, before in self._attributes:
            # Weight norm and its like compute an attribute anew in every call.
            hooks = {getattr(hook, "name", None) for hook in _pre_hooks(module)}
            for name, value in attributes.items():
                if not isinstance(value, torch.Tensor) or value is before.get(name):
                    continue
                if name not in hooks:
                    logger.warning(
                        "forward assigned a tensor to '%s', which is no registered buffer: the "
                        "attribute stays as it was, in later calls too; use register_buffer() and "
                        "change it in place, or return the tensor",
                        prefix + name,
                    )

    def restore(self):
        """Undo what forward registered; return words about the first such tensor, or None."""
        changed = None
        for _, _, attributes, before in self._attributes:
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
                    changed = changed or prefix + name + _change(name, before, table)
            table.clear()
            table.update(before)
        return changed


@contextlib.contextmanager
def keeping_registered(model: torch.nn.Module):
    """Leave the tensors of `model` in their places, and say so where one forward moved them."""
    registered = _Registered(model)
    changed = None
    try:
        yield
        registered.warn_of_attributes()
    finally:
        changed = registered.restore()
    if changed:
        raise poptorch_core.Error(changed)


def _as_written():
    """Modules that torch.compile() wrapped run as their eager selves: they are being compiled."""
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")


@contextlib.contextmanager
def capturing(model: torch.nn.Module):
    """Report module paths of `model` to the capture and guard values, for one forward."""
    names = {id(module): name for name, module in model.named_modules()}

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
    if _autocasts():
        _warn_of_autocast()
    # Distributions look at their parameters' values to check them.
    checks_arguments = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        with _as_written(), static_forms(), keeping_registered(model):
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
