"""A parameter seen through an executor, where it can be given one value per group of replicas."""

from typing import Any

import torch

from .enums import CommGroupType, VariableRetrievalMode


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
        self._executor._group_replicas(
            self._name,
            CommGroupType(comm_group_type),
            shards,
            VariableRetrievalMode(variable_retrieval_mode),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parameter, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._parameter, name, value)

    def __repr__(self) -> str:
        return repr(self._parameter)
