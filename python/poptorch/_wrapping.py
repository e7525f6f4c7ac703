"""Makes a module under training fetch its newest weights whenever somebody looks at them.

The classes of the module, its parameters and its buffers are changed in place, so that every
reference the user holds takes part. Copies and pickles have the original classes.
"""

import copy
import copyreg
import functools
import threading
import weakref
from typing import Any, Dict, Iterator, List, Tuple

import torch

from . import poptorch_core

# Looked at by our own bookkeeping and by torch on every call; they say nothing about values.
_PROPERTIES = (
    "is_leaf",
    "requires_grad",
    "shape",
    "dtype",
    "device",
    "layout",
    "ndim",
    "grad",
    "grad_fn",
    "is_cuda",
    "is_sparse",
    "is_quantized",
    "is_meta",
    "_backward_hooks",
)
_METHODS = (
    "__hash__",
    "__len__",
    "dim",
    "size",
    "stride",
    "numel",
    "nelement",
    "element_size",
    "is_contiguous",
    "is_floating_point",
    "is_complex",
    "requires_grad_",
)
_NO_VALUES = frozenset(("__class__", "__dict__", "__torch_function__", *_PROPERTIES, *_METHODS))
_NO_VALUE_FUNCTIONS = frozenset(
    [getattr(torch.Tensor, name).__get__ for name in _PROPERTIES]
    + [getattr(torch.Tensor, name).__set__ for name in ("grad", "requires_grad")]
    + [getattr(torch.Tensor, name) for name in _METHODS]
)

# Attributes of a module through which its weights are reached.
_LEADS_TO_VALUES = frozenset(("_parameters", "_buffers", "forward", "state_dict"))

_SYNC = "_poptorch_sync"  # in a weight's __dict__: references to the executors that train it


_quiet = threading.local()  # .on: whoever reaches weights now does not look at their values


def sync(tensor: torch.Tensor) -> None:
    """Fetch the tensor's newest values, where it is a weight that a program trains."""
    if isinstance(tensor, _Synced):
        _sync(tensor)


def _sync(tensor):
    for reference in tensor.__dict__.get(_SYNC, ()):
        executor = reference()
        if executor is not None:
            executor.copyWeightsToHostIfNeeded()


class _Synced:
    """Mixed into the classes of weights: reading anything of their values fetches the newest."""

    def __getattribute__(self, name):
        if name not in _NO_VALUES:
            _sync(self)
        return super().__getattribute__(name)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        for arg in () if func in _NO_VALUE_FUNCTIONS else args:
            if isinstance(arg, _Synced):
                _sync(arg)
            elif isinstance(arg, (tuple, list)):
                for item in arg:
                    if isinstance(item, _Synced):
                        _sync(item)
        return torch._C._disabled_torch_function_impl(func, types, args, kwargs or {})

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        copied = _plain(self, self.detach().clone())
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol):
        return _plain(self, self.detach()).__reduce_ex__(protocol)


def _plain(tensor, values):
    """The values as an object of the class that the tensor had before it was wrapped."""
    original = type(tensor)._poptorch_original
    if original is torch.Tensor:
        return values
    if original is torch.nn.Parameter:
        return torch.nn.Parameter(values, tensor.requires_grad)
    return values.as_subclass(original).requires_grad_(tensor.requires_grad)


class PoptorchParameter(_Synced, torch.nn.Parameter):
    """A parameter that a program trains."""

    _poptorch_original = torch.nn.Parameter


class PoptorchBuffer(_Synced, torch.Tensor):
    """A buffer that a program updates."""

    _poptorch_original = torch.Tensor


_classes: Dict[type, type] = {torch.nn.Parameter: PoptorchParameter, torch.Tensor: PoptorchBuffer}


def _class_for(original):
    if original not in _classes:
        name = f"Poptorch{original.__name__}"
        _classes[original] = type(name, (_Synced, original), {"_poptorch_original": original})
    return _classes[original]


def executors_of(module: torch.nn.Module) -> List[Any]:
    """The executors that are still alive and train the module."""
    references = getattr(type(module), "_poptorch_executors", ())
    return [executor for executor in (reference() for reference in references) if executor]


def is_wrapped(module: torch.nn.Module) -> bool:
    """True where an executor that is still alive trains the module."""
    return bool(executors_of(module))


def class_name(module: torch.nn.Module) -> str:
    """The name of the user's class, also while the module is wrapped."""
    return str(getattr(type(module), "_poptorch_original", type(module)).__name__)


def wrap(module: torch.nn.Module, executor: Any) -> None:
    """Connect the module and its weights to the executor that trains them.

    May be called again, for weights that the module has got since.
    """
    weights = list(_weights(module))
    for name, tensor in weights:
        _check_type(name, tensor)
    reference = weakref.ref(executor)
    for _, tensor in weights:
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            continue  # it changes its class itself
        others = [r for r in tensor.__dict__.get(_SYNC, ()) if r() not in (None, executor)]
        tensor.__dict__[_SYNC] = (*others, reference)
        if not isinstance(tensor, _Synced):
            tensor.__class__ = _class_for(type(tensor))
    if not hasattr(type(module), "_poptorch_original"):
        module.__class__ = _module_class(type(module))
    others = [weakref.ref(e) for e in executors_of(module) if e is not executor]
    type(module)._poptorch_executors = (*others, reference)


