"""Options from configuration files. Nothing in them is executed.

A file is read with Python's own parser, and only setters of options, literals, members of
poptorch's enumerations and descriptions such as poptorch.TensorLocationSettings() are understood.
"""

import ast
import enum
import os
from typing import Any

import torch

from . import _execution_strategies, _option_groups, enums

# Parts of Options that a setter may be reached through.
_PARTS = (
    "TensorLocations",
    "Distributed",
    "Jit",
    "Precision",
    "Training",
    "_Popart",
    "Popart",
)
# Methods that are no setters.
_NO_SETTERS = frozenset(
    (
        "checkIsFrozen",
        "clone",
        "createOrSet",
        "defaultOutputMode",
        "deleteIfExists",
        "exists",
        "from_json",
        "loadFromFile",
        "toDict",
    )
)
_DTYPES = {"float": torch.float, "float32": torch.float, "half": torch.half, "float16": torch.half}
# What may be made in a file to be given to a setter.
_DESCRIPTIONS = {
    "TensorLocationSettings": _option_groups.TensorLocationSettings,
    **{name: getattr(_execution_strategies, name) for name in _execution_strategies.__all__},
}


def _setter(target: Any, name: str) -> Any:
    """The setter `name` of options, of a part of them or of a description."""
    method = getattr(type(target), name, None)
    if name.startswith("_") or name in _NO_SETTERS or not callable(method):
        raise AttributeError(f"{type(target).__name__} has no setter '{name}'")
    if name == "set" and not isinstance(target, _option_groups._PopartOptions):
        raise AttributeError(f"{type(target).__name__} has no setter 'set'")
    return getattr(target, name)


def _part(options: Any, name: str) -> Any:
    if name not in _PARTS:
        raise AttributeError(f"{type(options).__name__} has no part '{name}'")
    return getattr(options, name)


def _member(text: str) -> Any:
    """The member of an enumeration, or the dtype, that is called so; else the text itself."""
    kind, _, member = text.removeprefix("poptorch.").partition(".")
    if kind == "torch" and member in _DTYPES:
        return _DTYPES[member]
    found = getattr(enums, kind, None)
    if isinstance(found, type) and issubclass(found, enum.Enum) and member in found.__members__:
        return found[member]
    return text


class _Line:
    """One line of a configuration file: a chain of setters."""

    def __init__(self, options: Any) -> None:
        self._options = options

    def run(self, text: str) -> None:
        """Do what the line says."""
        expression = ast.parse(text, mode="eval").body
        if not isinstance(expression, ast.Call):
            raise SyntaxError("a line must be a setter with its arguments: deviceIterations(2)")
        self._call(expression)

    def _call(self, node: ast.Call) -> Any:
        function = node.func
        if isinstance(function, ast.Name):
            method = _setter(self._options, function.id)
        elif isinstance(function, ast.Attribute):
            method = _setter(self._target(function.value), function.attr)
        else:
            raise SyntaxError("only setters of options can be called")
        return method(*self._arguments(node), **self._keywords(node))

    def _target(self, node: ast.expr) -> Any:
        """What stands before the last dot: a part of the options, or an earlier setter."""
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Name):
            return self._options if node.id == "options" else _part(self._options, node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Call)):
            return _part(self._target(node.value), node.attr)
        raise SyntaxError("only setters of options can be called")

    def _arguments(self, node: ast.Call) -> list:
        return [self._value(argument) for argument in node.args]

    def _keywords(self, node: ast.Call) -> dict:
        if any(keyword.arg is None for keyword in node.keywords):
            raise SyntaxError("** is not understood here")
        return {str(keyword.arg): self._value(keyword.value) for keyword in node.keywords}

    def _value(self, node: ast.expr) -> Any:
        """A literal, a member of an enumeration, a dtype, or a description."""
        if isinstance(node, ast.List):
            return [self._value(item) for item in node.elts]
        if isinstance(node, ast.Tuple):
            return tuple(self._value(item) for item in node.elts)
        if isinstance(node, ast.Set):
            return {self._value(item) for item in node.elts}
        if isinstance(node, ast.Dict) and None not in node.keys:
            return {
                self._value(key): self._value(value)
                for key, value in zip(node.keys, node.values)
                if key is not None
            }
        if isinstance(node, ast.Attribute):
            return self._named(node)
        if isinstance(node, ast.Call):
            return self._description(node)
        try:
            return ast.literal_eval(node)
        except ValueError:
            raise SyntaxError(
                f"'{ast.unparse(node)}' is neither a literal nor a name of poptorch"
            ) from None

    @staticmethod
    def _named(node: ast.Attribute) -> Any:
        text = ast.unparse(node)
        found = _member(text.replace("poptorch.enums.", "poptorch.", 1))
        if isinstance(found, str):
            raise SyntaxError(f"'{text}' is no member of poptorch's enumerations")
        return found

    def _description(self, node: ast.Call) -> Any:
        """poptorch.TensorLocationSettings().useOnChipStorage(False), poptorch.Stage("A").ipu(0)."""
        function = node.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
            method = _setter(self._description(function.value), function.attr)
        else:
            name = ast.unparse(function).removeprefix("poptorch.").removeprefix("options.")
            if name not in _DESCRIPTIONS:
                raise SyntaxError(f"'{ast.unparse(function)}' cannot be called here")
            method = _DESCRIPTIONS[name]
        return method(*self._arguments(node), **self._keywords(node))


class ConfigFileError(Exception):
    """A line of a configuration file that is no setter, or whose setter refused it."""


# Users catch it by this name.
ConfigFileError.__module__ = "poptorch.options"


def set_from_file(options: Any, path: Any) -> None:
    """Do what each line of the file says, in order."""
    line = _Line(options)
    with open(path, encoding="utf-8") as file:
        for number, text in enumerate(file, start=1):
            text = text.strip()
            if not text or text.startswith("#"):
                continue
            try:
                line.run(text)
            except Exception as error:
                message = error.msg if isinstance(error, SyntaxError) else str(error)
                raise ConfigFileError(
                    f"{type(error).__name__} at line {number} of {os.path.basename(path)}: "
                    f"{message}\n> {text}"
                ) from error
