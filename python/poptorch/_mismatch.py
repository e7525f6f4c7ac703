"""How the arguments of a call differ from those that a model was compiled for, in words."""

import collections.abc
import itertools
from typing import Any, List, Optional, Tuple

import torch

from ._checks import short
from ._structure import Mapping, Node, is_tensor, same


def _type_of(structure: Any) -> type:
    if is_tensor(structure):
        return torch.Tensor
    return structure.kind if isinstance(structure, Node) else type(structure)


def _keys_of(structure: Any) -> Optional[list]:
    if isinstance(structure, Mapping):
        return list(structure.keys)
    return list(structure) if isinstance(structure, collections.abc.Mapping) else None


def _children_of(structure: Any) -> Optional[List[Tuple[Any, Any]]]:
    """What a container has in it, each with its index or key; None for anything else."""
    if isinstance(structure, Node):
        return list(zip(_keys_of(structure) or itertools.count(), structure.children))
    if isinstance(structure, (tuple, list)):
        return list(enumerate(structure))
    if isinstance(structure, collections.abc.Mapping):
        return list(structure.items())
    return None


def _of_keys(name: str, wanted: list, got: list) -> str:
    parts = []
    for words, keys in (
        ("Unexpected arguments", [key for key in got if key not in wanted]),
        ("Missing arguments", [key for key in wanted if key not in got]),
    ):
        if keys:
            parts.append(f"{words}: {', '.join(sorted(map(str, keys)))}.")
    if not parts:
        parts = [f"expected them in the order {short(wanted)} but got {short(got)}."]
    return f"Keys mismatch for {name}: {' '.join(parts)}"


def mismatch(name: str, wanted: Any, got: Any, named: bool = False) -> Optional[str]:
    """A sentence about the first difference between two structures; None where they are equal.

    Parts are called by their place in the whole, `name.0`; where `named`, by their keys alone.
    """
    if same(wanted, got):
        return None
    if _type_of(wanted) is not _type_of(got):
        return f"Type mismatch for {name}: expected {_type_of(wanted)} but got {_type_of(got)}."
    wanted_keys, got_keys = _keys_of(wanted), _keys_of(got)
    if wanted_keys is not None and got_keys is not None and wanted_keys != got_keys:
        return _of_keys(name, wanted_keys, got_keys)
    wanted_children, got_children = _children_of(wanted), _children_of(got)
    if wanted_children is not None and got_children is not None:
        if len(wanted_children) != len(got_children):
            return (
                f"Length mismatch for {name}: expected {len(wanted_children)} elements but got "
                f"{len(got_children)}."
            )
        for (key, wanted_child), (_, got_child) in zip(wanted_children, got_children):
            found = mismatch(key if named else f"{name}.{key}", wanted_child, got_child)
            if found:
                return found
    wanted_text, got_text = short(wanted), short(got)
    if wanted_text == got_text:
        got_text += " with other values"
    return (
        f"Value mismatch for {name}: expected {wanted_text} but got {got_text}. What is no tensor "
        "is part of the program; pass a tensor where it changes from call to call."
    )
