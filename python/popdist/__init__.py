"""Which instance of a program that runs as several processes this one is, in popdist's words.

    if popdist.isPopdistEnvSet():
        popdist.init()
        options = popdist.poptorch.Options()
    else:
        options = poptorch.Options()

A launcher says it in variables that begin with POPDIST_; without them there is one instance.
Several instances are not supported yet: init() refuses them.
"""

from typing import Any, Callable, Collection, Optional, TypeVar

from poptorch import poptorch_core as _core

__all__ = [
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
    """Join the other instances. RuntimeError where there are any: nobody has connected them."""
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
    """Call func(*args, **kwargs) on the instances of these numbers; the others return None."""
    count = getNumInstances()
    for instance in instances:
        if isinstance(instance, bool) or not isinstance(instance, int):
            raise TypeError(f"execute_on_instances takes numbers of instances, not {instance!r}")
        if not 0 <= instance < count:
            raise ValueError(
                f"execute_on_instances: there is no instance {instance}; there are {count}, "
                "counted from 0"
            )
    return func(*args, **kwargs) if getInstanceIndex() in instances else None
