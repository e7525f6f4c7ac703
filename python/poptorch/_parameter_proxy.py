"""A parameter seen through an executor, where it can be given one value per group of replicas."""

import contextlib
from typing import Any, Dict, Iterator, NamedTuple

import torch

from . import poptorch_core
from .enums import CommGroupType, VariableRetrievalMode


class Grouping(NamedTuple):
    """Which replicas share a value, and which values are read back."""

    comm_group_type: CommGroupType
    shards: int
    variable_retrieval_mode: VariableRetrievalMode

    def groups(self, replicas: int) -> int:
        """How many values there are."""
        if self.comm_group_type == CommGroupType.All:
            return 1
        if self.comm_group_type == CommGroupType.NoGrouping:
            return replicas
        if self.shards < 1 or replicas % self.shards:
            raise poptorch_core.Error(
                f"replicaGrouping: {replicas} replicas cannot be divided into groups of "
                f"{self.shards}; shards is the number of replicas in a group"
            )
        return replicas // self.shards


class ParameterProxy:
    """Everything of a parameter, and replicaGrouping(). It is not a tensor itself."""

    def __init__(self, executor: Any, name: str, parameter: torch.nn.Parameter):
        own = object.__getattribute__(self, "__dict__")
        own["_executor"] = executor
        own["_name"] = name
        own["_parameter"] = parameter

    def replicaGrouping(
        self,
        comm_group_type: CommGroupType,
        shards: int,
        variable_retrieval_mode: VariableRetrievalMode,
    ) -> None:
        """Give each group of `shards` replicas a value of its own; call it before compiling.

        Dimension 0 of the parameter on the host counts the groups; forward does not see it.
        """
        if self._executor.isCompiled():
            raise poptorch_core.Error(
                f"replicaGrouping of '{self._name}' must be called before the model is compiled; "
                "call destroy() first"
            )
        if self._parameter.dim() == 0:
            raise poptorch_core.Error(
                f"replicaGrouping: '{self._name}' is a scalar, and has no dimension for the groups"
            )
        self._executor._groupings[self._name] = Grouping(
            CommGroupType(comm_group_type), shards, VariableRetrievalMode(variable_retrieval_mode)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parameter, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._parameter, name, value)

    def __repr__(self) -> str:
        return repr(self._parameter)


def check_groupings(groupings: Dict[str, Grouping], model: torch.nn.Module, replicas: int) -> None:
    """Error where a parameter does not have a value for each of its groups."""
    for name, grouping in groupings.items():
        rows, groups = model._parameters[name].shape[0], grouping.groups(replicas)
        if rows != groups:
            raise poptorch_core.Error(
                f"replicaGrouping: '{name}' must have {groups} in dimension 0, one for each group "
                f"of {replicas} replicas, but its shape is {list(model._parameters[name].shape)}"
            )


@contextlib.contextmanager
def values_of_a_replica(groupings: Dict[str, Grouping], traced: torch.nn.Module) -> Iterator[None]:
    """While it lasts, forward sees grouped parameters without the dimension of the groups."""
    own = vars(traced)  # found before what is registered
    for name in groupings:
        own[name] = traced._parameters[name][0]
    try:
        yield
    finally:
        for name in groupings:
            del own[name]
