"""Makes a module under training fetch its newest weights whenever somebody looks at them.

The classes of the module, its parameters and its buffers are changed in place, so that every
reference the user holds takes part. Copies and pickles have the original classes.
"""

import copyreg
import weakref

import torch

# Looked at by our own bookkeeping and by torch on every call; they say nothing about values.
_NO_VALUES = frozenset(
    (
        "__class__",
        "__dict__",
        "_poptorch_sync",
        "is_leaf",
        "requires_grad",
        "shape",
        "dtype",
        "device",
        "dim",
        "size",
        "ndim",
        "stride",
        "_backward_hooks",
    )
)


def _sync(tensor):
    executor = tensor.__dict__.get("_poptorch_sync")
    executor = executor() if executor is not None else None
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
        for arg in args:
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
        copied = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol):
        _sync(self)
        plain = self.detach()
        if isinstance(self, torch.nn.Parameter):
            plain = torch.nn.Parameter(plain, self.requires_grad)
        return plain.__reduce_ex__(protocol)


class _SyncedParameter(_Synced, torch.nn.Parameter):
    pass


class _SyncedBuffer(_Synced, torch.Tensor):
    pass


def is_wrapped(module: torch.nn.Module) -> bool:
    """True where an executor that is still alive trains the module."""
    reference = getattr(type(module), "_poptorch_executor", None)
    return reference is not None and reference() is not None


def wrap(module: torch.nn.Module, executor) -> None:
    """Connect the module and its weights to the executor that trains them."""
    unwrap(module)  # from one that is gone
    reference = weakref.ref(executor)
    for tensor in _weights(module):
        tensor.__dict__["_poptorch_sync"] = reference
        if type(tensor) is torch.nn.Parameter:
            tensor.__class__ = _SyncedParameter
        elif type(tensor) is torch.Tensor:
            tensor.__class__ = _SyncedBuffer
    original = type(module)

    def destroy(self):
        """Free the program that trains this module; its weights stay."""
        current = reference()
        if current is not None:
            current.destroy()

    def copy_weights_to_host_if_needed(self):
        """Fetch the newest weights; True where that was needed."""
        current = reference()
        return current is not None and current.copyWeightsToHostIfNeeded()

    def reduce_ex(self, protocol):
        getstate = getattr(self, "__getstate__", None)
        state = getstate() if getstate else dict(self.__dict__)
        return copyreg._reconstructor, (original, object, None), state

    module.__class__ = type(
        f"Poptorch{original.__name__}",
        (original,),
        {
            "_poptorch_executor": reference,
            "_poptorch_original": original,
            "destroy": destroy,
            "copyWeightsToHostIfNeeded": copy_weights_to_host_if_needed,
            "__reduce_ex__": reduce_ex,
            "__module__": original.__module__,
            "__doc__": original.__doc__,
        },
    )


def unwrap(module: torch.nn.Module) -> None:
    """Give module and weights their original classes back."""
    if not hasattr(type(module), "_poptorch_original"):
        return
    module.__class__ = type(module)._poptorch_original
    for tensor in _weights(module):
        tensor.__dict__.pop("_poptorch_sync", None)
        if type(tensor) is _SyncedParameter:
            tensor.__class__ = torch.nn.Parameter
        elif type(tensor) is _SyncedBuffer:
            tensor.__class__ = torch.Tensor


def _weights(module):
    for child in module.modules():
        yield from (t for t in child._parameters.values() if t is not None)
        yield from (t for t in child._buffers.values() if t is not None)
