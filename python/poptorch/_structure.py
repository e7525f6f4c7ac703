"""Arguments and results of forward as flat lists of tensors, and back."""

import collections.abc

import torch


class Leaf:
    """Stands where a tensor stood."""

    def __repr__(self):
        return "<tensor>"

    def __reduce__(self):
        return "_LEAF"  # there is one in every process


_LEAF = Leaf()


def flatten(value, tensors: list):
    """Append the tensors in `value` to `tensors`; return `value` with leaves in their place."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _LEAF
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a namedtuple
        return type(value)(*(flatten(item, tensors) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(flatten(item, tensors) for item in value)
    if isinstance(value, collections.abc.Mapping):
        pairs = [(key, flatten(item, tensors)) for key, item in value.items()]
        try:
            return type(value)(pairs)
        except TypeError:
            return dict(pairs)
    return value


def rebuild(structure, tensors):
    """The inverse of flatten; `tensors` is an iterator."""
    if structure is _LEAF:
        return next(tensors)
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(rebuild(item, tensors) for item in structure))
    if isinstance(structure, (tuple, list)):
        return type(structure)(rebuild(item, tensors) for item in structure)
    if isinstance(structure, collections.abc.Mapping):
        pairs = [(key, rebuild(item, tensors)) for key, item in structure.items()]
        try:
            return type(structure)(pairs)
        except TypeError:
            return dict(pairs)
    return structure


def is_tuple_of_tensors(structure) -> bool:
    """True for a plain tuple with nothing but leaves in it."""
    return type(structure) is tuple and all(item is _LEAF for item in structure)


def same(a, b) -> bool:
    """True where two structures are equal, leaves and constants included."""
    if a is _LEAF or b is _LEAF:
        return a is b
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, collections.abc.Mapping):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    try:
        return a is b or bool(a == b)
    except Exception:  # a comparison of the user's that does not give a bool
        return False
