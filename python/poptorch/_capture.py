"""What Python must do while forward is captured: say which module runs, refuse to show values."""

import contextlib
import functools

import torch
from torch.distributions import Distribution
from torch.nn.modules import module as torch_module

from . import poptorch_core
from ._logging import logger
from ._static_forms import static_forms
from .ops import identity_loss


def _refuse(name):
    def method(self, *args, **kwargs):
        if not poptorch_core.is_capturing():  # another thread, at its own work
            return _ORIGINAL[name](self, *args, **kwargs)
        # .item() goes through the dispatcher, where values that are not known are refused with the
        # user's line. Constants made in forward come out of it unharmed.
        for element in self.detach().reshape(-1)[:1]:
            element.item()
        return _ORIGINAL[name](self, *args, **kwargs)

    method.__name__ = name
    return method


def _refuse_copy(name):
    def method(self, *args, **kwargs):
        if poptorch_core.is_capturing() and not poptorch_core.has_value(self):
            poptorch_core.refuse_value(f".{name}()")
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


_ORIGINAL = {
    name: getattr(torch.Tensor, name)
    for name in ("numpy", "__array__", "tolist", "data_ptr", "cpu", "__repr__", "__format__")
}
_PATCHES = {
    "numpy": _refuse("numpy"),
    "__array__": _refuse("__array__"),
    "tolist": _refuse("tolist"),
    "data_ptr": _refuse("data_ptr"),
    "cpu": _refuse_copy("cpu"),
    "__repr__": _unavailable("__repr__"),
    "__format__": _unavailable("__format__"),
}


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


def _marked(loss):
    @functools.wraps(loss)
    def marked(*args, **kwargs):
        result = loss(*args, **kwargs)
        return identity_loss(result, "none") if poptorch_core.is_capturing() else result

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


class _Registered:
    """Parameters and buffers as they are registered; forward must not register others."""

    def __init__(self, model):
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
        setattr(torch.nn.functional, name, _marked(loss))
    # Distributions look at their parameters' values to check them.
    checks_arguments = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        with static_forms():
            yield
        registered.warn_of_attributes()
    finally:
        for name, method in _ORIGINAL.items():
            setattr(torch.Tensor, name, method)
        for name, loss in _LOSSES.items():
            setattr(torch.nn.functional, name, loss)
        Distribution.set_default_validate_args(checks_arguments)
        for handle in handles:
            handle.remove()
        poptorch_core.clear_modules()
        changed = registered.restore()
    if changed:
        raise poptorch_core.Error(changed)
