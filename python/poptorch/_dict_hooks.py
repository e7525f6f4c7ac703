"""Dictionaries that do something before they are looked at."""

from typing import Any, Callable, Iterable

# Methods that depend on the order of the keys.
ORDERED = (
    *("__iter__", "__reversed__", "__repr__", "__or__", "__ror__"),
    *("keys", "values", "items", "popitem", "copy"),
)
ALL = (
    *(*ORDERED, "__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__len__"),
    *("__ne__", "__setitem__", "clear", "get", "pop", "setdefault", "update"),
)


def call_before(kind: type, methods: Iterable[str], act: Callable[[Any], None]) -> None:
    """Let methods that a class has from dict call `act` first."""
    for name in methods:
        setattr(kind, name, _calling(act, getattr(dict, name)))


def _calling(act, original):
    def method(self, *args, **kwargs):
        act(self)
        return original(self, *args, **kwargs)

    method.__name__ = original.__name__
    return method
