"""poptorch.Options of one of several instances: replicas and process are the launcher's to say."""

from typing import Any, Dict, NoReturn, Optional

import poptorch as _poptorch
from poptorch import poptorch_core as _core

import popdist as _popdist

__all__ = ["Options"]


def _refuse(setter: str) -> NoReturn:
    raise RuntimeError(
        f"Cannot call `{setter}` with popdist.poptorch.Options: the launcher decides it; use "
        "poptorch.Options to decide it yourself"
    )


class _DistributedOptions(_poptorch.options._DistributedOptions):
    """Which instance of how many this one is."""

    def disable(self) -> NoReturn:
        """Refused: a RuntimeError."""
        _refuse("Distributed.disable")

    def configureProcessId(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a RuntimeError."""
        _refuse("Distributed.configureProcessId")

    def setEnvVarNames(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a RuntimeError."""
        _refuse("Distributed.setEnvVarNames")


class Options(_poptorch.Options):
    """poptorch.Options with this instance's replicas, and its number as that of the process.

    These may not be changed. Without a launcher they are those of one process with one replica.

    Args:
        ipus_per_replica: how many IPUs the model uses; by default what the launcher was told.
    """

    def __init__(self, ipus_per_replica: Optional[int] = None) -> None:
        super().__init__()
        core = _core.popdist_options(0 if ipus_per_replica is None else ipus_per_replica)
        self._attach(core)
        self.__dict__["_distributed"] = _DistributedOptions(core.Distributed)
        self.__dict__["_ipus_per_replica"] = ipus_per_replica or _popdist.getNumIpusPerReplica()

    def replicationFactor(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a RuntimeError."""
        _refuse("replicationFactor")

    def useIpuId(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a RuntimeError."""
        _refuse("useIpuId")

    def from_json(self, string: str) -> "Options":
        """As poptorch.Options.from_json; RuntimeError where it names what the launcher decides."""
        tried = self._core.clone()
        tried.from_json(string)
        for name, setter in (("replication_factor", "replicationFactor"), ("ipu_id", "useIpuId")):
            if _value(tried, name) != _value(self._core, name):
                _refuse(setter)
        if tried.Distributed.values() != self._core.Distributed.values():
            _refuse("Distributed.configureProcessId")
        super().from_json(string)
        return self

    def toDict(self) -> Dict[str, Any]:
        """All options in one dictionary, the device of this instance among them."""
        everything = super().toDict()
        everything["ipu_id"] = _popdist.getDeviceId(self.__dict__["_ipus_per_replica"])
        return everything


def _value(core: Any, name: str) -> Any:
    return core.get(name) if core.exists(name) else None
