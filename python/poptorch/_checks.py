"""Arguments that must be of a kind: one sentence for each that is not."""

import numbers
import re
import reprlib
from typing import Any, Optional, Type

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def whole_number(
    name: str, value: Any, least: Optional[int] = None, wrong: Type[Exception] = TypeError
) -> int:
    """The value as an int; numpy's integers are integers too, but True and 1.0 are none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise wrong(f"{name} must be an int, not {spoken_class(value)}")
    number = int(value)
    if wrong is TypeError:
        wrong = ValueError  # the type is right
    if number >= 2**63:
        raise wrong(f"{name} is beyond 64 bits")
    if least is not None and number < least:
        raise wrong(f"{name} must be at least {least}, got {number}")
    return number


def truth(name: str, value: Any) -> bool:
    """Whether the value counts as true, as programs that pass numbers expect; None does not."""
    if isinstance(value, (bool, numbers.Number)) or type(value).__name__ == "bool_":
        return bool(value)
    raise AssertionError(f"{name} takes a bool, not {spoken_class(value)}")


def spoken_class(value: Any) -> str:
    """The class of a value as a part of a sentence: "None", "float", "numpy.ndarray"."""
    if value is None:
        return "None"
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def short(value: Any) -> str:
    """A value as a message shows it: an array by its shape and type, nothing at length."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and hasattr(value, "dtype"):
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        return f"{name}(shape={tuple(shape)}, dtype={value.dtype})"
    return re.sub(" at 0x[0-9a-f]+", "", _SHORT.repr(value))
