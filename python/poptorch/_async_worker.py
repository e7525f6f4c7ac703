"""The process of an asynchronous loader: iterates over a dataset and fills the ring.

It stops when its parent closes the link, however that happens: by terminate(), at the
interpreter's end, or because the parent was killed.
"""

import collections.abc
import multiprocessing
import os
import random
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from multiprocessing import forkserver

import torch

from . import _shared_ring, _structure, _worker_link

# Kinds of failure, for the exception that the parent raises.
ERROR, ASSERTION = 1, 2


class Refused(Exception):
    """The dataset gave something that the ring cannot hold; the text says what to do."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class _Stop(SystemExit):
    """The parent wants no more. A dataset that calls sys.exit() says something else."""


class _NewEpoch(Exception):
    """The reader wants a new epoch before this one is loaded."""


def main(link: socket.socket, dataset, settings: dict) -> None:
    """Run until the parent closes the link. Without a dataset one arrives through the link."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it then stops us
    end = _End()
    signal.signal(signal.SIGTERM, end.interrupt)
    sys.unraisablehook = _report_unraisable
    os.register_at_fork(after_in_child=link.close)  # in the dataset's own workers
    watch = threading.Thread(target=_watch, args=(link, settings, end), daemon=True)
    watch.start()
    torch.set_num_threads(1)  # also because OpenMP's threads do not survive a fork
    _forget_fork_server()
    # The dataset's own workers start as they would in the parent, not as we were started.
    multiprocessing.set_start_method(settings["start_method"], force=True)
    _seed(settings["seed"])
    worker = _Worker(link, settings, end)
    try:
        if dataset is None:
            dataset = _receive_dataset(link)
        worker.run(dataset)
    except _Stop:
        pass
    except BaseException as error:  # whatever the user's code raises
        worker.report(error)
    finally:
        end.reached.set()
        # Ends the workers of a torch DataLoader that keeps them between epochs.
        getattr(dataset, "__dict__", {}).pop("_iterator", None)
        _clean_up_after(settings)


class _End:
    """The end of the process: first it is asked for, then reached."""

    def __init__(self):
        self.wanted = threading.Event()
        self.reached = threading.Event()

    def check(self):
        """Where the main thread may stop."""
        if self.wanted.is_set():
            raise _Stop

    def interrupt(self, *_):
        """Stop the main thread where it is; a signal handler."""
        if not self.reached.is_set():
            raise _Stop


def _report_unraisable(unraisable):
    # Being interrupted inside a destructor is nothing to tell the user about.
    if not issubclass(unraisable.exc_type, _Stop):
        sys.__unraisablehook__(unraisable)


def _clean_up_after(settings):
    """Remove the folder of a fork server whose program was killed: nobody else knows of it."""
    if settings["folder"] is None:
        return
    try:
        parent = select.poll()
        parent.register(os.pidfd_open(settings["parent"]), select.POLLIN)
        is_alive = not parent.poll(0)
    except ProcessLookupError:
        is_alive = False
    except OSError:  # a kernel without pidfd_open
        return
    if not is_alive:
        shutil.rmtree(settings["folder"], ignore_errors=True)


def _watch(link, settings, end):
    """Wait until the parent lets go of us, then see to it that the process ends."""
    poll = select.poll()
    poll.register(link, 0)  # only hanging up
    try:
        poll.register(os.pidfd_open(settings["parent"]), select.POLLIN)
        poll.poll()
    except ProcessLookupError:
        pass  # it is gone already
    except OSError:  # a kernel without pidfd_open; the link tells nearly as well
        poll.poll()
    end.wanted.set()
    # The main thread stops by itself between two elements. An element may take long.
    for patience in (1.5, 0.5, 0.5, 0.5, 0.5, 0.5):
        if end.reached.wait(patience):
            break
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
    time.sleep(3)  # for the dataset's own workers to end
    _clean_up_after(settings)
    os._exit(1)


def _forget_fork_server():
    """A forked process cannot use its parent's fork server: the next worker starts one of ours."""
    server = forkserver._forkserver
    if server._forkserver_pid is None:
        return
    os.close(server._forkserver_alive_fd)  # our copy, which would keep the server after the parent
    server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None


def _seed(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % (1 << 32))


def _receive_dataset(link):
    try:
        places, descriptor = _worker_link.receive(link)
    except (EOFError, OSError):
        raise _Stop from None  # the parent is gone before it could send one
    try:
        dataset, parsers = _worker_link.unpack(descriptor, places)
    except Exception as error:
        _worker_link.send(
            link, f"the new process cannot unpickle the dataset ({type(error).__name__}: {error})"
        )
        raise _Stop from None
    _structure.use_parsers(parsers)
    _worker_link.send(link, None)
    return dataset


