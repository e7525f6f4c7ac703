"""What the process of an asynchronous loader and its parent send each other while it starts."""

import mmap
import os
import pickle
import socket
import struct
import types
from typing import Any, Optional, Tuple

import torch

from . import _shared_ring

_LENGTH = struct.Struct("q")
_ALIGNMENT = 64
_WORTH_A_BUFFER = 4096  # bytes; less is quicker to copy along


def send(link: socket.socket, value: Any, descriptor: Optional[int] = None) -> None:
    """Send a small value, and an open file with it."""
    message = pickle.dumps(value)
    socket.send_fds(link, [_LENGTH.pack(len(message))], [] if descriptor is None else [descriptor])
    link.sendall(message)


def receive(link: socket.socket) -> Tuple[Any, Optional[int]]:
    """The next value and its file, or None; EOFError when the other side is gone."""
    head, descriptors, _, _ = socket.recv_fds(link, _LENGTH.size, 1)
    (length,) = _LENGTH.unpack(head + _exactly(link, _LENGTH.size - len(head)))
    return pickle.loads(_exactly(link, length)), descriptors[0] if descriptors else None


def _exactly(link, count):
    parts = []
    while count:
        part = link.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Package:
    """A pickled object in memory without a name, its tensors and arrays beside the pickle."""

    def __init__(self, value: Any):
        buffers = []

        def keep_apart(buffer):
            if buffer.raw().nbytes < _WORTH_A_BUFFER:
                return True
            buffers.append(buffer)
            return False

        self.descriptor = os.memfd_create("poptorch-dataset")
        try:
            with open(self.descriptor, "wb", closefd=False) as file:
                # The pickle first, though its length is only known when it is written.
                pickler = _Pickler(file, protocol=5, buffer_callback=keep_apart)
                pickler.dump(value)
                _check_room(sum(buffer.raw().nbytes for buffer in buffers))
                places = []
                for buffer in buffers:
                    file.write(bytes(-file.tell() % _ALIGNMENT))
                    places.append((file.tell(), buffer.raw().nbytes))
                    file.write(buffer.raw())
                table = file.tell()
                pickle.dump(places, file)
                self.places = (table, file.tell())
        except BaseException:
            os.close(self.descriptor)
            raise
        # Whether who opens it must be able to import the main program.
        self.needs_main = pickler.needs_main

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)


def _check_room(count):
    # The kernel would say no by ending some program.
    if count > _shared_ring.available_memory():
        raise MemoryError(f"there is no room for a copy of its {count} bytes")


def unpack(descriptor: int, places: Tuple[int, int]) -> Any:
    """The object of a Package. Its tensors lie in the package's memory, which is copied only
    where somebody writes."""
    table, end = places
    memory = mmap.mmap(
        descriptor, end, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
    )
    os.close(descriptor)
    view = memoryview(memory)
    buffers = [view[at : at + length] for at, length in pickle.loads(view[table:])]
    return pickle.loads(view, buffers=buffers)


class _Pickler(pickle.Pickler):
    needs_main = False

    def reducer_override(self, value):
        if isinstance(value, (type, types.FunctionType)):
            self.needs_main = self.needs_main or value.__module__ == "__main__"
        elif isinstance(value, torch.Generator):
            return _rebuild_generator, (value.get_state(),)
        elif type(value) is torch.Tensor and _is_plain(value):
            flat = value.contiguous().view(-1).view(torch.uint8)
            buffer = pickle.PickleBuffer(flat.numpy())
            return _rebuild_tensor, (buffer, value.dtype, value.shape)
        return NotImplemented


def _is_plain(tensor):
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_complex()
        and not tensor.is_quantized
        and tensor.numel() > 0
    )


def _rebuild_tensor(buffer, dtype, shape):
    if isinstance(buffer, (bytes, bytearray)):  # small: it came inside the pickle
        buffer = bytearray(buffer)
    return torch.frombuffer(buffer, dtype=dtype).view(shape)


def _rebuild_generator(state):
    generator = torch.Generator()
    generator.set_state(state)
    return generator
