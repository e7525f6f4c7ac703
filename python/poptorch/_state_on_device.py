"""The state of an optimiser as a dictionary whose tensors are fetched when somebody looks."""

import collections
from typing import Any, Optional, Tuple

from . import _dict_hooks, poptorch_core


class StateOnDevice(dict):
    """What an optimiser remembered when it was asked; a later run does not change it.

    Copies and pickles are dictionaries of a kind that torch.load() takes for data.
    """

    def __init__(self, snapshot: poptorch_core.OptimizerSnapshot):
        super().__init__()
        self._snapshot: Optional[poptorch_core.OptimizerSnapshot] = snapshot

    def _fetch(self) -> None:
        if self._snapshot is not None:
            values = self._snapshot.ipu_state()
            self._snapshot = None
            self.update(values)

    def __reduce_ex__(self, protocol: Any) -> Tuple[type, tuple]:
        return collections.OrderedDict, (dict(self),)


_dict_hooks.call_before(StateOnDevice, _dict_hooks.ALL, StateOnDevice._fetch)
