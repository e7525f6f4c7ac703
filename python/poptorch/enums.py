"""Named choices of the interface, with PopTorch's numbers."""

import enum


class OutputMode(enum.IntEnum):
    """Which micro-batches' outputs a call returns."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class ConnectionType(enum.IntEnum):
    """When a model takes its devices: before compiling, when it first runs, or not at all."""

    Always = 0
    OnDemand = 1
    Never = 2


class ReductionType(enum.IntEnum):
    """How several values (of a loss, or gradients of micro-batches) become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(enum.IntEnum):
    """When the mean of gradients is divided: as they come (Running), or at the end (Post)."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class DataLoaderMode(enum.IntEnum):
    """Where batches are made."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class SharingStrategy(enum.IntEnum):
    """How the process of an asynchronous loader is started, and where its batches lie."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class SyncPattern(enum.IntEnum):
    """Which devices wait for each other."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class AutoStage(enum.IntEnum):
    """How blocks get their stage: the number of their IPU, or one after the other."""

    SameAsIpu = 0
    AutoIncrement = 1


class Liveness(enum.IntEnum):
    """When the tensors of phased execution leave the chip."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class MultiConvPlanType(enum.IntEnum):
    """Whether convolutions of a MultiConv run side by side or one after the other."""

    Parallel = 0
    Serial = 1


class CommGroupType(enum.IntEnum):
    """Which replicas form a group."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class VariableRetrievalMode(enum.IntEnum):
    """Whose value is read back of a weight that differs between replicas."""

    OnePerGroup = 0
    AllReplicas = 2


class HalfFloatCastingBehavior(enum.IntEnum):
    """Of an option that is gone: half and float are mixed by PyTorch's rules."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class MatMulSerializationMode(enum.Enum):
    """Along which dimension serializedMatMul cuts a product into pieces."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class OverlapMode(enum.Enum):
    """Which loop the transfer of an input or output overlaps with."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"
