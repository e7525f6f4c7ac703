"""Modules as text, with what was said about where they run."""

import builtins
from typing import Any

import torch

from ._checks import spoken_class


def _annotations(module):
    """What forward pre-hooks that annotate a module say of themselves: BeginBlock(...)."""
    hooks = module._forward_pre_hooks.values()
    return [hook.annotation() for hook in hooks if hasattr(hook, "annotation")]


def _indented(text):
    first, *rest = text.split("\n")
    return "\n".join([first] + ["  " + line for line in rest])


def module_repr(m: torch.nn.Module) -> str:
    """The module's repr, which also shows where its blocks begin."""
    if not isinstance(m, torch.nn.Module):
        raise TypeError(f"module_repr takes a torch.nn.Module, not {spoken_class(m)}")
    lines = m.extra_repr().split("\n") if m.extra_repr() else []
    children = [
        f"({name}): {_indented(repr(child) if child is None else module_repr(child))}"
        for name, child in m._modules.items()
    ]
    if type(m).__repr__ is not torch.nn.Module.__repr__:
        text = repr(m)  # it has a form of its own
    elif len(lines) == 1 and not children:
        text = f"{m._get_name()}({lines[0]})"
    elif lines or children:
        inside = "\n  ".join(lines + children)
        text = f"{m._get_name()}(\n  {inside}\n)"
    else:
        text = f"{m._get_name()}()"
    return " ".join(_annotations(m) + [text])


def print(m: Any, **kwargs: Any) -> None:
    """Print a module as module_repr() shows it; anything else as Python does."""
    builtins.print(module_repr(m) if isinstance(m, torch.nn.Module) else m, **kwargs)
