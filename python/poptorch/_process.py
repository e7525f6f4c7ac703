"""What importing the package does to the process, and what happens at its end."""

import atexit
import faulthandler
import os
import signal
import sys
import threading
import traceback
import weakref

from . import poptorch_core
from ._logging import logger

# Executors whose devices are given back at the end, before the libraries below them are gone.
open_executors: "weakref.WeakSet" = weakref.WeakSet()


def _descriptor_of_stderr():
    for stream in (sys.stderr, sys.__stderr__):
        try:
            if stream is not None:
                # Of our own: test runners and notebooks close and replace theirs.
                return os.dup(stream.fileno())
        except (AttributeError, OSError, ValueError):
            continue  # not a file, or closed
    return None


def _show_stacks_of_faults():
    """Crashes and SIGTERM print where all threads were."""
    descriptor = _descriptor_of_stderr()
    if descriptor is None:
        return
    if not faulthandler.is_enabled():
        faulthandler.enable(descriptor)
    if threading.current_thread() is threading.main_thread():
        faulthandler.register(signal.SIGTERM, descriptor, all_threads=True, chain=True)


_previous_hook = sys.excepthook


def _end_with_exception(kind, error, trace):
    """An exception that nobody caught: other instances hear of it, and users."""
    try:
        poptorch_core.instances_fail("".join(traceback.format_exception_only(kind, error)).strip())
    finally:
        _log_exception(kind, error, trace)


def _log_exception(kind, error, trace):
    """It goes where our other messages go."""
    if issubclass(kind, KeyboardInterrupt) or not logger.isEnabledFor(50):
        _previous_hook(kind, error, trace)
        return
    text = "".join(traceback.format_exception(kind, error, trace)).rstrip("\n")
    logger.critical("an exception ends the program\n%s", text)


@atexit.register
def _free_devices():
    for executor in list(open_executors):
        try:
            executor._core.destroy()
        except Exception as error:  # there is nobody left to handle it
            logger.error("a device could not be freed at the end of the program: %s", error)


os.environ.setdefault("RDMAV_FORK_SAFE", "1")
_show_stacks_of_faults()
sys.excepthook = _end_with_exception