def _check_type(name, tensor):
    fits = isinstance(tensor, (torch.nn.Parameter, PoptorchBuffer)) or type(tensor) is torch.Tensor
    if not fits:
        raise poptorch_core.Error(
            f"buffer '{name}' must be a torch.Tensor to be trained with, and nothing derived from "
            f"it, but it is a {type(tensor).__name__}"
        )


def _module_class(original):
    def get_attribute(self, name):
        if name in _LEADS_TO_VALUES and not getattr(_quiet, "on", False):
            for executor in executors_of(self):
                executor.copyWeightsToHostIfNeeded()
        return original.__getattribute__(self, name)

    def destroy(self):
        """Free the program that trains this module; its weights stay."""
        for executor in executors_of(self):
            executor.destroy()

    def copy_weights_to_host_if_needed(self):
        """Fetch the newest weights; True where that was needed."""
        return any([executor.copyWeightsToHostIfNeeded() for executor in executors_of(self)])

    def zero_grad(self, *args, **kwargs):
        _quiet.on = True
        try:
            original.zero_grad(self, *args, **kwargs)
        finally:
            _quiet.on = False

    def reduce_ex(self, protocol):
        wrapped = type(self)
        # As the user's class would do it, which may have ways of its own.
        object.__setattr__(self, "__class__", original)
        try:
            function, arguments, *rest = self.__reduce_ex__(protocol)
        finally:
            object.__setattr__(self, "__class__", wrapped)
        if function is copyreg.__newobj__ and arguments == (original,):
            # Does the same, and pickle does not ask whether the object is of that class.
            function, arguments = copyreg._reconstructor, (original, object, None)
        return (function, arguments, *rest)

    return type(
        f"Poptorch{original.__name__}",
        (original,),
        {
            "_poptorch_executors": (),
            "_poptorch_original": original,
            "__getattribute__": get_attribute,
            "destroy": destroy,
            "copyWeightsToHostIfNeeded": copy_weights_to_host_if_needed,
            "zero_grad": functools.wraps(original.zero_grad)(zero_grad),
            "__reduce_ex__": reduce_ex,
            "__module__": original.__module__,
            "__doc__": original.__doc__,
        },
    )


def shallow_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A module of the user's class that shares everything with this one."""
    if not torch.nn.utils.parametrize.is_parametrized(module):
        return copy.copy(module)
    # Such a module refuses to be copied, because its class cannot be pickled.
    original: Any = getattr(type(module), "_poptorch_original", type(module))
    twin = original.__new__(original)
    twin.__dict__.update(module.__dict__)
    return twin


def unwrap(module: torch.nn.Module, executor: Any) -> None:
    """Disconnect the executor; where it was the last one, give the original classes back."""
    others = [other for other in executors_of(module) if other is not executor]
    if others:
        type(module)._poptorch_executors = tuple(map(weakref.ref, others))
    elif hasattr(type(module), "_poptorch_original"):
        module.__class__ = type(module)._poptorch_original
    for _, tensor in _weights(module):
        if not isinstance(tensor, _Synced):
            continue
        known = [r for r in tensor.__dict__.get(_SYNC, ()) if r() not in (None, executor)]
        if known:
            tensor.__dict__[_SYNC] = tuple(known)
            continue
        tensor.__dict__.pop(_SYNC, None)
        unwrap_tensor(tensor)


def unwrap_tensor(tensor: torch.Tensor) -> None:
    """Give one weight its original class back."""
    if isinstance(tensor, _Synced):
        tensor.__class__ = type(tensor)._poptorch_original  # type: ignore[attr-defined]


def wrap_tensor_again(tensor: torch.Tensor) -> None:
    """Undo unwrap_tensor(), where there are executors that train the weight."""
    if _SYNC in tensor.__dict__ and not isinstance(tensor, _Synced):
        tensor.__class__ = _class_for(type(tensor))


def _weights(module) -> Iterator[Tuple[str, torch.Tensor]]:
    """Every parameter and buffer once, with its name."""
    seen = set()
    for path, child in module.named_modules():
        for name, tensor in (*child._parameters.items(), *child._buffers.items()):
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield (f"{path}.{name}" if path else name), tensor


def named_weights(module: torch.nn.Module, kind: str) -> List[Tuple[str, torch.Tensor]]:
    """The "parameters" or "buffers" of a module; those with several names under each of them."""
    listed = dict(getattr(module, f"named_{kind}")())
    known = {id(tensor) for tensor in listed.values()}
    for path, child in module.named_modules(remove_duplicate=False):
        for name, tensor in getattr(child, f"_{kind}").items():
            if id(tensor) in known:
                listed.setdefault(f"{path}.{name}" if path else name, tensor)
    return list(listed.items())


def tables_of(module: torch.nn.Module) -> tuple:
    """(table, name, object), one after the other, for all that is registered in a module.

    poptorch_core.holds_the_same() tells whether it still is.
    """
    entries: List[Any] = []
    for child in module.modules():
        for table in (child._parameters, child._buffers, child._modules):
            if isinstance(table, dict):  # scripted modules cannot be changed
                for name, value in table.items():
                    entries += (table, name, value)
    return tuple(entries)
