"""Run PyTorch models as one static program, through PopTorch's interface.

Wrap a model once; from then on each call runs whole training steps (forward, loss, backward and
optimiser update) without Python in between:

    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, options, optimizer)
    output, loss = model(data, labels)
"""

from ._load import VERSION as __version__  # noqa: F401  (first: it says what is missing)

from . import _impl, _logging, _process, _results  # noqa: F401
from . import enums, ops, optim, options, poptorch_core, profiling, testing
from ._annotations import Attribute, BeginBlock, Block, BlockFunction, NameScope, nop
from ._annotations import recomputationCheckpoint, removeBlocks, serializedMatMul
from ._annotations import set_available_memory
from ._async_accessor import AsynchronousDataAccessor
from ._errors import createPoptorchError
from ._executor import PoplarExecutor, inferenceModel, load, trainingModel
from ._hooks import registerPostCompileHook, registerPreCompileHook
from ._module_repr import module_repr, print
from ._multi_conv import MultiConv
from ._structure import ICustomArgParser, registerCustomArgParser
from ._tensor_ids import accessAttributes, getIpuTensorId
from ._logging import logger, setLogLevel
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

# Tessera's own version, which is also the end of __version__.
__tessera_version__ = __version__.partition("+tessera.")[2]

profiling.instrument_package(PoplarExecutor, DataLoader)

__all__ = [
    "AsynchronousDataAccessor",
    "Attribute",
    "AutoStage",
    "BeginBlock",
    "Block",
    "BlockFunction",
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
    "MultiConv",
    "MultiConvPlanType",
    "NameScope",
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
    "createPoptorchError",
    "enums",
    "getIpuTensorId",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "load",
    "logger",
    "module_repr",
    "nop",
    "ops",
    "optim",
    "options",
    "poptorch_core",
    "print",
    "profiling",
    "recomputationCheckpoint",
    "registerCustomArgParser",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "removeBlocks",
    "serializedMatMul",
    "setLogLevel",
    "set_available_memory",
    "testing",
    "trainingModel",
]
