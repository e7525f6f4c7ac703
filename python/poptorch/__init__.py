"""Run PyTorch models as one static program, through PopTorch's interface.

Wrap a model once; from then on each call runs whole training steps (forward, loss, backward and
optimiser update) without Python in between:

    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, options, optimizer)
    output, loss = model(data, labels)
"""

from ._load import VERSION as __version__  # noqa: F401  (first: it says what is missing)

from . import enums, optim, options, poptorch_core
from ._async_accessor import AsynchronousDataAccessor
from ._executor import PoplarExecutor, inferenceModel, trainingModel
from .data_loader import DataLoader
from .enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from .ops import identity_loss, isRunningOnIpu
from .options import (
    Options,
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    TensorLocationSettings,
)
from .poptorch_core import Error, RecoverableError, UnrecoverableError

__all__ = [
    "AsynchronousDataAccessor",
    "AutoStage",
    "CommGroupType",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "HalfFloatCastingBehavior",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConvPlanType",
    "Options",
    "OutputMode",
    "OverlapMode",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "PoplarExecutor",
    "RecoverableError",
    "ReductionType",
    "SerialPhasedExecution",
    "ShardedExecution",
    "SharingStrategy",
    "Stage",
    "SyncPattern",
    "TensorLocationSettings",
    "UnrecoverableError",
    "VariableRetrievalMode",
    "enums",
    "identity_loss",
    "inferenceModel",
    "isRunningOnIpu",
    "optim",
    "options",
    "poptorch_core",
    "trainingModel",
]
