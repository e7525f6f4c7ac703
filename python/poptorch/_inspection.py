"""What an executor tells about its program and its last call."""

import datetime
from typing import Any, Dict, List, Optional, Tuple

import torch

from ._checks import spoken_class, whole_number

Latency = Tuple[float, float, float]


class Inspection:
    """The part of an executor that looks inside; all of it is the core's."""

    _core: Any

    def copyNamedBuffersToDevice(self) -> None:
        """Send the buffers that Options.updatableNamedBuffers() names, after changing them."""
        self._core.copyNamedBuffersToDevice()

    @property
    def rng_state(self) -> Optional[List[int]]:
        """Where random numbers are: the seed and, once the model ran, how far it is.

        None before the first run of a model without a seed. Setting it goes on from there; a seed
        alone starts anew.
        """
        return self._core.rng_state

    @rng_state.setter
    def rng_state(self, state: Optional[List[int]]) -> None:
        if state is not None:
            if not isinstance(state, (list, tuple)):
                raise TypeError(f"rng_state must be a list of ints, not {spoken_class(state)}")
            state = [whole_number("a word of rng_state", word, least=0) for word in state]
        self._core.rng_state = state

    def getTensorNames(self) -> List[str]:
        """The tensors of the program that Options.anchorTensor() can name."""
        return self._core.getTensorNames()

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """The values in the last call of a tensor that Options.anchorTensor() named."""
        if not isinstance(short_name, str):
            raise TypeError(f"getAnchoredTensor takes a str, not {spoken_class(short_name)}")
        name = short_name.encode("utf-8", "backslashreplace").decode()
        return self._core.getAnchoredTensor(name)

    def getPerfCounters(self) -> Dict[str, List[List[float]]]:
        """When the last call read its inputs and wrote its outputs.

        `input` and `input_complete` are when each value of each input was asked for and read,
        `output` and `output_complete` when each value of each output was computed and written: a
        list for each tensor, of seconds of the wall clock.
        """
        return self._core.getPerfCounters()

    def getLatency(self) -> Latency:
        """Seconds from the first input asked for to the last output written: (min, max, mean)."""
        return self._core.getLatency()

    def getHostIpuLatency(self) -> Latency:
        """Seconds from the first input asked for to the last one read: (min, max, mean)."""
        return self._core.getHostIpuLatency()

    def getComputeLatency(self) -> Latency:
        """Seconds from the last input read to the last output computed: (min, max, mean)."""
        return self._core.getComputeLatency()

    def getIpuHostLatency(self) -> Latency:
        """Seconds from the first output computed to the last one written: (min, max, mean)."""
        return self._core.getIpuHostLatency()

    def cycleCount(self) -> int:
        """Device cycles of the last call; needs Options.logCycleCount(True).

        An estimate for one IPU, from the work that the program's operators do: nothing is measured.
        """
        return self._core.cycleCount()

    def compilationTime(self) -> datetime.timedelta:
        """How long compiling took; only known where its progress bar is shown."""
        return datetime.timedelta(seconds=self._core.compilationTime())

    def _debugGetPopartIR(self) -> str:
        """The program's operators, as JSON."""
        return self._core.graph_json()
