"""Which instance of a program that runs as several processes this one is, in popdist's words.

    if popdist.isPopdistEnvSet():
        popdist.init()
        options = popdist.poptorch.Options()
    else:
        options = poptorch.Options()

A launcher, poprun, says it in variables that begin with POPDIST_; without them there is one
instance. After init() they can do things together: barrier(), allReduce(), broadcast(),
allGather().
"""

from typing import Any, Callable, Collection, Optional, TypeVar

import torch as _torch
from poptorch import poptorch_core as _core

__all__ = [
    "allGather",
    "allReduce",
    "barrier",
    "broadcast",
    "checkNumIpusPerReplica",
    "execute_on_instances",
    "getDeviceId",
    "getInstanceIndex",
    "getLocalInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
]

_Result = TypeVar("_Result")


def isPopdistEnvSet() -> bool:
    """Whether a launcher started this process."""
    return _core.popdist_isPopdistEnvSet()


def init() -> None:
    """Join the other instances, by MPI; wait until all of them are here.

    RuntimeError where others were announced that nobody has started, or where MPI is not installed.
    """
    _core.popdist_init()


def getInstanceIndex() -> int:
    """The number of this instance, from 0.

    RuntimeError where instances have different numbers of replicas.
    """
    return _core.popdist_getInstanceIndex()


def getNumInstances() -> int:
    """How many instances there are.

    RuntimeError where instances have different numbers of replicas.
    """
    return _core.popdist_getNumInstances()


def getLocalInstanceIndex() -> int:
    """The number of this instance among those on this machine, from 0."""
    return _core.popdist_getLocalInstanceIndex()


def getNumTotalReplicas() -> int:
    """How many replicas all instances have together."""
    return _core.popdist_getNumTotalReplicas()


def getNumLocalReplicas() -> int:
    """How many replicas this instance has."""
    return _core.popdist_getNumLocalReplicas()


def getReplicaIndexOffset() -> int:
    """How many replicas the instances before this one have."""
    return _core.popdist_getReplicaIndexOffset()


def getNumIpusPerReplica() -> int:
    """How many IPUs the launcher was told that a replica has."""
    return _core.popdist_getNumIpusPerReplica()


def checkNumIpusPerReplica(ipus_per_replica: int) -> bool:
    """Whether the launcher was told this number too; True where there was no launcher."""
    return _core.popdist_checkNumIpusPerReplica(ipus_per_replica)


def getDeviceId(ipus_per_replica: int = 0) -> int:
    """The device of this instance, for replicas of that many IPUs; 0: as the launcher was told."""
    return _core.popdist_getDeviceId(ipus_per_replica)


def execute_on_instances(
    instances: Collection[int], func: Callable[..., _Result], *args: Any, **kwargs: Any
) -> Optional[_Result]:
    """Call func(*args, **kwargs) on the instances of these numbers; the others return None.

    What func does together with others (allReduce() and the like, Horovod's words too) it does
    among these instances alone.
    """
    count = getNumInstances()
    for instance in instances:
        if isinstance(instance, bool) or not isinstance(instance, int):
            raise TypeError(f"execute_on_instances takes numbers of instances, not {instance!r}")
        if not 0 <= instance < count:
            raise ValueError(
                f"execute_on_instances: there is no instance {instance}; there are {count}, "
                "counted from 0"
            )
    if getInstanceIndex() not in instances:
        return None
    return _core.instances_only(sorted(instances), lambda: func(*args, **kwargs))


def barrier() -> None:
    """Wait until all instances are here."""
    _core.instances_meet("popdist.barrier")


_REDUCTIONS = {
    "sum": _core.Reduction.sum,
    "average": _core.Reduction.sum,
    "min": _core.Reduction.min,
    "max": _core.Reduction.max,
    "product": _core.Reduction.product,
}


def allReduce(tensor: _torch.Tensor, op: str = "sum") -> _torch.Tensor:
    """The sum of the tensors of all instances as a new tensor, or average, min, max, product.

    Each instance gives one of the same type and shape; sums are made in the order of instances.
    """
    if op not in _REDUCTIONS:
        raise ValueError(f"allReduce: op must be one of {', '.join(_REDUCTIONS)}, not {op!r}")
    return _core.instances_reduce(tensor, _REDUCTIONS[op], op == "average", "popdist.allReduce")


def broadcast(tensor: _torch.Tensor, root: int = 0) -> _torch.Tensor:
    """The tensor of instance root, as a new tensor; the others give one like it."""
    return _core.instances_broadcast(tensor, root, "popdist.broadcast")


def allGather(tensor: _torch.Tensor) -> _torch.Tensor:
    """The tensors of all instances, one after the other along dimension 0."""
    return _core.instances_gather(tensor, "popdist.allGather")
