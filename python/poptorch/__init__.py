"""Run PyTorch models as one static program, through PopTorch's interface.

Wrap a model once; from then on each call runs whole training steps (forward, loss, backward and
optimiser update) without Python in between:

    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, options, optimizer)
    output, loss = model(data, labels)
"""

from ._load import VERSION as __version__  # noqa: F401  (first: it says what is missing)

from . import _process, _results, enums, optim, options, poptorch_core  # noqa: F401
from ._async_accessor import AsynchronousDataAccessor
from ._executor import PoplarExecutor, inferenceModel, trainingModel
from ._hooks import registerPostCompileHook, registerPreCompileHook
from ._module_repr import module_repr, print
from ._structure import ICustomArgParser, registerCustomArgParser
from ._tensor_ids import accessAttributes, getIpuTensorId
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
from .ops import identity_loss, ipuHardwareIsAvailable, ipuHardwareVersion, isRunningOnIpu
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
    "ICustomArgParser",
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
    "accessAttributes",
    "enums",
    "getIpuTensorId",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "module_repr",
    "optim",
    "options",
    "poptorch_core",
    "print",
    "registerCustomArgParser",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "trainingModel",
]
