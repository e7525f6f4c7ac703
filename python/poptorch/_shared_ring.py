"""Memory shared by two processes: slots that one of them fills and the other reads, in turn.

Nothing here has a name in the file system, so nothing can be left behind, whoever is killed. All
state lies in the memory itself: a reader that is interrupted (Ctrl-C) can go on where it was.
"""

import dataclasses
import errno
import mmap
import os
import tempfile
from typing import Any, List, Tuple

import torch

# Words of 8 bytes at the beginning of the memory.
_STARTED = 0  # the newest epoch that the reader asked for; -1 before the first
_ENDED = 1  # the newest epoch of which all elements were handed over; -1 before the first
_FAILURE_KIND = 2
_FAILURE_BYTES = 3
_FIRST_SLOT = 4  # from here three words for each slot:
_STATE, _EPOCH, _ROWS = range(3)
_SLOT_WORDS = 3

_FAILURE_ROOM = 1 << 16
_ALIGNMENT = 64


@dataclasses.dataclass
class Layout:
    """What the slots hold: every element has this structure, these types and shapes."""

    slots: int
    structure: Any
    types: List[Tuple[torch.dtype, torch.Size]]

    def header_bytes(self) -> int:
        return _aligned(8 * (_FIRST_SLOT + _SLOT_WORDS * self.slots) + _FAILURE_ROOM)

    def offsets(self) -> List[int]:
        """Where in a slot each tensor begins; one more for where the slot ends."""
        found = [0]
        for dtype, shape in self.types:
            found.append(_aligned(found[-1] + shape.numel() * _item_bytes(dtype)))
        return found

    def total_bytes(self) -> int:
        return self.header_bytes() + self.slots * self.offsets()[-1]


def allocate(layout: Layout, in_file: bool) -> int:
    """File descriptor of new memory for a ring: of the machine's, or of a temporary file."""
    if in_file:
        with tempfile.TemporaryFile(prefix="poptorch") as file:
            descriptor = os.dup(file.fileno())
    else:
        descriptor = os.memfd_create("poptorch-ring")
    try:
        if not in_file and layout.total_bytes() > available_memory():
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        # Now, with an error to read; not later, with a signal that kills.
        os.posix_fallocate(descriptor, 0, layout.total_bytes())
    except OSError as error:
        os.close(descriptor)
        raise MemoryError(
            f"there is no room for {layout.slots} buffers of {layout.offsets()[-1]} bytes "
            f"({error.strerror}): use a smaller buffer_size"
            + ("" if in_file else ", or SharingStrategy.FileSystem")
        ) from None
    return descriptor


class Ring:
    """One process's view of the memory behind a file descriptor, which it takes over."""

    def __init__(self, descriptor: int, layout: Layout):
        self.layout = layout
        self._memory = mmap.mmap(descriptor, layout.total_bytes())
        os.close(descriptor)
        self._words = memoryview(self._memory)[: layout.header_bytes()].cast("q")
        offsets = layout.offsets()
        self._tensors = [
            [
                self._tensor(layout.header_bytes() + slot * offsets[-1] + offset, *kind)
                for offset, kind in zip(offsets, layout.types)
            ]
            for slot in range(layout.slots)
        ]

    def _tensor(self, offset, dtype, shape):
        if shape.numel() == 0:
            return torch.empty(shape, dtype=dtype)
        # Holds on to the memory: a tensor that a user keeps outlives the ring.
        flat = torch.frombuffer(self._memory, dtype=dtype, count=shape.numel(), offset=offset)
        return flat.view(shape)

    def reset(self) -> None:
        """Make new memory a ring of free slots."""
        self._words[_STARTED] = self._words[_ENDED] = -1

    @property
    def started(self) -> int:
        return self._words[_STARTED]

    @started.setter
    def started(self, epoch: int) -> None:
        self._words[_STARTED] = epoch

    @property
    def ended(self) -> int:
        return self._words[_ENDED]

    @ended.setter
    def ended(self, epoch: int) -> None:
        self._words[_ENDED] = epoch

    def _word(self, slot, which):
        return _FIRST_SLOT + _SLOT_WORDS * slot + which

    def is_full(self, slot: int) -> bool:
        return self._words[self._word(slot, _STATE)] == 1

    def epoch(self, slot: int) -> int:
        return self._words[self._word(slot, _EPOCH)]

    def publish(self, slot: int, epoch: int, rows: int) -> None:
        """Hand a filled slot to the reader. `rows` are the used indices of dimension 0."""
        self._words[self._word(slot, _EPOCH)] = epoch
        self._words[self._word(slot, _ROWS)] = rows
        self._words[self._word(slot, _STATE)] = 1  # last: from here on the reader looks

    def release(self, slot: int) -> None:
        """Hand a slot back to be filled anew."""
        self._words[self._word(slot, _STATE)] = 0

    @property
    def indices_mem(self) -> List[int]:
        """1 for each slot that is filled; programs written for PopTorch look at this name."""
        return [int(self.is_full(slot)) for slot in range(self.layout.slots)]

    def write(self, slot: int, tensors, start: int, at: int, rows: int) -> None:
        """Copy rows [start, start + rows) of the tensors to row `at`; rows = -1 copies all."""
        for target, tensor in zip(self._tensors[slot], tensors):
            if rows >= 0:
                target, tensor = target.narrow(0, at, rows), tensor.narrow(0, start, rows)
            target.copy_(tensor.detach())

    def read(self, slot: int) -> List[torch.Tensor]:
        """The slot's tensors, not copied."""
        rows = self._words[self._word(slot, _ROWS)]
        tensors = [tensor.detach() for tensor in self._tensors[slot]]
        return tensors if rows < 0 else [tensor.narrow(0, 0, rows) for tensor in tensors]

    def fail(self, kind: int, text: str) -> None:
        """Leave a message about why there will be no more elements."""
        message = text.encode()[:_FAILURE_ROOM]
        end = self.layout.header_bytes()
        self._memory[end - _FAILURE_ROOM : end - _FAILURE_ROOM + len(message)] = message
        self._words[_FAILURE_KIND] = kind
        self._words[_FAILURE_BYTES] = len(message)

    def failure(self):
        """(kind, text) of fail(), or None."""
        length = self._words[_FAILURE_BYTES]
        if length == 0:
            return None
        first = self.layout.header_bytes() - _FAILURE_ROOM
        text = self._memory[first : first + length].decode(errors="replace")
        return self._words[_FAILURE_KIND], text


def available_memory() -> int:
    """Bytes that can be had before the kernel ends somebody to get them."""
    found = [1 << 62]
    for path in ("/sys/fs/cgroup/memory.max", "/proc/meminfo"):
        try:
            with open(path, encoding="ascii") as file:
                text = file.read()
            if path == "/proc/meminfo":
                line = next(line for line in text.splitlines() if line.startswith("MemAvailable:"))
                found.append(int(line.split()[1]) << 10)
            else:
                found.append(int(text))  # ValueError where it is "max"
        except (OSError, ValueError, StopIteration):
            pass  # a system that does not tell
    return min(found)


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT


def _item_bytes(dtype: torch.dtype) -> int:
    return torch.empty((), dtype=dtype).element_size()
