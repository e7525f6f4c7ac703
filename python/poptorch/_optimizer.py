"""What all optimisers of `poptorch.optim` have in common, and what the core learns of any."""

import numbers
import weakref
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch

from . import poptorch_core
from ._checks import short
from ._logging import ABOUT_ONE_OBJECT, logger
from ._state_on_device import StateOnDevice

# What an optimiser has once, whatever a group says; only some of it in each class.
_WIDE = (
    "loss_scaling",
    "accum_type",
    "velocity_accum_type",
    "first_order_momentum_accum_type",
    "second_order_momentum_accum_type",
    "use_combined_accum",
    "bias_correction",
    "use_tf_variant",
    "max_grad_norm",
)
_BITS = {torch.float16: 16, torch.float32: 32}


class Optimizer(torch.optim.Optimizer):
    """The base of the optimisers of `poptorch.optim`.

    `variable_attrs` says which attributes may change after the model was compiled: those that the
    constructor was given, and no others. `variable_attrs.markAsVariable(name)` and
    `markAsConstant(name)` change that, before compiling; `isConstant(name)` asks.
    """

    _kind = ""
    variable_attrs: poptorch_core.VariableAttributes
    _on_device: poptorch_core.OptimizerState

    def _add_extras(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        """Set what PyTorch's optimiser does not have; `given`: the arguments that are not None."""
        self.variable_attrs = poptorch_core.VariableAttributes(self._kind, list(given))
        self._on_device = poptorch_core.OptimizerState()
        for name, default in defaults.items():
            value = given.get(name, default)
            if name.endswith("accum_type"):
                assert (
                    isinstance(value, torch.dtype) and value in _BITS
                ), f"{name} must be torch.float16 or torch.float32, not {short(value)}"
            elif name == "max_grad_norm" and not value >= 0:
                raise ValueError(f"max_grad_norm must be a number, not negative, got {value}")
            setattr(self, name, bool(value) if isinstance(default, bool) else value)

    def state_dict(self) -> Dict[str, Any]:
        """PyTorch's dictionary with two entries more, both None before the model is compiled.

        `ipu_state` has what the program remembers, by names such as `Accl1___fc.weight`;
        `ipu_param` the numbers that may change. Where the program has newer ones, the state is
        fetched when somebody looks at it or the program runs again.
        """
        seen = self._on_device.glance()
        state, numbers = None, None
        if seen:
            snapshot, numbers, on_device = seen
            state = StateOnDevice(snapshot) if on_device else snapshot.ipu_state()
            if not on_device:
                logger.debug("Using cached optimiser state dict")
        return {"ipu_state": state, "ipu_param": numbers, **super().state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what state_dict() gave. The program gets it before it runs again."""
        if not state_dict:
            raise RuntimeError("Cannot load optimizer state dictionary because it is empty.")
        if not ("ipu_state" in state_dict and "ipu_param" in state_dict):
            raise RuntimeError(
                "Only IPU optimizer states can be loaded onto the IPU. This dictionary has no "
                "'ipu_state' and 'ipu_param': it was not made by an optimizer of poptorch.optim"
            )
        if "param_groups" in state_dict:
            own = {name: v for name, v in state_dict.items() if not name.startswith("ipu_")}
            super().load_state_dict({"state": {}, **own})
        if state_dict["ipu_state"] is not None or state_dict["ipu_param"] is not None:
            self._load_values(state_dict["ipu_state"] or {}, state_dict["ipu_param"] or {})

    def _load_values(self, state: Mapping[str, Any], numbers: Mapping[str, Any]) -> None:
        groups = [{**_split(group)[0], **_wide_numbers(self)} for group in self.param_groups]
        self._on_device.load(dict(state), dict(numbers), groups)

    def __getstate__(self) -> Dict[str, Any]:
        # PyTorch's keeps only its own attributes, which are those of a copy then.
        names = [name for name in (*_WIDE, "variable_attrs") if name in self.__dict__]
        values = self._on_device.read()
        return {
            **super().__getstate__(),  # type: ignore[misc]
            **{name: self.__dict__[name] for name in names},
            "_values": values and values[:2],
        }

    def __setstate__(self, state: Dict[str, Any]) -> None:
        values = state.get("_values")
        super().__setstate__({name: v for name, v in state.items() if name != "_values"})
        if "_on_device" not in self.__dict__:  # a copy; loading a state comes here too
            self._on_device = poptorch_core.OptimizerState()
            if values:
                self._load_values(*values)


def _split(group: Mapping[str, Any]) -> Tuple[Dict[str, float], List[str]]:
    """The entries of a parameter group that are numbers, and the names of all others."""
    entries = {name: value for name, value in group.items() if name != "params"}
    if entries.get("betas") is not None:
        entries["beta1"], entries["beta2"] = entries.pop("betas")
    numbers: Dict[str, float] = {}
    others: List[str] = []
    for name, value in entries.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError):
            others.append(name)  # schedulers and users put names and lists there too
    return numbers, others


def _wide_numbers(optimizer: Optimizer) -> Dict[str, float]:
    values = {name: getattr(optimizer, name) for name in _WIDE if hasattr(optimizer, name)}
    return {name: float(_BITS.get(value, value)) for name, value in values.items()}


def _scale_of(optimizer: torch.optim.Optimizer) -> Dict[str, float]:
    """PyTorch's optimisers have a scale where the user put one there."""
    scale = getattr(optimizer, "loss_scaling", None)
    return {} if scale is None else {"loss_scaling": float(scale)}


_TORCH_KINDS = {
    "AdamW": torch.optim.AdamW,
    "Adam": torch.optim.Adam,
    "SGD": torch.optim.SGD,
    "RMSprop": torch.optim.RMSprop,
}
_warned_of: "weakref.WeakSet[torch.optim.Optimizer]" = weakref.WeakSet()


def _warn_once(optimizer: torch.optim.Optimizer, kind: str) -> None:
    """Tell of what this optimiser says and no program does."""
    if optimizer in _warned_of:
        return
    _warned_of.add(optimizer)
    cls = type(optimizer)
    if not ("_kind" in cls.__dict__ or cls is _TORCH_KINDS.get(kind)):
        logger.warning(
            "%s is a subclass of a supported optimiser. Poptorch does not run Python optimizer "
            "code directly: its own step() is never run, and the program does what %s does",
            cls.__name__,
            kind,
            extra=ABOUT_ONE_OBJECT,
        )


def _kind_of(optimizer: torch.optim.Optimizer) -> str:
    kind: Optional[str] = getattr(optimizer, "_kind", None) or next(
        (name for name, base in _TORCH_KINDS.items() if isinstance(optimizer, base)), None
    )
    cls = type(optimizer)
    assert kind, (
        f"Unsupported optimizer type {cls.__name__}: use SGD, Adam, AdamW, RMSprop of torch.optim "
        "or poptorch.optim, or poptorch.optim.LAMB"
    )
    _warn_once(optimizer, kind)
    return kind


class Watch:
    """The numbers that a program took from an optimiser, to see when they have changed since.

    Only setOptimizer() brings them to the program, which is easily forgotten.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._groups = [self._numbers(group, optimizer) for group in optimizer.param_groups]
        self._wide = [(n, getattr(optimizer, n)) for n in _WIDE if hasattr(optimizer, n)]
        self._told = False

    @staticmethod
    def _numbers(group: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> list:
        own = [name for name in group if name in optimizer.defaults]
        return [(n, group[n]) for n in own if isinstance(group[n], (numbers.Real, tuple))]

    def look(self) -> None:
        """Warn, once, where something has changed."""
        optimizer = self._optimizer()
        if optimizer is None or self._told:
            return
        name = self._changed(optimizer)
        if name:
            self._told = True
            logger.warning(
                "'%s' of the optimizer was changed without setOptimizer(). Poptorch does not run "
                "Python optimizer code directly: the program goes on with the numbers it had; call "
                "setOptimizer(optimizer) on the model after every change",
                name,
                extra=ABOUT_ONE_OBJECT,
            )

    def _changed(self, optimizer: torch.optim.Optimizer) -> Optional[str]:
        for group, known in zip(optimizer.param_groups, self._groups):
            for name, value in known:
                if group.get(name) != value:
                    return name
        for name, value in self._wide:
            if getattr(optimizer, name, None) != value:
                return name
        return None


def described(optimizer: torch.optim.Optimizer) -> poptorch_core.Optimizer:
    """The optimiser as the core takes it: a copy of its numbers at this moment."""
    ours = optimizer if isinstance(optimizer, Optimizer) else None
    return poptorch_core.Optimizer(
        kind=_kind_of(optimizer),
        groups=[(group["params"], *_split(group)) for group in optimizer.param_groups],
        values=_wide_numbers(ours) if ours else _scale_of(optimizer),
        defaults=_split(optimizer.defaults)[0],
        # Schedulers put a function of their own in the place of step().
        attributes=[n for n, v in vars(optimizer).items() if n[0] != "_" and not callable(v)],
        variable=ours.variable_attrs if ours else None,
        state=ours._on_device if ours else None,  # type: ignore[arg-type]
    )