def _elements(dataset):
    if hasattr(type(dataset), "__iter__") or not hasattr(dataset, "__len__"):
        return iter(dataset)
    return (dataset[index] for index in range(len(dataset)))


class _Worker:
    def __init__(self, link, settings, end):
        self._link = link
        self._end = end
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        self._settings = settings
        self._size = settings["rebatched_size"]
        self._ring = None  # made for the first element
        self._piece_rows = -1  # of the first element of the dataset
        self._published = 0
        self._introduced = False  # the parent has the ring
        self._filled = 0  # rows of the slot that is being filled
        self._joined = 0  # elements in it

    def run(self, dataset):
        epoch = 0
        while True:
            before = self._published
            finished = self._load(dataset, epoch)
            if self._published == 0:
                raise Refused(
                    ERROR,
                    "the dataset gave no element: it is empty, or smaller than one batch while "
                    "incomplete batches are dropped",
                )
            # A dataset that can be iterated only once would keep us going round for nothing.
            empty = self._published == before
            if finished and (empty or not self._settings["load_indefinitely"]):
                self._wait_for(lambda: self._ring.started > epoch)
            epoch = max(epoch + 1, self._ring.started)

    def _load(self, dataset, epoch):
        """Hand over all elements of an epoch; False when the reader wants another epoch."""
        self._filled = self._joined = 0
        try:
            for element in _elements(dataset):
                self._take(element, epoch)
            if self._filled and self._settings["keep_remainder"]:
                self._publish(epoch, self._filled)
        except _NewEpoch:
            return False
        if self._ring is not None:
            self._ring.ended = epoch
            self._wake_parent()
        return True

    def _take(self, element, epoch):
        self._end.check()
        tensors = self._checked(element)
        if self._settings["pieces"] is not None:
            self._join(tensors, epoch)
            return
        if self._size is None:
            self._wait_for_slot(epoch)
            rows = len(tensors[0]) if self._settings["keep_remainder"] else -1
            self._ring.write(self._slot(), tensors, 0, 0, rows)
            self._publish(epoch, rows)
            return
        start, end = 0, len(tensors[0])
        while start < end:
            self._wait_for_slot(epoch)
            rows = min(end - start, self._size - self._filled)
            self._ring.write(self._slot(), tensors, start, self._filled, rows)
            start += rows
            self._filled += rows
            if self._filled == self._size:
                self._publish(epoch, self._size)

    def _join(self, tensors, epoch):
        self._wait_for_slot(epoch)
        rows = len(tensors[0])
        self._ring.write(self._slot(), tensors, 0, self._filled, rows)
        self._filled += rows
        self._joined += 1
        if self._joined == self._settings["pieces"]:
            self._publish(epoch, self._filled)

    def _slot(self):
        return self._published % self._settings["buffer_size"]

    def _wait_for_slot(self, epoch):
        def ready():
            if self._ring.started > epoch:
                raise _NewEpoch
            return not self._ring.is_full(self._slot())

        self._wait_for(ready)

    def _publish(self, epoch, rows):
        self._ring.publish(self._slot(), epoch, rows)
        self._published += 1
        self._filled = self._joined = 0
        self._wake_parent()
        if not self._introduced:
            answer = ("ready", self._ring.layout, self._piece_rows)
            _worker_link.send(self._link, answer, self._descriptor)
            os.close(self._descriptor)
            self._introduced = True
            if not self._settings["early_preload"]:
                self._wait_for(lambda: self._ring.started >= 0)

    def _wait_for(self, condition):
        while not condition():
            self._poll.poll(1000)
            try:
                if not self._link.recv(4096, socket.MSG_DONTWAIT):
                    raise _Stop  # the parent closed it
            except BlockingIOError:
                pass

    def _wake_parent(self):
        if not self._introduced:
            return  # it waits for a message, not for a sign
        try:
            self._link.send(b"!", socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass  # it has enough to read
        except OSError:
            pass  # it is gone

    def _checked(self, element):
        """The element's tensors, if they are like those of the first element."""
        tensors = []
        structure = _structure.flatten(element, tensors)
        if self._ring is None:
            _check_flat(element, tensors)
            self._make_ring(structure, tensors)
        layout = self._ring.layout
        structure, tensors = _in_the_order_of(layout.structure, structure, tensors)
        if not _structure.same(structure, layout.structure):
            raise Refused(
                ERROR,
                f"all elements of the dataset must be built alike: the first was "
                f"{layout.structure}, this one is {structure}",
            )
        if self._is_joining():
            _check_same_rows(tensors)
        if self._settings["pieces"] is not None and len(tensors[0]) > self._piece_rows:
            raise Refused(
                ERROR,
                "DataLoaderMode.AsyncRebatched needs batches of one size: the first of the "
                f"batch_sampler has {self._piece_rows} samples, this one has {len(tensors[0])}; "
                "DataLoaderMode.Async joins them too",
            )
        for tensor, (dtype, shape) in zip(tensors, layout.types):
            if tensor.dtype != dtype or not self._fits(tensor.shape, shape):
                raise Refused(
                    ERROR,
                    "all elements of the dataset must have the same types and shapes: the first "
                    f"had {dtype} {list(shape)}, this one has {tensor.dtype} "
                    f"{list(tensor.shape)}; drop_last=True or rebatched_size helps where only the "
                    "last batch is smaller",
                )
        return tensors

    def _is_joining(self):
        return self._size is not None or self._settings["pieces"] is not None

    def _fits(self, shape, wanted):
        if self._is_joining():
            return shape[1:] == wanted[1:]
        if self._settings["keep_remainder"]:
            return shape[1:] == wanted[1:] and shape[:1] <= wanted[:1]
        return shape == wanted

    def _make_ring(self, structure, tensors):
        shapes = [tensor.shape for tensor in tensors]
        if self._is_joining() or self._settings["keep_remainder"]:
            _check_same_rows(tensors)
            self._piece_rows = len(tensors[0])
        if self._is_joining():
            rows = self._size or self._settings["pieces"] * self._piece_rows
            shapes = [torch.Size((rows, *shape[1:])) for shape in shapes]
        layout = _shared_ring.Layout(
            self._settings["buffer_size"],
            structure,
            [(tensor.dtype, shape) for tensor, shape in zip(tensors, shapes)],
        )
        self._descriptor = _shared_ring.allocate(layout, self._settings["in_file"])
        self._ring = _shared_ring.Ring(os.dup(self._descriptor), layout)
        self._ring.reset()

    def report(self, error):
        """Tell the parent why there will be no more elements."""
        kind, text = ERROR, f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}"
        if isinstance(error, Refused):
            kind, text = error.kind, str(error)
        if self._introduced:
            self._ring.fail(kind, text)
            self._wake_parent()
            return
        if self._end.wanted.is_set():
            return  # nobody wants to know
        print(text, file=sys.stderr, flush=True)
        try:
            _worker_link.send(self._link, ("failed", kind, text))
        except OSError:
            pass  # it is gone


