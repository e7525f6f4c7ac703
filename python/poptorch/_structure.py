"""Arguments and results of forward as flat lists of tensors, and back."""

import abc
import collections
import collections.abc
import copy
import dataclasses
import itertools
from typing import Any, Dict, Iterable, Iterator, List, Optional

import torch

from . import _dict_hooks, poptorch_core
from ._checks import short


class ICustomArgParser(abc.ABC):
    """How a type of yours becomes tensors and comes back; see registerCustomArgParser()."""

    @abc.abstractmethod
    def yieldTensors(self, struct: Any) -> Iterable[torch.Tensor]:
        """Give the tensors of an object, always in the same order."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """Make a new object like `original_structure`, with tensors from the iterator."""


_parsers: Dict[type, ICustomArgParser] = {}


def registerCustomArgParser(arg_type: type, parser: Optional[ICustomArgParser]) -> None:
    """Let objects of a type be arguments and results of forward and elements of a data loader.

    Objects of derived types are handled by the same parser. None removes the type's parser.
    """
    if not isinstance(arg_type, type):
        raise poptorch_core.Error(
            f"registerCustomArgParser takes a type and its parser, not {short(arg_type)}"
        )
    if parser is None:
        _parsers.pop(arg_type, None)
        return
    if not isinstance(parser, ICustomArgParser):
        raise poptorch_core.Error(
            "the parser of a custom argument type must be an object of a class derived from "
            f"poptorch.ICustomArgParser, got {short(parser)}"
        )
    _parsers[arg_type] = parser


def parsers() -> Dict[type, ICustomArgParser]:
    """Everything that is registered, to be sent to another process."""
    return dict(_parsers)


def use_parsers(received: Dict[type, ICustomArgParser]) -> None:
    """Register what another process had registered."""
    _parsers.update(received)


def _parser_of(value_type: type) -> Optional[ICustomArgParser]:
    if not _parsers:
        return None
    for base in value_type.__mro__:
        if base in _parsers:
            return _parsers[base]
    return None


class Leaf:
    """Stands where a tensor stood."""

    def __repr__(self) -> str:
        return "<tensor>"

    def __reduce__(self) -> str:
        return "LEAF"  # there is one in every process


LEAF = Leaf()


class Node:
    """A container with tensors in it. Containers without any are values like others."""

    kind: type

    def __init__(self, kind: type, children: list):
        self.kind = kind
        self.children = children

    def __repr__(self) -> str:
        inside = ", ".join(repr(child) for child in self.children)
        if self.kind is list:
            return f"[{inside}]"
        if self.kind is tuple:
            return f"({inside},)" if len(self.children) == 1 else f"({inside})"
        return f"{self.kind.__name__}({inside})"

    def same(self, other: "Node") -> bool:
        return len(self.children) == len(other.children) and all(
            same(a, b) for a, b in zip(self.children, other.children)
        )

    def rebuild(self, tensors: Iterator[torch.Tensor]) -> Any:
        raise NotImplementedError

    def names(self, prefix: str) -> List[str]:
        """What messages call the children."""
        return [f"{prefix}.{i}" for i in range(len(self.children))]


class Sequence(Node):
    """A tuple or list."""

    def rebuild(self, tensors):
        return self.kind(rebuild(child, tensors) for child in self.children)


class NamedTuple(Node):
    """A namedtuple, or a class derived from one."""

    def rebuild(self, tensors):
        return self.kind(*(rebuild(child, tensors) for child in self.children))

    def names(self, prefix):
        return [f"{prefix}.{name}" for name in self.kind._fields]


class _Order:
    """Whether somebody went through a dictionary, so that the order of its keys matters."""

    matters = False


class _NotingOrder(dict):
    """A dictionary that notes when somebody goes through it."""

    def __init__(self, pairs, order):
        super().__init__(pairs)
        self._order = order

    def note(self):
        self._order.matters = True

    def __reduce_ex__(self, protocol):
        return dict, (dict(self),)


_dict_hooks.call_before(_NotingOrder, _dict_hooks.ORDERED, _NotingOrder.note)


class Mapping(Node):
    """Any dictionary; `like` is one with the same keys and attributes of its own."""

    def __init__(self, kind, children, keys, like):
        super().__init__(kind, children)
        self.keys = keys
        self.like = like
        self.order = None  # a _Order that notes whether forward depends on it

    def __repr__(self):
        inside = ", ".join(f"{key!r}: {child!r}" for key, child in zip(self.keys, self.children))
        return f"{{{inside}}}" if self.kind is dict else f"{self.kind.__name__}({{{inside}}})"

    def same(self, other):
        return self.keys == other.keys and super().same(other)

    def rebuild(self, tensors):
        values = [rebuild(child, tensors) for child in self.children]
        pairs = list(zip(self.keys, values))
        if self.order is not None:
            return _NotingOrder(pairs, self.order)
        if self.like is None:
            return self.kind(pairs)
        made = copy.copy(self.like)
        for key, value in pairs:
            made[key] = value
        return made

    def names(self, prefix):
        return [f"{prefix}.{key}" for key in self.keys]


class _Dataclass(Node):
    def __init__(self, kind, children, fields, like):
        super().__init__(kind, children)
        self.fields = fields
        self.like = like

    def same(self, other):
        return self.fields == other.fields and super().same(other)

    def rebuild(self, tensors):
        made = copy.copy(self.like)
        for name, child in zip(self.fields, self.children):
            object.__setattr__(made, name, rebuild(child, tensors))  # it may be frozen
        return made

    def names(self, prefix):
        return [f"{prefix}.{name}" for name in self.fields]


class _Custom(Node):
    """An object of a type that was registered."""

    def __init__(self, kind, count, like):
        super().__init__(kind, [LEAF] * count)
        self.like = like

    def rebuild(self, tensors):
        parser = _parser_of(self.kind)
        if parser is None:
            raise poptorch_core.Error(
                f"{self.kind.__name__} has no parser any more; register it again with "
                "poptorch.registerCustomArgParser()"
            )
        own = iter([rebuild(child, tensors) for child in self.children])
        return parser.reconstruct(self.like, own)


def _without_tensors(value):
    """A shallow copy to make others from; None where the type cannot be copied and changed."""
    try:
        made = copy.copy(value)
        for key in value:
            made[key] = None
        return made if type(made) is type(value) else None
    except Exception:  # whatever a class of the user's does not support
        return None


def flatten(value: Any, tensors: list) -> Any:
    """Append the tensors in `value` to `tensors`; return what rebuild() needs to know."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return LEAF
    before = len(tensors)
    node = _flatten_container(value, tensors)
    return value if node is None or len(tensors) == before else node


