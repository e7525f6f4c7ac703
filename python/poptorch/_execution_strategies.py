"""How a model is spread over devices: descriptions that Options.setExecutionStrategy takes."""

import copy
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from ._checks import short, whole_number
from .enums import AutoStage, Liveness

__all__ = [
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
]


class Stage:
    """Blocks that run together, on one IPU."""

    def __init__(self, *block_ids: str) -> None:
        assert all(
            isinstance(block, str) for block in block_ids
        ), f"the blocks of a Stage are strings, got {short(block_ids)}"
        self._blocks = list(block_ids)
        self._stage_id = -1
        self._phase_id = -1
        self._ipu: Optional[int] = None

    @property
    def blocks(self) -> List[str]:
        """The blocks that this stage is made of."""
        return self._blocks

    def ipu(self, ipu: int) -> "Stage":
        """Run the stage on this IPU."""
        self._ipu = whole_number("the number of an IPU", ipu, 0, AssertionError)
        return self

    def __repr__(self) -> str:
        placed = f".ipu({self._ipu})" if self._ipu is not None else ""
        return f"Stage({', '.join(map(repr, self._blocks))}){placed}"


class Phase:
    """Stages that run at the same time. Strings are the blocks of a single stage."""

    def __init__(self, *arg: Union[str, Stage]) -> None:
        self.stages: List[Stage]
        if all(isinstance(item, Stage) for item in arg):
            self.stages = [item for item in arg if isinstance(item, Stage)]
        else:
            blocks = [item for item in arg if isinstance(item, str)]
            assert len(blocks) == len(arg), (
                "a Phase takes either Stages or the ids of blocks, which are strings, got "
                f"{[type(item).__name__ for item in arg]}"
            )
            self.stages = [Stage(*blocks)]

    def stage(self, idx: int) -> Stage:
        """The stage number idx."""
        number = whole_number("the number of a stage", idx, 0, AssertionError)
        assert number < len(
            self.stages
        ), f"there is no stage {number}: the Phase has {len(self.stages)}, counted from 0"
        return self.stages[number]

    def ipus(self, *ipus: int) -> "Phase":
        """Place the stages, one IPU for each."""
        assert len(ipus) == len(
            self.stages
        ), f"the Phase has {len(self.stages)} stages, but {len(ipus)} IPUs were given"
        for stage, ipu in zip(self.stages, ipus):
            stage.ipu(ipu)
        return self

    def __repr__(self) -> str:
        return f"Phase({', '.join(map(repr, self.stages))})"


class _ExecutionStrategy:
    """What setExecutionStrategy takes: stages, and which blocks are in them."""

    # The number that PopTorch has for it.
    _mode = 0

    def __init__(self) -> None:
        self._stages: List[Stage] = []
        self._block_map: Dict[str, Stage] = {}

    def _add(self, stage: Stage) -> None:
        for block in stage.blocks:
            assert block not in self._block_map, f"{block} is in more than one stage"
            self._block_map[block] = stage
        self._stages.append(stage)

    def stage(self, block_id: str) -> Stage:
        """The stage that a block belongs to."""
        assert (
            isinstance(block_id, str) and block_id in self._block_map
        ), f"Unknown block {short(block_id)}"
        return self._block_map[block_id]

    def backendOptions(self) -> Dict[str, Any]:
        """What toDict() shows of it."""
        return {"execution_mode": self._mode}

    def _stage_count(self) -> int:
        return max(1, len(self._stages))

    def _pipeline_stages(self, blocks: Iterable[Tuple[Optional[str], Optional[int]]]) -> int:
        """How often work goes on from one IPU to another while these blocks run, and one more.

        1 for strategies that are no pipeline.
        """
        return 1

    def _ipu_of(self, block: Optional[str], ipu: Optional[int]) -> Optional[int]:
        """Where a block runs; None where nobody said so."""
        stage = self._block_map.get(block) if block is not None else None
        if stage is None:
            return ipu
        if stage._ipu is not None:
            return stage._ipu
        return self._ipu_of_stage(stage) if ipu is None else ipu

    def _ipu_of_stage(self, stage: Stage) -> int:
        return stage._stage_id

    def _ipus_of_a_replica(self, blocks: Iterable[Tuple[Optional[str], Optional[int]]]) -> int:
        """How many IPUs a replica needs whose forward runs these blocks."""
        return 1 + max([0, *(self._ipu_of(*block) or 0 for block in blocks)])

    def __deepcopy__(self, memo: Dict[int, Any]) -> "_ExecutionStrategy":
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._stages))})"


