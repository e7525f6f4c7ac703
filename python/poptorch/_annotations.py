"""Remarks about where and how parts of a model run. They never change what it computes.

An IPU has tiles, memory and a schedule that these remarks are about; a CPU has not, so that most
of them are only checked.
"""

import contextlib
import functools
import itertools
import numbers
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Type, TypeVar, Union

import torch

from . import poptorch_core
from ._checks import short, spoken_class, whole_number

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SERIALIZATION_MODES = ("none", "input_channels", "reducing_dim", "output_channels")


class _Scope:
    """A `with` statement that changes nothing."""

    def __enter__(self) -> "_Scope":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        return None


def _check_block(user_id: Optional[str], ipu_id: Optional[int]) -> None:
    assert user_id is None or isinstance(
        user_id, str
    ), f"the user_id of a block must be a str, not {type(user_id).__name__}"
    assert ipu_id is None or (
        isinstance(ipu_id, int) and not isinstance(ipu_id, bool)
    ), f"the ipu_id of a block must be an int, not {type(ipu_id).__name__}"


# The blocks that the forward which is being captured has begun, in order: id and IPU.
_begun: Optional[List[Tuple[Optional[str], Optional[int]]]] = None


@contextlib.contextmanager
def blocks_of_forward() -> Iterator[List[Tuple[Optional[str], Optional[int]]]]:
    """Gives a list that the blocks which are begun inside are added to."""
    global _begun
    before, _begun = _begun, []
    try:
        yield _begun
    finally:
        _begun = before


def _begin(user_id: Optional[str], ipu_id: Optional[int]) -> None:
    if _begun is not None:
        _begun.append((user_id, ipu_id))


class Block(_Scope):
    """`with poptorch.Block("encoder", ipu_id=1):` puts the operators inside into one block."""

    _auto_ids = itertools.count()

    def __init__(self, user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> None:
        _check_block(user_id, ipu_id)
        self.user_id = str(next(Block._auto_ids)) if user_id is None else user_id
        self.ipu_id = ipu_id

    def __enter__(self) -> "Block":
        _begin(self.user_id, self.ipu_id)
        return self

    @staticmethod
    def useAutoId() -> None:
        """Begin to number the blocks without a name from "0" again."""
        Block._auto_ids = itertools.count()

    @staticmethod
    def start(user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> None:
        """Begin a block that ends where the next one begins."""
        _check_block(user_id, ipu_id)
        _begin(user_id, ipu_id)


class _BeginBlockHook:
    """A forward pre-hook that says where a block begins; copied and pickled with its module."""

    def __init__(self, user_id: Optional[str], ipu_id: Optional[int]) -> None:
        self.user_id = user_id
        self.ipu_id = ipu_id

    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        Block.start(self.user_id, self.ipu_id)

    def annotation(self) -> str:
        """How module_repr() shows it."""
        return f"BeginBlock(user_id={self.user_id}, ipu_id={self.ipu_id})"


class _CallableBlock(torch.nn.Module):
    """A function as a module, so that it can begin a block."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._function(*args, **kwargs)


def BeginBlock(
    layer_to_call: Union[torch.nn.Module, Callable[..., Any]],
    user_id: Optional[str] = None,
    ipu_id: Optional[int] = None,
) -> torch.nn.Module:
    """Begin a block with this layer; it ends where the next one begins. Returns the layer.

    A function becomes a module that calls it.
    """
    _check_block(user_id, ipu_id)
    if not isinstance(layer_to_call, torch.nn.Module):
        if not callable(layer_to_call):
            raise poptorch_core.Error(
                f"a block begins with a module or a function, not {type(layer_to_call).__name__}"
            )
        layer_to_call = _CallableBlock(layer_to_call)
    if _hooks_of(layer_to_call):
        raise poptorch_core.Error(
            "BeginBlock has already been called on this layer: call removeBlocks() first to put it "
            "into another block"
        )
    layer_to_call.register_forward_pre_hook(_BeginBlockHook(user_id, ipu_id))
    layer_to_call.__dict__.update(_user_id=user_id, _ipu_id=ipu_id)
    return layer_to_call


def _hooks_of(module: torch.nn.Module) -> List[int]:
    hooks = module._forward_pre_hooks
    return [key for key, hook in hooks.items() if isinstance(hook, _BeginBlockHook)]


def removeBlocks(module: torch.nn.Module) -> None:
    """Take back every BeginBlock() on a module and the modules inside it."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"removeBlocks takes a torch.nn.Module, not {spoken_class(module)}")
    for part in module.modules():
        for key in _hooks_of(part):
            del part._forward_pre_hooks[key]
            for name in ("_user_id", "_ipu_id"):
                part.__dict__.pop(name, None)


def BlockFunction(
    user_id: Optional[str] = None, ipu_id: Optional[int] = None
) -> Callable[[_Function], _Function]:
    """A decorator: each call of the function is a block."""
    _check_block(user_id, ipu_id)

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def inside_block(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return inside_block  # type: ignore[return-value]

    return decorate


class NameScope(_Scope):
    """`with poptorch.NameScope("head"):` gives operators a name for people."""

    def __init__(self, name: str) -> None:
        assert isinstance(name, str), f"a name scope is a str, not {type(name).__name__}"
        self.name = name


class Attribute(_Scope):
    """`with poptorch.Attribute(__outline={"layer": "embedding"}):` adds remarks to operators."""

    def __init__(self, **attributes: Dict[str, str]) -> None:
        for name, values in attributes.items():
            if not isinstance(values, dict) or not all(
                isinstance(text, str) for pair in values.items() for text in pair
            ):
                raise ValueError(f"{name} must be a dictionary of str by str, not {short(values)}")
        self.attributes = attributes


def _check_tensor(function: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise poptorch_core.Error(f"{function} takes a tensor, not {type(tensor).__name__}")


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Keep these tensors between forward and backward, where others may be computed again.

    Returns what it is given: one tensor, a tuple of several, or a list or tuple of tensors.
    """
    given = tensors[0] if len(tensors) == 1 else tensors
    for tensor in given if isinstance(given, (list, tuple)) else (given,):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                "recomputationCheckpoint takes tensors, or one list or tuple of tensors, not "
                f"{type(tensor).__name__}"
            )
    return given


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """Say how much of an IPU's memory computing this tensor may use. Returns the tensor."""
    _check_tensor("set_available_memory", tensor)
    share = available_memory_proportion
    if not isinstance(share, numbers.Real) or not 0 <= share <= 1:
        raise ValueError(
            f"the available_memory_proportion must be a number from 0 to 1, not {short(share)}"
        )
    return tensor


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor."""
    _check_tensor("nop", tensor)
    return tensor


def serializedMatMul(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    mode: Any,
    factor: int = 0,
    keep_precision: bool = False,
) -> torch.Tensor:
    """A matrix product that an IPU computes in `factor` parts along a poptorch dimension."""
    assert isinstance(
        keep_precision, bool
    ), f"keep_precision must be a bool, not {spoken_class(keep_precision)}"
    whole_number("factor", factor, 0, AssertionError)
    value = getattr(mode, "value", mode)
    assert (
        isinstance(value, str) and value in _SERIALIZATION_MODES
    ), f"mode must be a poptorch.MatMulSerializationMode, not {spoken_class(mode)}"
    assert isinstance(lhs, torch.Tensor) and isinstance(
        rhs, torch.Tensor
    ), "serializedMatMul multiplies two tensors"
    return torch.matmul(lhs, rhs)
