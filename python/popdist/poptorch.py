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


# Values that are the launcher's, and their setters.
_DECIDED = {
    "replication_factor": "replicationFactor",
    "ipu_id": "useIpuId",
    "distributed_process_id": "Distributed.configureProcessId",
    "num_distributed_processes": "Distributed.configureProcessId",
}


class _Guarded(_poptorch.options.OptionGroup):
    """Options of which some cannot be set by their names either."""

    def set(self, **options: Any) -> None:
        """Set options by their attribute names."""
        for name in _DECIDED.keys() & options.keys():
            _refuse(_DECIDED[name])
        super().set(**options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _DECIDED:
            _refuse(_DECIDED[name])
        super().__setattr__(name, value)


class _DistributedOptions(_Guarded, _poptorch.options._DistributedOptions):
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


class Options(_Guarded, _poptorch.Options):
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
        for name, setter in _DECIDED.items():
            for before, after in ((self._core, tried), (self._core.Distributed, tried.Distributed)):
                if _value(before, name) != _value(after, name):
                    _refuse(setter)
        super().from_json(string)
        return self

    def toDict(self) -> Dict[str, Any]:
        """All options in one dictionary, the device of this instance among them."""
        everything = super().toDict()
        everything["ipu_id"] = _popdist.getDeviceId(self.__dict__["_ipus_per_replica"])
        return everything


def _value(core: Any, name: str) -> Any:
    return core.get(name) if core.exists(name) else None