def _flatten_container(value, tensors):
    kind = type(value)
    parser = _parser_of(kind)
    if parser is not None:
        own = list(parser.yieldTensors(value))
        for tensor in own:
            if not isinstance(tensor, torch.Tensor):
                raise poptorch_core.Error(
                    f"yieldTensors() of the parser of {kind.__name__} gave an object of type "
                    f"{type(tensor).__name__}; it must give tensors"
                )
        tensors.extend(own)
        return _Custom(kind, len(own), value)
    if isinstance(value, (tuple, list)):
        children = [flatten(item, tensors) for item in value]
        named = isinstance(value, tuple) and hasattr(value, "_fields")
        return (NamedTuple if named else Sequence)(kind, children)
    if isinstance(value, collections.abc.Mapping):
        before = len(tensors)
        children = [flatten(item, tensors) for item in value.values()]
        if len(tensors) == before:
            return None
        like = None
        if kind not in (dict, collections.OrderedDict):
            like = _without_tensors(value)
            kind = kind if like is not None else dict
        return Mapping(kind, children, list(value), like)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        before = len(tensors)
        children = [flatten(getattr(value, name), tensors) for name in fields]
        if len(tensors) == before:
            return None
        like = copy.copy(value)
        for name in fields:
            object.__setattr__(like, name, None)
        return _Dataclass(kind, children, fields, like)
    return None


