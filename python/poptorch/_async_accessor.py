"""Loads data in another process while the program runs."""

import atexit
import multiprocessing
import os
import select
import socket
import weakref
from typing import Any, Iterable, Optional

import torch

from . import _async_worker, _shared_ring, _structure, _worker_link, _worker_process, poptorch_core
from ._checks import short, whole_number
from .enums import SharingStrategy

_open_workers: "weakref.WeakSet[_Worker]" = weakref.WeakSet()


@atexit.register
def _close_workers():
    for worker in list(_open_workers):
        worker.close()


class AsynchronousDataAccessor:
    """Iterates over a dataset in another process, which loads ahead into shared memory.

    The tensors it gives lie in that memory: they are overwritten after the next element is
    requested. Clone what you want to keep. All elements must have the same types and shapes.

    Args:
        dataset: any iterable of tensors, or of flat tuples, lists or dictionaries of tensors; a
            DataLoader for instance.
        buffer_size: how many elements the shared memory holds, the one in use included.
        miss_sleep_time_in_ms: accepted; a wait ends as soon as there is something to do.
        load_indefinitely: go on with the next epoch while this one is still being consumed. An
            iteration ends with its epoch all the same.
        early_preload: fill the buffers at once, not when the first iteration begins.
        sharing_strategy: how the process is started, and where the buffers lie.
        rebatched_size: join elements along dimension 0 to batches of this size. What is left at
            the end of an epoch is dropped, unless `dataset` is a poptorch.DataLoader with
            drop_last=False.
    """

    def __init__(
        self,
        dataset: Iterable,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: Optional[int] = None,
    ):
        from .data_loader import DataLoader  # which imports us

        self._worker = None
        loader = dataset if isinstance(dataset, DataLoader) else None
        if loader is not None and loader._accessor is not None:
            raise poptorch_core.Error(
                "This DataLoader already loads asynchronously; iterate over it, or create it with "
                "mode=poptorch.DataLoaderMode.Sync"
            )
        buffer_size = whole_number("buffer_size", buffer_size, 1, AssertionError)
        _check_wait(miss_sleep_time_in_ms)
        if rebatched_size is not None:
            rebatched_size = whole_number("rebatched_size", rebatched_size, wrong=AssertionError)
            assert rebatched_size > 1, f"rebatched_size is {rebatched_size}, not greater than 1"
        assert (
            rebatched_size is not None or loader is None or not loader._needs_rebatching
        ), "a DataLoader with drop_last=False can only be loaded asynchronously with rebatched_size"
        self._dataset = dataset
        self._keeps_remainder = loader is not None and loader._keeps_remainder
        self._embedded = False
        self.rebatched_size = rebatched_size
        self._epoch = -1
        self._consumed = False  # something of this epoch
        self._ended = False
        self._lent = False  # the next slot is in the user's hands
        self._next_slot = 0
        settings = {
            "buffer_size": buffer_size,
            "load_indefinitely": load_indefinitely,
            "early_preload": early_preload,
            "rebatched_size": rebatched_size,
            "pieces": loader._pieces if loader is not None else None,
            "keep_remainder": self._keeps_remainder,
            "in_file": sharing_strategy == SharingStrategy.FileSystem,
            "parent": os.getpid(),
            "start_method": multiprocessing.get_start_method(allow_none=True),
            # From PyTorch's generator, so that torch.manual_seed fixes what is shuffled.
            "seed": torch.empty((), dtype=torch.int64).random_().item(),
        }
        self._worker = _Worker(SharingStrategy(sharing_strategy), dataset, settings)

    def terminate(self) -> None:
        """Stop loading and end the process. Tensors you still hold stay valid."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def is_foreign(self) -> bool:
        """True in processes forked from the one that created it: they cannot use it."""
        return self._worker is not None and not self._worker.is_ours()

    def __del__(self) -> None:
        if getattr(self, "_worker", None) is not None:
            self.terminate()

    def __len__(self) -> int:
        """Elements in an epoch; TypeError where the dataset cannot tell."""
        if self.rebatched_size is None or self._embedded:
            return len(self._dataset)  # type: ignore[arg-type]  # TypeError is documented
        return poptorch_core.batch_count(
            self._samples(), self.rebatched_size, not self._keeps_remainder
        )

    def _samples(self):
        dataset = self._dataset
        if isinstance(dataset, torch.utils.data.DataLoader) and dataset.batch_size is not None:
            iterable = isinstance(dataset.dataset, torch.utils.data.IterableDataset)
            samples = len(dataset.dataset if iterable else dataset.sampler)
            return samples - samples % dataset.batch_size if dataset.drop_last else samples
        return len(dataset) * self._running()._piece_rows

    def embed_in(self, loader) -> None:
        """Become the loader's own: no circle of references, and its length is ours."""
        self._dataset = weakref.proxy(loader)
        self._embedded = True

    def _running(self) -> "_Worker":
        assert self._worker is not None, "this loader was terminated; create a new one"
        return self._worker

    def __iter__(self) -> "AsynchronousDataAccessor":
        """Begin an epoch, even if the one before was not consumed to its end."""
        worker = self._running()
        if self._epoch < 0 or self._consumed or self._ended:
            self._epoch += 1
        self._consumed = self._ended = False
        worker._data_buffers.started = self._epoch
        worker.wake()
        return self

    def __next__(self) -> Any:
        """The next element; what the one before lies in may be overwritten from now on."""
        worker = self._running()
        ring = worker._data_buffers
        if self._epoch < 0:
            iter(self)
        if self._lent:
            self._release(ring)
        while not self._ended:
            # Asked before we look at the slot, so that an element that came first is seen first.
            complete = ring.ended >= self._epoch
            failure = worker.failure()
            if ring.is_full(self._next_slot):
                epoch = ring.epoch(self._next_slot)
                if epoch == self._epoch:
                    self._lent = self._consumed = True
                    tensors = ring.read(self._next_slot)
                    return _structure.rebuild(ring.layout.structure, iter(tensors))
                if epoch > self._epoch:
                    self._ended = True
                else:  # of an epoch that was given up
                    self._release(ring)
            elif complete:
                self._ended = True
            elif failure is not None:
                try:
                    raise failure
                finally:
                    del failure  # which would keep us, and our process, until garbage is collected
            else:
                worker.wait()
        raise StopIteration

    def _release(self, ring):
        self._lent = False
        ring.release(self._next_slot)
        self._next_slot = (self._next_slot + 1) % ring.layout.slots
        self._worker.wake()


