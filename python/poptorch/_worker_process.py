"""Starts and stops the process of an asynchronous loader.

SharingStrategy.Fork copies this process. The others start a clean one and send it the pickled
dataset. That cannot work for everything: objects that cannot be pickled, classes of a notebook,
classes of a script that would run once more if it were imported. Then a forked process is used, and
a warning says why.
"""

import contextlib
import multiprocessing
import os
import re
import socket
import sys
import threading
import weakref
from multiprocessing import forkserver, spawn, util

from . import _async_worker, _structure, _worker_link
from ._logging import logger
from .enums import SharingStrategy

_MODULE = _async_worker.__name__
_GUARD = re.compile(r"""__name__\s*==\s*["']__main__["']""")

# Our ends of the links to workers. A forked child must not keep them open: a worker takes their
# closing as the sign to stop. It also tells a child that the workers are not its own.
_links: "weakref.WeakSet" = weakref.WeakSet()


def _close_links():
    for link in _links:
        link.close()


os.register_at_fork(after_in_child=_close_links)


class _CannotSend(Exception):
    """A clean process cannot have the dataset; the text says why."""


def start(strategy: SharingStrategy, dataset, settings: dict):
    """A process that runs _async_worker.main, and the link to it."""
    if strategy is not SharingStrategy.Fork:
        try:
            return _start_clean(strategy, dataset, settings)
        except _CannotSend as reason:
            logger.warning(
                "SharingStrategy.%s cannot be used, because %s; the data is loaded by a forked "
                "copy of this process instead, as with SharingStrategy.Fork",
                strategy.name,
                reason,
            )
    return _launch("fork", dataset, settings)


def stop(process, link: socket.socket, patience_in_s: float = 10) -> None:
    """End the process: it stops at the closed link, or else is killed."""
    link.close()
    process.join(patience_in_s)
    if process.is_alive():
        process.kill()
        process.join()
    process.close()


def _start_clean(strategy, dataset, settings):
    try:
        package = _worker_link.Package((dataset, _structure.parsers()))
    except Exception as error:  # whatever the parts of a dataset raise when they are pickled
        raise _CannotSend(
            f"the dataset cannot be pickled ({type(error).__name__}: {error})"
        ) from None
    with package:
        if package.needs_main and not main_can_be_imported():
            raise _CannotSend(
                "the dataset uses something defined in the main program, which a new process can "
                'only import from a file with an `if __name__ == "__main__":` guard'
            )
        method = "forkserver" if strategy is SharingStrategy.ForkServer else "spawn"
        with contextlib.nullcontext() if package.needs_main else _main_left_out():
            process, link = _launch(method, None, settings)
        try:
            _worker_link.send(link, package.places, package.descriptor)
            answer, _ = _worker_link.receive(link)
            if answer is None:
                return process, link
        except (EOFError, OSError):
            answer = "the new process ended while it imported the main program"
        except BaseException:
            stop(process, link, 1)
            raise
        stop(process, link)
        raise _CannotSend(answer)


def _launch(method, dataset, settings):
    context = multiprocessing.get_context(method)
    if method == "forkserver" and forkserver._forkserver._preload_modules == ["__main__"]:
        # Nobody asked for others. With ours loaded once, each further worker starts at once.
        context.set_forkserver_preload([_MODULE])
    # Where Python keeps the socket of a fork server.
    settings = {**settings, "folder": util.get_temp_dir() if method == "forkserver" else None}
    ours, theirs = socket.socketpair()
    _links.add(ours)
    with theirs:
        process = context.Process(
            target=_async_worker.main,
            args=(theirs, dataset, settings),
            name="AsynchronousDataAccessor",
            daemon=False,  # it has workers of its own
        )
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
    logger.debug("AsynchronousDataAccessor worker process: %d", process.pid)
    return process, ours


def main_can_be_imported() -> bool:
    """Whether a new process can have what is defined in the main program."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    try:
        with open(path or "", encoding="utf-8", errors="replace") as file:
            return _GUARD.search(file.read()) is not None
    except OSError:
        return False


_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def _main_left_out():
    """Processes that this thread starts do not import the main program.

    So a script without a guard works too, unless its dataset needs something of the script.
    """
    original = spawn.get_preparation_data
    caller = threading.get_ident()

    def without_main(name):
        data = original(name)
        if threading.get_ident() == caller:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    with _one_at_a_time:
        original = spawn.get_preparation_data
        spawn.get_preparation_data = without_main
        try:
            yield
        finally:
            spawn.get_preparation_data = original
