"""Small helpers that programs find in the package's namespace."""

import json
from typing import Any, Dict, Optional

import torch

from . import poptorch_core
from ._checks import short, spoken_class

_PREFIX = "attr:"
_attributes: Dict[int, Dict[str, Any]] = {}


def getIpuTensorId(tensor: torch.Tensor) -> int:
    """The number of the program's value that a tensor holds while forward is captured."""
    if not poptorch_core.is_capturing():
        raise poptorch_core.Error(
            "getIpuTensorId: tensors have a number only while forward runs inside a wrapped model"
        )
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"getIpuTensorId takes a tensor, not {spoken_class(tensor)}")
    return poptorch_core.value_number(tensor)


def rememberAttributes(attributes: Optional[Dict[str, Any]]) -> str:
    """A text that stands for the attributes of an operator; accessAttributes() reads it."""
    if attributes is None:
        return f"{_PREFIX}0"
    number = len(_attributes) + 1
    _attributes[number] = attributes
    return f"{_PREFIX}{number}"


def accessAttributes(attribute_id_str: str) -> Optional[Dict[str, Any]]:
    """The attributes that an id stands for: a JSON object, or what rememberAttributes() gave."""
    if not isinstance(attribute_id_str, str):
        raise ValueError(f"the id of attributes must be a str, got {short(attribute_id_str)}")
    if attribute_id_str.startswith("{"):
        return json.loads(attribute_id_str)
    number = attribute_id_str[len(_PREFIX) :]
    if not attribute_id_str.startswith(_PREFIX) or not number.isdigit():
        raise ValueError(f"'{attribute_id_str}' is no id of attributes")
    if int(number) == 0:
        return None
    if int(number) not in _attributes:
        raise ValueError(f"there are no attributes with the id '{attribute_id_str}'")
    return _attributes[int(number)]