def _check_wait(milliseconds):
    is_number = isinstance(milliseconds, (int, float)) and not isinstance(milliseconds, bool)
    assert is_number and milliseconds >= 0, (
        "miss_sleep_time_in_ms must be a number of milliseconds, 0 or more, not "
        f"{short(milliseconds)}"
    )


class _Worker:
    """The parent's side of the process."""

    def __init__(self, strategy, dataset, settings):
        self._owner = os.getpid()
        self._process, self._link = _worker_process.start(strategy, dataset, settings)
        self._gone = False
        _open_workers.add(self)
        try:
            answer, descriptor = _worker_link.receive(self._link)
        except (EOFError, OSError):
            self._process.join(1)
            code = self._process.exitcode
            self.close()
            raise poptorch_core.Error(
                "AsynchronousDataAccessor worker thread failed to start: its process ended with "
                f"exit code {code} before it gave the first element"
            ) from None
        except BaseException:
            self.close()
            raise
        if answer[0] == "failed":
            self.close()
            _, kind, text = answer
            if kind == _async_worker.ASSERTION:
                raise AssertionError(text)
            raise poptorch_core.Error(
                f"AsynchronousDataAccessor worker thread failed to start: {text}"
            )
        _, layout, self._piece_rows = answer
        self._data_buffers = _shared_ring.Ring(descriptor, layout)
        self._poll = select.poll()
        self._poll.register(self._link, select.POLLIN)

    def wake(self):
        try:
            self._link.send(b"!", socket.MSG_DONTWAIT)
        except OSError:
            pass  # it has enough to read, or is gone: wait() will tell

    def failure(self) -> Optional[Exception]:
        """Why no more elements will come, or None."""
        left = self._data_buffers.failure()
        if left is not None:
            kind, text = left
            error = AssertionError if kind == _async_worker.ASSERTION else poptorch_core.Error
            return error(f"AsynchronousDataAccessor worker failed: {text}")
        if not self._gone:
            return None
        self._process.join(1)
        return poptorch_core.Error(
            "the process that loads the data ended unexpectedly, with exit code "
            f"{self._process.exitcode}; was it killed, or was there not enough memory?"
        )

    def wait(self) -> None:
        """Return when something may have changed."""
        self._poll.poll(500)
        try:
            self._gone = not self._link.recv(4096, socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._gone = not self._process.is_alive()
        except OSError:
            self._gone = True

    def is_ours(self) -> bool:
        """False when it was closed, or is the worker of a process that we were forked from."""
        return self._link.fileno() >= 0 and self._owner == os.getpid()

    def close(self) -> None:
        """End the process."""
        _open_workers.discard(self)
        if not self.is_ours():
            return
        _worker_process.stop(self._process, self._link)
