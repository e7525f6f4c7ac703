"""What options are made of: values by name with their rules in C++, and the parts of Options."""

import collections.abc
import copy
from typing import Any, Dict, List, Mapping, Optional

import torch

from . import poptorch_core
from ._checks import spoken_class
from .enums import HalfFloatCastingBehavior, MeanReductionStrategy, ReductionType


class OptionGroup:
    """Options that belong together. Each can be read, and assigned, as an attribute."""

    def __init__(self, core: Any) -> None:
        self.__dict__["_core"] = core

    def set(self, **options: Any) -> None:
        """Set options by their attribute names: set(device_iterations=4)."""
        for name, value in options.items():
            self._core.set(name, value)

    def createOrSet(self, **options: Any) -> None:
        """The same as set()."""
        self.set(**options)

    def exists(self, option: str) -> bool:
        """Whether there is an option of this name, and it has a value."""
        return self._core.exists(option)

    def deleteIfExists(self, option: str) -> None:
        """Take an option's value away."""
        self._core.clear(option)

    def checkIsFrozen(self, option: Optional[str] = None) -> None:
        """Raise an AttributeError where the options cannot be changed any more."""
        del option
        self._core.check_changeable()

    def toDict(self) -> Dict[str, Any]:
        """All values, by name."""
        return self._core.values()

    @property
    def _is_frozen(self) -> bool:
        return self._core.frozen

    @property
    def _values(self) -> Dict[str, Any]:
        return self._core.values()

    def __getattr__(self, name: str) -> Any:
        # Only reached for what is no method. PopTorch keeps some values behind an underscore.
        if name.startswith("__") or "_core" not in self.__dict__:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        if name.startswith("_") and not self._core.exists(name[1:]):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return self._core.get(name[1:] if name.startswith("_") else name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            if name != "__class__" and "_core" in self.__dict__:  # else still being made
                self._core.check_changeable()
            object.__setattr__(self, name, value)
        else:
            self._core.set(name, value)

    def __dir__(self) -> List[str]:
        return sorted({*super().__dir__(), *self._core.names()})

    def __call__(self, option: str) -> Any:
        return getattr(self, option)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self._core.values().items())
        return f"{type(self).__name__}({values})"


class _Part(OptionGroup):
    """A part of Options. It lives in the core of the Options it belongs to."""

    _name = ""

    def __reduce__(self):
        # Copied by itself, it becomes a part of options of its own.
        return _part_by_itself, (type(self), self._core.values())

    def __deepcopy__(self, memo):
        return _part_by_itself(type(self), self._core.values())


def _part_by_itself(cls, values):
    part = cls(getattr(poptorch_core.blank_options(), cls._name))
    part._core.restore(values)
    return part


class _TrainingOptions(_Part):
    """Options that only training has: opts.Training."""

    _name = "Training"

    def gradientAccumulation(self, gradient_accumulation: int) -> "_TrainingOptions":
        """Accumulate the gradients of this many micro-batches for one weight update.

        Default: 1. A call takes as many more samples; inference needs 1.
        """
        self.set(gradient_accumulation=gradient_accumulation)
        return self

    def accumulationAndReplicationReductionType(
        self, reduction_type: ReductionType
    ) -> "_TrainingOptions":
        """What becomes of the gradients of micro-batches and replicas.

        Default: ReductionType.Mean. With ReductionType.Sum they are added up, so that the effective
        learning rate grows with their number.
        """
        self.set(accumulation_and_replication_reduction_type=reduction_type)
        return self

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: MeanReductionStrategy
    ) -> "_TrainingOptions":
        """When the mean of gradients is divided: as they come, or at the end.

        Default: MeanReductionStrategy.Post; Running where the optimiser accumulates in float16.
        """
        self.set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)
        return self

    def setAutomaticLossScaling(self, enabled: bool) -> "_TrainingOptions":
        """Let the loss scale of half precision training be found while it runs.

        Default: False.
        """
        self._core.setAutomaticLossScaling(enabled)
        return self

    def setConvolutionDithering(self, enabled: bool) -> "_TrainingOptions":
        """Spread convolutions over the tiles of an IPU. Recorded; a CPU has no tiles.

        Replaces all options of convolutions, a partials type that was set before among them.
        """
        self._core.setConvolutionDithering(enabled)
        return self


