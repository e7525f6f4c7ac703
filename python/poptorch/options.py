"""How a model is run. Values and rules live in C++; this is the interface users know."""

import copy
from typing import Any, Dict, List, Optional

from . import poptorch_core
from ._checks import truth
from ._execution_strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    _ExecutionStrategy,
)
from ._option_groups import (
    OptionGroup,
    TensorLocationSettings,
    _DistributedOptions,
    _JitOptions,
    _PopartOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
)
from ._options_text import ConfigFileError, set_from_file
from .enums import CommGroupType, ConnectionType, OutputMode, SyncPattern

__all__ = [
    "ConfigFileError",
    "Options",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
    "_DistributedOptions",
    "_JitOptions",
    "_PopartOptions",
    "_PrecisionOptions",
    "_TensorLocationOptions",
    "_TrainingOptions",
]

# Where an Options keeps its parts, and of which class they are.
_PARTS: Dict[str, Any] = {
    "_distributed": _DistributedOptions,
    "_jit": _JitOptions,
    "_popart": _PopartOptions,
    "_precision": _PrecisionOptions,
    "_tensor_locations": _TensorLocationOptions,
    "_training": _TrainingOptions,
}


class Options(OptionGroup):
    """How a model is compiled and run. Setters can be chained:

        opts = poptorch.Options().deviceIterations(20).randomSeed(123)
        opts.Training.gradientAccumulation(4)

    Values can be read as attributes (opts.device_iterations), and assigned to. Options that were
    given to a model or a data loader are frozen; change a clone() of them.

    New options start from the defaults, and from what POPTORCH_DEFAULT_OPTIONS in the environment
    says, in the form of from_json().
    """

    def __init__(self) -> None:
        self._attach(poptorch_core.Options())
        self.__dict__["_execution_strategy"] = PipelinedExecution()

    def _attach(self, core: Any, like: Optional["Options"] = None) -> None:
        super().__init__(core)
        for attribute, part in _PARTS.items():
            part = type(like.__dict__[attribute]) if like else part
            self.__dict__[attribute] = part(getattr(core, part._name))

    def _over(self, core: Any) -> "Options":
        """Options of this class whose values are those of `core`."""
        made = type(self).__new__(type(self))
        made._attach(core, like=self)
        for name, value in self.__dict__.items():
            if name != "_core" and name not in _PARTS:
                made.__dict__[name] = copy.deepcopy(value)
        return made

    # Parts.

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        """Where tensors are kept."""
        return self.__dict__["_tensor_locations"]

    @property
    def Distributed(self) -> _DistributedOptions:
        """Which process of how many this one is."""
        return self.__dict__["_distributed"]

    @property
    def Jit(self) -> _JitOptions:
        """Options of a way to read models that is gone."""
        return self.__dict__["_jit"]

    @property
    def Precision(self) -> _PrecisionOptions:
        """Options about numbers."""
        return self.__dict__["_precision"]

    @property
    def Training(self) -> _TrainingOptions:
        """Options that only training has."""
        return self.__dict__["_training"]

    @property
    def _Popart(self) -> _PopartOptions:
        """Settings of PopART's session."""
        return self.__dict__["_popart"]

    @property
    def Popart(self) -> _PopartOptions:
        """Settings of PopART's session, under the name of older releases."""
        return self.__dict__["_popart"]

    # What a call does.

    def deviceIterations(self, device_iterations: int) -> "Options":
        """Weight updates (training) or forward passes (inference) in one call.

        Default: 1. A call takes as many more samples and comes back to Python once.
        """
        self.set(device_iterations=device_iterations)
        return self

    def outputMode(
        self, output_mode: OutputMode, output_return_period: Optional[int] = None
    ) -> "Options":
        """Which micro-batches' outputs a call returns.

        Default: OutputMode.Final for training, OutputMode.All for inference. EveryN returns those
        of every n-th device iteration, where n is output_return_period; Sum adds them up.
        """
        self._core.outputMode(output_mode, output_return_period)
        return self

    def defaultOutputMode(self) -> bool:
        """True where no output mode was chosen."""
        return self._core.defaultOutputMode()

    def randomSeed(self, random_seed: int) -> "Options":
        """Fix the random numbers of the program.

        Not set by default: each run differs. Also calls torch.manual_seed, at once.
        """
        self._core.randomSeed(random_seed)
        return self

    def enableSyntheticData(self, enabled: bool) -> "Options":
        """Run on made-up data, without inputs and outputs, to measure the program alone.

        Default: False. With it, outputs mean nothing.
        """
        self._core.enableSyntheticData(truth("enableSyntheticData", enabled))
        return self

    # Replicas and devices.

    def replicationFactor(self, replication_factor: int) -> "Options":
        """Data-parallel copies of the model, each with micro-batches of its own.

        Default: 1. An update uses the gradients of all of them.
        """
        self.set(replication_factor=replication_factor)
        return self

    def inputReplicaGrouping(
        self, input_group_size: int, input_group_type: CommGroupType
    ) -> "Options":
        """Give the same inputs to groups of replicas. Call it after replicationFactor.

        Default: 1, CommGroupType.Consecutive: each replica has inputs of its own. The size must be
        a factor of the replication factor; CommGroupType.All is not supported.
        """
        self._core.inputReplicaGrouping(input_group_size, input_group_type)
        return self

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> "Options":
        """Whether replicas share their buffers.

        Default: True, which is not supported for buffers that change: with several replicas, set it
        to False to let every replica have its own.
        """
        self.set(broadcast_buffers=broadcast_buffers)
        return self

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> "Options":
        """Round the number of IPUs up to a power of two where it is none.

        Default: False: such a number is an error.
        """
        self.set(auto_round_num_ipus=auto_round_num_ipus)
        return self

    def setExecutionStrategy(self, strategy: _ExecutionStrategy) -> "Options":
        """How the model is spread over IPUs: PipelinedExecution, ShardedExecution, ...

        Default: PipelinedExecution(). Stages run one after the other on one device for now, which
        gives the same results.
        """
        self._core.check_changeable()
        assert isinstance(
            strategy, _ExecutionStrategy
        ), f"setExecutionStrategy takes an execution strategy, not {type(strategy).__name__}"
        self.__dict__["_execution_strategy"] = strategy
        self._core.set("execution_mode", strategy._mode)
        self._core.set("execution_stages", strategy._stage_count())
        return self

    def setAvailableMemoryProportion(
        self, available_memory_proportion: Dict[str, float]
    ) -> "Options":
        """How much of an IPU's memory operators may use for a while: {"IPU0": 0.6}.

        Default: {}. Recorded; a CPU has no such limit.
        """
        self._core.setAvailableMemoryProportion(available_memory_proportion)
        return self

    def connectionType(self, connection_type: ConnectionType) -> "Options":
        """When the model takes its devices.

        Default: ConnectionType.Always, before it is compiled. OnDemand: after that. Never:
        it can only be compiled.
        """
        self.set(connection_type=connection_type)
        return self

    def useIpuModel(self, use_model: bool) -> "Options":
        """Use the model of an IPU in place of the virtual IPUs.

        Not set by default: POPTORCH_IPU_MODEL decides. The program runs on the CPU either way.
        """
        self.set(use_model=use_model)
        return self

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> "Options":
        """Compile for an IPU that is not there, of version 1, 2 or 21. The model cannot run.

        Cannot be used together with useIpuModel or useIpuId.
        """
        self._core.useOfflineIpuTarget(ipu_version)
        return self

    def useIpuId(self, ipu_id: int) -> "Options":
        """Take the device of this number. Not set by default: one that is free."""
        self.set(ipu_id=ipu_id)
        return self

    def syncPattern(self, sync_pattern: SyncPattern) -> "Options":
        """Which IPUs wait for each other.

        Default: SyncPattern.Full. Recorded; results and speed do not depend on it.
        """
        self.set(sync_pattern=sync_pattern)
        return self

    # Compiling.

    def enableExecutableCaching(self, path: Optional[str]) -> "Options":
        """Keep compiled programs in this folder, to load them the next time; None turns it off.

        Default: the folder that POPTORCH_CACHE_DIR names, else off.
        """
        self._core.enableExecutableCaching(path)
        return self

    def showCompilationProgressBar(self, show: bool = True) -> "Options":
        """Whether compiling shows the bar "Graph compilation". Default: True."""
        self.set(show_compilation_progress_bar=truth("showCompilationProgressBar", show))
        return self

    def enableStableNorm(self, enabled: bool) -> "Options":
        """Compute norms the exact way. Norms are always exact here."""
        self._core.enableStableNorm(enabled)
        return self

    def precise(self, precise: bool = True) -> "Options":
        """Leave out algorithms that round more than the plain one does.

        Default: what TESSERA_PRECISION says, else large convolutions may use Winograd's algorithm
        with 4x4 tiles, whose results are within 2e-5 of the largest value. Not in PopTorch.
        """
        self.set(precise_results=precise)
        return self

    def autotune(self, autotune: bool = True) -> "Options":
        """Let compiling time kernels where several could do the same work.

        Default: what TESSERA_AUTOTUNE says, else False: with it, results may differ in their last
        bits from one compilation to the next. Not in PopTorch.
        """
        self.set(autotuned=autotune)
        return self

    def updatableNamedBuffers(self, buffers: List[str]) -> "Options":
        """The buffers that copyNamedBuffersToDevice sends to the device. Not set by default."""
        self.set(updatable_named_buffers=buffers)
        return self

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> "Options":
        """Log unknown attributes of an optimiser at level DEBUG in place of a warning.

        Default: False.
        """
        self.set(relax_optimizer_checks=truth("relaxOptimizerAttributesChecks", relax))
        return self

    # Looking inside.

    def anchorTensor(
        self,
        short_name: str,
        long_name: str,
        output_mode: Optional[OutputMode] = None,
        output_return_period: Optional[int] = 1,
    ) -> None:
        """Keep the tensor long_name of the program for getAnchoredTensor(short_name).

        Its output mode is that of the model's outputs unless one is given. Frozen options take it
        too, but a model only looks at it when it is wrapped.
        """
        self._core.anchorTensor(short_name, long_name, output_mode, output_return_period)

    def logDir(self, log_dir: str) -> "Options":
        """The folder for log files. Default: the current one."""
        self.set(log_dir=log_dir)
        return self

    def modelName(self, name: str) -> "Options":
        """The name of the program, and of its part of a profile.

        Default: "training" or "inference".
        """
        self.set(model_name=name)
        return self

    def maxRepeatLogs(self, max_lines: Optional[int]) -> "Options":
        """How often the same message is logged; None: always. Default: 4."""
        self.set(max_repeat_logs=max_lines)
        return self

    def logCycleCount(self, log_cycle_count: bool) -> "Options":
        """Count the cycles that an IPU would take for a run, for cycleCount(). Default: False."""
        self._core.logCycleCount(log_cycle_count)
        return self

    def enableProfiling(self, profile_dir: Optional[str] = None) -> "Options":
        """Write a profile of the model into this folder, or into the current one.

        Off by default. POPLAR_ENGINE_OPTIONS in the environment wins.
        """
        self._core.enableProfiling(profile_dir)
        return self

    def disableModuleNamescope(self) -> "Options":
        """Do not put the path of its module before the name of an operator."""
        self.set(module_namescope_enabled=False)
        return self

    def sourceLocationExcludes(self, excludes: List[str]) -> "Options":
        """Never name files whose path holds one of these as the line an operator came from.

        Default: the folders of poptorch and torch.
        """
        self.set(source_location_excludes=excludes)
        return self

    def appendToLocationExcludes(self, *excludes: str) -> "Options":
        """Add to the list of sourceLocationExcludes."""
        self._core.appendToLocationExcludes(list(excludes))
        return self

    # As a whole.

    def loadFromFile(self, filepath: str) -> "Options":
        """Call the setters that a file names, one in each line, without `options.` before it:

            deviceIterations(2)
            Training.gradientAccumulation(4)  # and so on
            outputMode(poptorch.OutputMode.All)

        Arguments are literals, members of poptorch's enumerations and descriptions such as
        poptorch.TensorLocationSettings(). Nothing else is understood, and nothing is executed. A
        line that cannot be used is a poptorch.options.ConfigFileError. Later files win.
        """
        set_from_file(self, filepath)
        return self

    def from_json(self, string: str) -> "Options":
        """Call the setters that a JSON object names:

            {"deviceIterations": 2, "Training.gradientAccumulation": 4,
             "outputMode": "OutputMode.All", "_Popart.set": ["enableOutlining", false]}

        The items of a list are the arguments of the setter.
        """
        self._core.from_json(string)
        return self

    def toDict(self) -> Dict[str, Any]:
        """All options and PopART's settings in one dictionary. An output mode must be chosen."""
        assert not self.defaultOutputMode(), "an output mode must be chosen first: outputMode()"
        everything = dict(self._Popart.options)
        for part in (self.Training, self.Distributed, self.TensorLocations):
            everything.update(part.toDict())
        everything.update(super().toDict())
        everything.update(self._execution_strategy.backendOptions())
        return everything

    def clone(self) -> "Options":
        """A copy that can be changed."""
        return self._over(self._core.clone())

    def __copy__(self) -> "Options":
        return self.clone()

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Options":
        memo[id(self)] = copied = self.clone()
        return copied

    def __getstate__(self) -> Dict[str, Any]:
        rest = {k: v for k, v in self.__dict__.items() if k != "_core" and k not in _PARTS}
        classes = {attribute: type(self.__dict__[attribute]) for attribute in _PARTS}
        return {"core": self._core.state(), "parts": classes, "rest": rest}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        core = poptorch_core.blank_options()
        core.restore_state(state["core"])
        super().__init__(core)
        for attribute, part in state["parts"].items():
            self.__dict__[attribute] = part(getattr(core, part._name))
        self.__dict__.update(state["rest"])

    def _freeze(self) -> None:
        self._core.freeze()

    def _unfreeze(self) -> None:
        self._core.unfreeze()

    def __repr__(self) -> str:
        values = [f"{name}={value!r}" for name, value in self._core.values().items()]
        values.append(f"execution_strategy={self._execution_strategy!r}")
        parts = ("TensorLocations", "Distributed", "Jit", "Precision", "Training", "_Popart")
        values += [f"{name}={getattr(self, name)!r}" for name in parts]
        return f"{type(self).__name__}({', '.join(values)})"
