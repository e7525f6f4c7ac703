"""Arguments of a call, bound to the signature of forward: what is a tensor, what is a constant."""

import inspect
import re
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch

from . import _structure, poptorch_core
from ._checks import short
from ._mismatch import mismatch

_MISSING = re.compile(r"missing a required.* argument: '(\w+)'")


class Bound(NamedTuple):
    """The arguments of one call. Defaults are filled in."""

    positional: Any  # structures
    by_name: Any
    positional_names: List[str]
    names: List[str]  # of the tensors
    tensors: List[torch.Tensor]

    def rebuild(self, tensors: List[torch.Tensor]) -> Tuple[tuple, dict]:
        """(args, kwargs) for forward, with other tensors."""
        iterator = iter(tensors)
        args = _structure.rebuild(self.positional, iterator)
        return args, _structure.rebuild(self.by_name, iterator)


def _may_be_input(default):
    # Forward may look at the values of integers, which are sizes and indices.
    return (
        isinstance(default, torch.Tensor)
        and default.layout is torch.strided
        and default.numel() > 0
        and (default.is_floating_point() or default.dtype is torch.bool)
    )


class Signature:
    """The parameters of a forward method."""

    def __init__(self, forward: Callable):
        try:
            self._signature = inspect.signature(forward)
        except ValueError:  # a compiled method, which says nothing of its parameters
            self._signature = inspect.signature(lambda *args, **kwargs: None)

    def bind(self, args: tuple, kwargs: dict, whole_batch: bool = False) -> Bound:
        """AssertionError for arguments that forward does not have, Error for missing ones.

        A tensor that is a default is an input as others are, where a call is one micro-batch:
        `whole_batch`. Several could not share it, so that it is a constant of forward then.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self._explained(error) from None
        for parameter in self._signature.parameters.values():
            default = parameter.default
            if parameter.name in bound.arguments or default is inspect.Parameter.empty:
                continue
            if not _structure.has_tensors(default) or (whole_batch and _may_be_input(default)):
                bound.arguments[parameter.name] = default
        tensors: List[torch.Tensor] = []
        positional = _structure.flatten(tuple(bound.args), tensors)
        by_name = _structure.flatten(dict(bound.kwargs), tensors)
        own_names = [self._positional_name(i) for i in range(len(bound.args))]
        names = self._names(own_names, positional, by_name)
        return Bound(positional, by_name, own_names, names, tensors)

    def _explained(self, error: TypeError) -> Exception:
        missing = _MISSING.search(str(error))
        if missing:
            return poptorch_core.Error(
                f"Mandatory parameter {missing[1]} missing: this call does not give all arguments "
                f"of {self._spoken()}"
            )
        return AssertionError(f"{error}; the model's method is {self._spoken()}")

    def _spoken(self):
        """The method as messages show it, whatever its defaults are."""
        shown = []
        for parameter in self._signature.parameters.values():
            if parameter.default is not inspect.Parameter.empty:
                shown.append(f"{parameter.name}={short(parameter.default)}")
            else:
                shown.append(str(parameter.replace(annotation=inspect.Parameter.empty)))
        return f"forward({', '.join(shown)})"

    def _names(self, own_names, positional, by_name):
        names = []
        for name, child in zip(own_names, _parts(positional)):
            names += _structure.names_of(child, name)
        if not isinstance(by_name, dict):
            for key, child in zip(by_name.keys, by_name.children):
                names += _structure.names_of(child, key)
        return names

    def _positional_name(self, index):
        for i, parameter in enumerate(self._signature.parameters.values()):
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                return f"{parameter.name}.{index - i}"
            if i == index:
                return parameter.name
        raise IndexError(index)

    def tensors_alone(self, bound: Bound) -> bool:
        """True where a call with just the tensors, in order, means the same."""
        by_name = self._signature.parameters
        parameters = list(by_name.values())
        if not isinstance(bound.by_name, dict):
            return False
        for name, value in bound.by_name.items():
            if name not in by_name or value is not by_name[name].default:
                return False
        children = _parts(bound.positional)
        for i, child in enumerate(children[len(bound.tensors) :], len(bound.tensors)):
            if i >= len(parameters) or child is not parameters[i].default:
                return False
        return all(_structure.is_tensor(child) for child in children[: len(bound.tensors)])


def difference(compiled: Bound, call: Bound) -> Optional[str]:
    """How a call's structure or constants differ from the compiled ones; None where they do not."""
    wanted, got = _parts(compiled.positional), _parts(call.positional)
    if len(wanted) != len(got):
        return (
            f"Number of positional arguments mismatch: expected {len(wanted)} arguments but got "
            f"{len(got)}."
        )
    for name, was, is_now in zip(call.positional_names, wanted, got):
        found = mismatch(name, was, is_now)
        if found:
            return found
    return mismatch("named arguments", compiled.by_name, call.by_name, named=True)


def in_order_of(compiled: Bound, call: Bound) -> Bound:
    """The call with the keys of its dictionaries in the compiled order, where that is no matter."""
    tensors = iter(call.tensors)
    positional, ordered = _structure.ordered_as(compiled.positional, call.positional, tensors)
    by_name, rest = _structure.ordered_as(compiled.by_name, call.by_name, tensors)
    return call._replace(
        positional=positional, by_name=by_name, names=compiled.names, tensors=[*ordered, *rest]
    )


def _parts(positional: Any) -> Any:
    return getattr(positional, "children", positional)