class _PrecisionOptions(_Part):
    """Options about numbers: opts.Precision."""

    _name = "Precision"

    def enableFloatingPointExceptions(self, enabled: bool) -> "_PrecisionOptions":
        """Raise a poptorch.Error where a run divides by zero, overflows or makes a NaN.

        Default: False.
        """
        self._core.enableFloatingPointExceptions(enabled)
        return self

    def enableStochasticRounding(self, enabled: bool) -> "_PrecisionOptions":
        """Round to float16 up or down at random, right on average.

        Default: False. Needs half precision to have an effect.
        """
        self._core.enableStochasticRounding(enabled)
        return self

    def setPartialsType(self, dtype: torch.dtype) -> "_PrecisionOptions":
        """What products and convolutions add up in: torch.float or torch.half.

        Default: torch.float. Recorded: here they add up in float32 whatever is set. Replaces all
        options of convolutions that were set before.
        """
        self._core.setPartialsType(dtype)
        return self

    def halfFloatCasting(self, half_float_casting: HalfFloatCastingBehavior) -> "_PrecisionOptions":
        """Deprecated: warns, and does nothing else."""
        del half_float_casting
        self._core.halfFloatCasting()
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> "_PrecisionOptions":
        """Deprecated: warns, and does nothing else."""
        self._core.runningStatisticsAlwaysFloat(value)
        return self


class _JitOptions(_Part):
    """Options of a way to read models that is gone: opts.Jit."""

    _name = "Jit"

    def traceModel(self, trace_model: bool) -> "_JitOptions":
        """Deprecated: False warns, True is a ValueError."""
        self._core.traceModel(trace_model)
        return self


class _DistributedOptions(_Part):
    """Which process of how many this one is: opts.Distributed.

    Processes that mpirun started know it from the start.
    """

    _name = "Distributed"

    def disable(self) -> "_DistributedOptions":
        """Be the only process, whatever the environment says."""
        self._core.disable()
        return self

    def configureProcessId(self, process_id: int, num_processes: int) -> "_DistributedOptions":
        """Be process number process_id, counted from 0, of num_processes."""
        self._core.configureProcessId(process_id, num_processes)
        return self

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> "_DistributedOptions":
        """Read number of processes and this one's number from these environment variables."""
        self._core.setEnvVarNames(var_num_processes, var_process_id)
        return self

    @property
    def processId(self) -> int:
        """The number of this process, from 0."""
        return self._core.get("distributed_process_id")

    @property
    def numProcesses(self) -> int:
        """How many processes there are."""
        return self._core.get("num_distributed_processes")


class TensorLocationSettings(OptionGroup):
    """Where tensors of a kind are kept.

    Recorded, and used by the model of the device; a CPU has one memory, so that results and speed
    do not depend on it.
    """

    def __init__(self) -> None:
        super().__init__(poptorch_core.TensorLocationSettings())

    def useOnChipStorage(self, use: Optional[bool] = True) -> "TensorLocationSettings":
        """Keep them on the chip (True), off it (False), or where they fit (None)."""
        if use is None:
            self._core.clear("onChip")
        else:
            self._set_flag("onChip", use)
        return self

    def useReplicatedTensorSharding(self, use: bool = True) -> "TensorLocationSettings":
        """Let every replica keep only a part of them."""
        self._set_flag("useReplicatedTensorSharding", use)
        return self

    def useIOTilesToLoad(self, use: bool = True) -> "TensorLocationSettings":
        """Load them through the tiles that numIOTiles set aside."""
        self._set_flag("useIOTilesToLoad", use)
        return self

    def useIOTilesToStore(self, use: bool = True) -> "TensorLocationSettings":
        """Keep them on the tiles that numIOTiles set aside."""
        self._set_flag("useIOTilesToStore", use)
        return self

    def minElementsForOffChip(self, min_elements: int) -> "TensorLocationSettings":
        """Keep smaller tensors on the chip in any case."""
        self._core.set("minElementsForOffChip", min_elements)
        return self

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> "TensorLocationSettings":
        """Give smaller tensors whole to every replica in any case."""
        self._core.set("minElementsForReplicatedTensorSharding", min_elements)
        return self

    def _set_flag(self, name, use):
        assert isinstance(use, bool), f"{name} takes a bool, not {spoken_class(use)}"
        self._core.set(name, int(use))

    def __getstate__(self):
        return self._core.values()

    def __setstate__(self, values):
        TensorLocationSettings.__init__(self)
        self._core.restore(values)