def rebuild(structure: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The inverse of flatten."""
    if structure is LEAF:
        return next(tensors)
    if isinstance(structure, Node):
        return structure.rebuild(tensors)
    return structure


def described(structure: Any) -> str:
    """The structure as text, for callers who are not Python: `(<tensor>, [<tensor>, 3])`."""
    if isinstance(structure, Node):
        return _described_node(structure)
    if structure is LEAF or structure is None or type(structure) in (bool, int, float, str):
        return repr(structure)
    if type(structure) in (tuple, list):
        return _in_brackets(type(structure), [described(item) for item in structure])
    return f"<{type(structure).__name__}>"


def _described_node(node):
    inside = [described(child) for child in node.children]
    if isinstance(node, Mapping):
        keys = [described(key) for key in node.keys]
        text = "{" + ", ".join(f"{key}: {item}" for key, item in zip(keys, inside)) + "}"
        return text if node.kind is dict else f"{node.kind.__name__}({text})"
    if isinstance(node, Sequence) and node.kind in (tuple, list):
        return _in_brackets(node.kind, inside)
    if isinstance(node, (NamedTuple, _Dataclass)):
        names = [name[1:] for name in node.names("")]
        inside = [f"{name}={item}" for name, item in zip(names, inside)]
    return f"{node.kind.__name__}({', '.join(inside)})"


def _in_brackets(kind, items):
    if kind is list:
        return f"[{', '.join(items)}]"
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def is_tensor(structure: Any) -> bool:
    """True for a single tensor."""
    return structure is LEAF


def is_tuple_of_tensors(structure: Any) -> bool:
    """True for a plain tuple with nothing but tensors in it."""
    return type(structure) is Sequence and structure.kind is tuple and _all_leaves(structure)


def _all_leaves(node):
    return all(child is LEAF for child in node.children)


def has_tensors(value: Any) -> bool:
    """True where a value is a tensor or has one in it."""
    tensors: List[torch.Tensor] = []
    flatten(value, tensors)
    return bool(tensors)


def has_mapping(structure: Any) -> bool:
    """True where tensors are in a dictionary."""
    if not isinstance(structure, Node):
        return False
    return isinstance(structure, Mapping) or any(has_mapping(c) for c in structure.children)


def names_of(structure: Any, name: str) -> List[str]:
    """What messages call the tensors of a structure: "batch.images", "args.1"."""
    if structure is LEAF:
        return [name]
    if not isinstance(structure, Node):
        return []
    names = []
    for child_name, child in zip(structure.names(name), structure.children):
        names += names_of(child, child_name)
    return names


def noting_order(structure: Any) -> Any:
    """The structure with dictionaries that note whether forward depends on their order."""
    if not isinstance(structure, Node):
        return structure
    copied = copy.copy(structure)
    copied.children = [noting_order(child) for child in structure.children]
    if isinstance(copied, Mapping) and copied.kind is dict:
        copied.order = _Order()
    return copied


def ordered_as(wanted: Any, got: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """(structure, tensors) of `got`, with its dictionaries in the order of those of `wanted`."""
    if got is LEAF:
        return got, [next(tensors)]
    if not isinstance(got, Node):
        return got, []
    children = got.children
    models = getattr(wanted, "children", None) or [None] * len(children)
    keys = None
    if isinstance(got, Mapping):
        by_key = dict(zip(wanted.keys, models)) if isinstance(wanted, Mapping) else {}
        models = [by_key.get(key) for key in got.keys]
        order = getattr(wanted, "order", None)
        if order is not None and not order.matters and set(by_key) == set(got.keys):
            keys = wanted.keys
    parts = [ordered_as(m, c, tensors) for m, c in itertools.zip_longest(models, children)]
    parts = parts[: len(children)]
    copied: Any = copy.copy(got)
    if isinstance(got, Mapping) and keys is not None:
        parts = [parts[got.keys.index(key)] for key in keys]
        copied.keys = keys
    copied.children = [structure for structure, _ in parts]
    return copied, [tensor for _, own in parts for tensor in own]


def constants_in(structure: Any) -> Iterator[Any]:
    """The values in a structure that are no tensors."""
    children: Optional[Iterable[Any]] = None
    if isinstance(structure, Node):
        children = structure.children
    elif isinstance(structure, (tuple, list)):
        children = structure
    elif isinstance(structure, collections.abc.Mapping):
        children = structure.values()
    if children is not None:
        for child in children:
            yield from constants_in(child)
    elif structure is not LEAF:
        yield structure


def snapshot(structure: Any) -> Any:
    """The structure with its lists and dictionaries of constants as they are now."""
    if isinstance(structure, Node):
        copied = copy.copy(structure)
        copied.children = [snapshot(child) for child in structure.children]
        return copied
    if type(structure) in (list, tuple, set):
        return type(structure)(snapshot(item) for item in structure)
    if type(structure) in (dict, collections.OrderedDict):
        return type(structure)((key, snapshot(item)) for key, item in structure.items())
    return structure


def same(a: Any, b: Any) -> bool:
    """True where two structures are equal, constants included."""
    if a is LEAF or b is LEAF:
        return a is b
    if type(a) is not type(b):
        return False
    if isinstance(a, Node):
        return a.kind is b.kind and a.same(b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, collections.abc.Mapping):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if a is b:
        return True
    try:
        equal = a == b
        return bool(equal.all() if hasattr(equal, "all") else equal)  # arrays compare by element
    except Exception:  # a comparison of the user's that gives no answer
        return False
