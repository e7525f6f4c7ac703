"""PopART's enumerations, for programs that import popart to name the values of its settings.

    opts._Popart.set("autoRecomputation", int(popart.RecomputationType.Standard))

Nothing else of PopART is here; a program runs through poptorch.
"""

import enum

# The release whose names and numbers these are.
__version__ = "3.4.0"


class AccumulateOuterFragmentSchedule(enum.IntEnum):
    """How the updates after an accumulation are ordered."""

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class AnchorReturnTypeId(enum.IntEnum):
    """Which micro-batches' values an anchor returns."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class AutodiffStitchStrategy(enum.IntEnum):
    """How the backward pass of a subgraph gets what it needs."""

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class BatchSerializationBatchSchedule(enum.IntEnum):
    """How the parts of a batch are ordered."""

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class BatchSerializationMethod(enum.IntEnum):
    """Whether the parts of a batch are written out or looped over."""

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationTransformContext(enum.IntEnum):
    """Which part of the program is cut along the batch."""

    Fwd = 0
    Bwd = 1


class CollectiveOperator(enum.IntEnum):
    """How values of replicas are combined."""

    Add = 0
    Mean = 1
    Mul = 2
    Min = 3
    Max = 4
    LogicalAnd = 5
    LogicalOr = 6
    SquareAdd = 7
    Local = 8


class CommGroupType(enum.IntEnum):
    """Which replicas form a group."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    Ungrouped = 3


class DeviceConnectionType(enum.IntEnum):
    """When a device is taken."""

    Always = 0
    OnDemand = 1
    Never = 2


class DotCheck(enum.IntEnum):
    """After which pass a picture of the program is drawn."""

    Fwd0 = 0
    Fwd1 = 1
    Bwd0 = 2
    PreAlias = 3
    Final = 4
    All = 5


class ExecutionPhaseIOSchedule(enum.IntEnum):
    """When the data of a phase are loaded."""

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(enum.IntEnum):
    """How the operators of phases are ordered."""

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class GradientTensorTrackingMethod(enum.IntEnum):
    """Which gradients automatic loss scaling looks at."""

    AllNonViewChangingGradientTensors = 0
    ConvAndMatmulGradients = 1
    GradientsOfUserSpecifiedTensors = 2


class Instrumentation(enum.IntEnum):
    """What is measured on the device."""

    Outer = 0
    Inner = 1


class MeanReductionStrategy(enum.IntEnum):
    """When a mean is divided."""

    Running = 0
    Post = 1


class MergeVarUpdateType(enum.IntEnum):
    """Which updates of variables are merged."""

    Off = 0
    All = 1
    AutoLoose = 2
    AutoTight = 3


class PatternsLevel(enum.IntEnum):
    """Which patterns are on to begin with."""

    NoPatterns = 0
    Minimal = 1
    Default = 2
    All = 3


class RecomputationType(enum.IntEnum):
    """Which activations are computed again in the backward pass."""

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    Pipeline = 3
    RecomputeAll = 4


class RecomputeType(enum.IntEnum):
    """Whether an operator is computed again."""

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class ReductionType(enum.IntEnum):
    """How several values become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class ReplicatedTensorSharding(enum.IntEnum):
    """Whether replicas share the parts of a tensor."""

    Off = 0
    On = 1


class ScatterReduction(enum.IntEnum):
    """How values of one index are combined."""

    Sum = 0
    Max = 1
    Min = 2


class SubgraphCopyingStrategy(enum.IntEnum):
    """When the inputs of a subgraph are copied."""

    OnEnterAndExit = 0
    JustInTime = 1


class SyncPattern(enum.IntEnum):
    """Which IPUs wait for each other."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class SyntheticDataMode(enum.IntEnum):
    """What a program that is only measured is fed with."""

    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class TensorStorage(enum.IntEnum):
    """Where a tensor is kept."""

    OffChip = 0
    OnChip = 1


class TileSet(enum.IntEnum):
    """Which tiles a tensor goes through."""

    Compute = 0
    IO = 1


class VariableRetrievalMode(enum.IntEnum):
    """Whose value is read back of a variable that differs between replicas."""

    OnePerGroup = 0
    AllReduceReplicas = 1
    AllReplicas = 2


class VirtualGraphMode(enum.IntEnum):
    """How operators are spread over IPUs."""

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3