class PipelinedExecution(_ExecutionStrategy):
    """Stages work on several micro-batches at once, each on its own.

    Takes nothing or an AutoStage (blocks make stages of themselves), or the stages: ids of blocks,
    lists of ids, or Stages.
    """

    def __init__(self, *args: Union[AutoStage, str, Sequence[str], Stage]) -> None:
        super().__init__()
        self._auto_stage = AutoStage.SameAsIpu
        if len(args) == 1 and isinstance(args[0], AutoStage):
            self._auto_stage = args[0]
            return
        for number, arg in enumerate(args):
            if isinstance(arg, (list, tuple)):
                arg = Stage(*arg)
            elif isinstance(arg, str):
                arg = Stage(arg)
            assert isinstance(
                arg, Stage
            ), f"a stage is a Stage, the id of a block or a list of ids, not {type(arg).__name__}"
            arg._stage_id = number
            self._add(arg)

    def _pipeline_stages(self, blocks: Iterable[Tuple[Optional[str], Optional[int]]]) -> int:
        if self._mode != PipelinedExecution._mode:
            return 1
        ipus = [ipu for ipu in (self._ipu_of(*block) for block in blocks) if ipu is not None]
        return 1 + sum(before != after for before, after in zip(ipus, ipus[1:]))


class ShardedExecution(PipelinedExecution):
    """Stages run one after the other, on one micro-batch at a time."""

    _mode = 1


class _PhasedExecution(_ExecutionStrategy):
    """Phases follow one another; the stages of a phase run side by side."""

    _mode = 2
    _serial = True

    def __init__(self, *phases: Union[Phase, Sequence[Stage], Sequence[str]]) -> None:
        super().__init__()
        assert phases, f"{type(self).__name__} needs at least one phase"
        # PopTorch's own examples give one list of all phases.
        if len(phases) == 1 and isinstance(phases[0], (list, tuple)):
            if phases[0] and all(isinstance(item, (Phase, list, tuple)) for item in phases[0]):
                phases = tuple(phases[0])  # type: ignore[arg-type]
        self._tensors_liveness = Liveness.AlwaysLive
        self._separate_backward_phase = False
        self._phases: List[Phase] = []
        for number, given in enumerate(phases):
            if isinstance(given, Phase):
                phase = given
            elif isinstance(given, (list, tuple)):
                phase = Phase(*given)
            else:
                phase = Phase(given)  # type: ignore[arg-type]
            self._phases.append(phase)
            for place, stage in enumerate(phase.stages):
                stage._stage_id = place
                stage._phase_id = number
                self._add(stage)

    def phase(self, phase: int) -> Phase:
        """The phase of this number."""
        number = whole_number("the number of a phase", phase, 0, AssertionError)
        assert number < len(
            self._phases
        ), f"there is no phase {number}: there are {len(self._phases)}, counted from 0"
        return self._phases[number]

    def useSeparateBackwardPhase(self, use: bool = True) -> "_PhasedExecution":
        """Give the backward pass phases of its own: forward 0 to 2, then 4 to 6."""
        assert isinstance(use, bool), f"a bool is needed, not {type(use).__name__}"
        self._separate_backward_phase = use
        return self

    def backendOptions(self) -> Dict[str, Any]:
        """What toDict() shows of it."""
        return {
            "execution_mode": self._mode,
            "separate_backward_phase": self._separate_backward_phase,
            "tensors_liveness": self._tensors_liveness.value,
            "serial_phases_execution": self._serial,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._phases))})"


class SerialPhasedExecution(_PhasedExecution):
    """All phases run on the same IPUs, one after the other."""

    def setTensorsLiveness(self, liveness: Liveness) -> "SerialPhasedExecution":
        """When tensors leave the chip."""
        assert isinstance(
            liveness, Liveness
        ), f"a poptorch.Liveness is needed, not {type(liveness).__name__}"
        self._tensors_liveness = liveness
        return self


class ParallelPhasedExecution(_PhasedExecution):
    """Phases alternate between two groups of IPUs: even phases on even ones, odd on odd ones."""

    _serial = False

    def _ipu_of_stage(self, stage: Stage) -> int:
        return 2 * stage._stage_id + stage._phase_id % 2

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> "ParallelPhasedExecution":
        """Whether tensors leave the chip between forward and backward."""
        assert isinstance(off_chip, bool), f"a bool is needed, not {type(off_chip).__name__}"
        self._tensors_liveness = Liveness.OffChipAfterFwd if off_chip else Liveness.AlwaysLive
        return self