class _TensorLocationOptions(_Part):
    """Where tensors are kept: opts.TensorLocations. Recorded; see TensorLocationSettings."""

    _name = "TensorLocations"

    def numIOTiles(self, num_tiles: int) -> "_TensorLocationOptions":
        """Set tiles aside for input and output: an even number from 32 to 192."""
        self.set(numIOTiles=num_tiles)
        return self

    def setActivationLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Where activations are kept."""
        return self._set_location("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Where weights are kept."""
        return self._set_location("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Where the state of the optimiser is kept."""
        return self._set_location("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Where accumulated gradients are kept."""
        return self._set_location("location_accumulator", location)

    def _set_location(self, name, location):
        assert isinstance(
            location, TensorLocationSettings
        ), f"{name} takes poptorch.TensorLocationSettings, not {spoken_class(location)}"
        self._core.set(name, location.toDict())
        return self


class _PopartOptions:
    """Settings of PopART's session, by PopART's names: opts._Popart.

    Enumerations may be given as numbers or as members of the module popart. A name that PopART does
    not have, or a value of another type, is an error when the model is compiled. Settings about how
    an IPU is programmed are recorded and have no effect on a CPU.
    """

    _name = "Popart"

    def __init__(self, core: Any) -> None:
        self._core = core

    def set(self, key: str, value: Any) -> "_PopartOptions":
        """Set one of PopART's session options: set("enableOutlining", False)."""
        self._core.set(key, value)
        return self

    def setEngineOptions(self, engine_options: Mapping[str, str]) -> "_PopartOptions":
        """Replace the options for Poplar's engine."""
        assert isinstance(
            engine_options, collections.abc.Mapping
        ), f"setEngineOptions takes a dict, not {spoken_class(engine_options)}"
        self._core.set("engineOptions", dict(engine_options))
        return self

    def setPatterns(self, patterns: Mapping[str, bool], level: int = 2) -> "_PopartOptions":
        """Turn PopART's patterns on or off by name, starting from those of a level.

        Level 0 has none, 1 the least, 2 the default ones, 3 all.
        """
        assert isinstance(
            patterns, collections.abc.Mapping
        ), f"setPatterns takes a dict, not {spoken_class(patterns)}"
        self._core.setPatterns(dict(patterns), level)
        return self

    def checkIsFrozen(self, option: Optional[str] = None) -> None:
        """Raise an AttributeError where the options cannot be changed any more."""
        del option
        self._core.check_changeable()

    @property
    def options(self) -> Dict[str, Any]:
        """All settings by name; a copy."""
        return self._core.options

    @property
    def _is_frozen(self) -> bool:
        return self._core.frozen

    def __deepcopy__(self, memo):
        return _popart_by_itself(type(self), copy.deepcopy(self.options, memo))

    def __reduce__(self):
        return _popart_by_itself, (type(self), self.options)

    def __repr__(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        return f"{type(self).__name__}({values})"


def _popart_by_itself(cls, options):
    popart = cls(poptorch_core.blank_options().Popart)
    popart._core.restore(options)
    return popart