def _check_flat(element, tensors):
    children = [element]
    if isinstance(element, (tuple, list)):
        children = list(element)
    elif isinstance(element, collections.abc.Mapping):
        children = list(element.values())
    elif tensors:  # a type that somebody registered
        children = tensors
    if not tensors or not all(isinstance(child, torch.Tensor) for child in children):
        raise Refused(
            ASSERTION,
            "an asynchronous loader needs elements that are a tensor, or a tuple, list or "
            f"dictionary of tensors, got {_describe(element)}",
        )
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            kind = "quantized" if tensor.is_quantized else tensor.layout
            raise Refused(
                ASSERTION,
                f"an asynchronous loader needs dense tensors on the CPU, got a {kind} tensor on "
                f"{tensor.device}",
            )


def _in_the_order_of(first, structure, tensors):
    """A flat dictionary with its keys in the order of another; anything else as it is."""
    both = isinstance(first, _structure.Mapping) and isinstance(structure, _structure.Mapping)
    if not both or first.keys == structure.keys or set(first.keys) != set(structure.keys):
        return structure, tensors
    by_key = dict(zip(structure.keys, tensors))
    return first, [by_key[key] for key in first.keys]


def _describe(element):
    if isinstance(element, (tuple, list)):
        return f"{type(element).__name__} of {[type(child).__name__ for child in element]}"
    if isinstance(element, collections.abc.Mapping):
        kinds = {key: type(child).__name__ for key, child in element.items()}
        return f"{type(element).__name__} of {kinds}"
    return type(element).__name__


def _check_same_rows(tensors):
    rows = [tuple(tensor.shape[:1]) for tensor in tensors]
    if rows[0] == () or rows.count(rows[0]) != len(rows):
        raise Refused(
            ERROR,
            "to be joined along dimension 0 the tensors of an element must have the same size "
            f"there, got shapes {[list(tensor.shape) for tensor in tensors]}",
        )
