"""Arguments of forward as plain data: what a file keeps of them, and back.

A file may come from anybody, and reading it must not run anything. So this is JSON with tensors,
containers and constants of Python's own kinds. Classes are named; when they are read, only ones
that the program has imported already are looked up.
"""

import collections
import enum
import json
import sys
from typing import Any, Callable, Dict

import torch

from . import _structure
from ._arguments import Bound


class NotData(Exception):
    """A value that cannot be kept as data; str() names its type."""


def to_text(bound: Bound) -> str:
    """Everything of a call but its tensors and their names. NotData where that is impossible."""
    return json.dumps(
        {
            "positional": _encode(bound.positional),
            "by_name": _encode(bound.by_name),
            "names": bound.positional_names,
        }
    )


def from_text(text: str, names: list, tensors: list) -> Bound:
    """The inverse. NotData where a class is not there; ValueError where the text is none."""
    try:
        data = json.loads(text)
        positional, by_name = _decode(data["positional"]), _decode(data["by_name"])
        return Bound(positional, by_name, [str(n) for n in data["names"]], names, tensors)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


_PLAIN = (type(None), bool, int, str)
_CONTAINERS = (tuple, list, set, frozenset)


def _encode(value: Any) -> Any:
    kind: Any = type(value)
    if _structure.is_tensor(value):
        return {"tensor": True}
    if isinstance(value, _structure.Node):
        return _encode_node(value)
    if kind in _PLAIN:
        return {"value": value}
    if kind is float:
        return {"float": value.hex()}
    if kind is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is torch.dtype:
        return {"dtype": str(value).partition(".")[2]}
    if kind is torch.device:
        return {"device": str(value)}
    if kind is slice:
        return {"slice": [_encode(v) for v in (value.start, value.stop, value.step)]}
    if kind is torch.Size:
        return {"size": list(value)}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, enum.Enum):
        return {"enum": _name_of(kind), "member": value.name}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return {"namedtuple": _name_of(kind), "items": [_encode(v) for v in value]}
    if kind in _CONTAINERS:
        return {kind.__name__: [_encode(v) for v in value]}
    if kind in (dict, collections.OrderedDict):
        return _encode_mapping(kind, value.keys(), value.values(), constant=True)
    raise NotData(kind.__name__)


def _encode_node(node: _structure.Node) -> Any:
    kind = node.kind
    if isinstance(node, _structure.Mapping):
        if kind not in (dict, collections.OrderedDict):
            raise NotData(kind.__name__)
        return _encode_mapping(kind, node.keys, node.children, constant=False)
    items = [_encode(child) for child in node.children]
    if isinstance(node, _structure.NamedTuple):
        return {"node": "namedtuple", "class": _name_of(kind), "items": items}
    if isinstance(node, _structure.Sequence) and kind in (tuple, list):
        return {"node": kind.__name__, "items": items}
    raise NotData(kind.__name__)


def _encode_mapping(kind, keys, values, constant):
    return {
        "constants"
        if constant
        else "mapping": [[_encode(k) for k in keys], [_encode(v) for v in values]],
        "ordered": kind is collections.OrderedDict,
    }


def _name_of(kind: type) -> list:
    if (
        "<locals>" in kind.__qualname__
        or _class_named(kind.__module__, kind.__qualname__) is not kind
    ):
        raise NotData(kind.__name__)
    return [kind.__module__, kind.__qualname__]


def _class_named(module: str, qualname: str) -> Any:
    """A class of a module that is there; nothing is imported."""
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) else None


def _decoded_class(names: list, base: type) -> Any:
    found = _class_named(*(str(name) for name in names))
    if found is None or not issubclass(found, base):
        raise NotData(".".join(map(str, names)))
    return found


def _decode_named_tuple(data, items):
    kind = _decoded_class(data, tuple)
    if len(getattr(kind, "_fields", ())) != len(items):
        raise NotData(kind.__name__)
    return kind


_DECODERS: Dict[str, Callable[[Any, Any], Any]] = {
    "value": lambda data, whole: data if type(data) in _PLAIN else _no_value(data),
    "float": lambda data, whole: float.fromhex(data),
    "complex": lambda data, whole: complex(*map(float.fromhex, data)),
    "bytes": lambda data, whole: bytes.fromhex(data),
    "dtype": lambda data, whole: _decode_dtype(data),
    "device": lambda data, whole: torch.device(data),
    "slice": lambda data, whole: slice(*map(_decode, data)),
    "size": lambda data, whole: torch.Size(data),
    "ellipsis": lambda data, whole: Ellipsis,
    "enum": lambda data, whole: _decoded_class(data, enum.Enum)[whole["member"]],
    "tensor": lambda data, whole: _structure.LEAF,
    "node": lambda data, whole: _decode_node(data, whole),
    "mapping": lambda data, whole: _decode_mapping(data, whole),
    "constants": lambda data, whole: _mapping_kind(whole)(zip(*_decode_pairs(data))),
    "namedtuple": lambda data, whole: tuple.__new__(
        _decode_named_tuple(data, whole["items"]), map(_decode, whole["items"])
    ),
    "tuple": lambda data, whole: tuple(map(_decode, data)),
    "list": lambda data, whole: list(map(_decode, data)),
    "set": lambda data, whole: set(map(_decode, data)),
    "frozenset": lambda data, whole: frozenset(map(_decode, data)),
}


def _decode(whole: dict) -> Any:
    kind = next(iter(whole))
    if kind not in _DECODERS:
        raise ValueError(f"'{kind}' is no kind of value")
    return _DECODERS[kind](whole[kind], whole)


def _no_value(data):
    raise ValueError(f"{type(data).__name__} is no plain value")


def _decode_dtype(name):
    found = getattr(torch, name) if isinstance(name, str) else None
    return found if isinstance(found, torch.dtype) else _no_value(name)


def _decode_node(kind, whole):
    items = [_decode(item) for item in whole["items"]]
    if kind == "namedtuple":
        return _structure.NamedTuple(_decode_named_tuple(whole["class"], items), items)
    return _structure.Sequence({"tuple": tuple, "list": list}[kind], items)


def _mapping_kind(whole):
    return collections.OrderedDict if whole["ordered"] else dict


def _decode_pairs(data):
    keys, values = data
    return [_decode(k) for k in keys], [_decode(v) for v in values]


def _decode_mapping(data, whole):
    keys, children = _decode_pairs(data)
    return _structure.Mapping(_mapping_kind(whole), children, keys, None)
