"""A timeline of what the Python program does, written only when it is asked for.

With PVTI_OPTIONS='{"enable":"true"}' in the environment when poptorch is imported, each process
writes poptorch_<pid>.trace.json into the folder that "directory" names in the same JSON (the
current one by default). It can be opened in Perfetto or chrome://tracing. Executors and data
loaders trace themselves; programs add what they want to see:

    channel = poptorch.profiling.Channel("MyApp")
    with channel.tracepoint("preparing"):
        ...
    channel.instrument(reader, "read", "decode")
"""

import contextlib
import errno
import functools
import json
import os
import threading
import time
from typing import Any, Callable, ContextManager, Iterator, Optional

from ._logging import logger


def _folder_asked_for() -> Optional[str]:
    """Where timelines go; None where nobody asked for them."""
    text = os.environ.get("PVTI_OPTIONS")
    if not text:
        return None
    try:
        options = json.loads(text)
        enabled = str(options.get("enable", "false")).lower() == "true"
    except (ValueError, AttributeError):
        logger.warning('PVTI_OPTIONS is no JSON object such as {"enable":"true"}: %s', text)
        return None
    return str(options.get("directory") or ".") if enabled else None


class _Timeline:
    """The file of this process: a JSON array, whole after every event."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: Optional[int] = None
        self._pid = -1
        self._end = 0
        self._lock = threading.Lock()

    def add(self, channel: str, label: str, start: int, end: int) -> None:
        event = {
            "name": label,
            "cat": channel,
            "ph": "X",
            "ts": start / 1000,
            "dur": (end - start) / 1000,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
        }
        text = json.dumps(event)
        with self._lock:
            if self._pid != event["pid"]:  # the first one, or that of a process that was forked
                self._open()
            if self._file is None:
                return
            written = f"{',' if self._end else '['}\n{text}\n]".encode()
            try:
                if os.pwrite(self._file, written, self._end) < len(written):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:  # a full disk must not end the program that is looked at
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._end)
                    os.pwrite(self._file, b"\n]" if self._end else b"", self._end)
                self._give_up(error)
                return
            self._end += len(written) - 2  # the next event takes the place of the end

    def _open(self) -> None:
        self._pid = os.getpid()
        self._end = 0
        path = os.path.join(self._folder, f"poptorch_{self._pid}.trace.json")
        try:
            os.makedirs(self._folder, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._file = None
        logger.warning("the timeline of PVTI_OPTIONS cannot be written: %s", error)

    def after_fork(self) -> None:
        self._lock = threading.Lock()


def _now() -> int:
    return time.monotonic_ns()


_FOLDER = _folder_asked_for()
_TIMELINE = _Timeline(_FOLDER) if _FOLDER is not None else None
if _TIMELINE is not None:
    os.register_at_fork(after_in_child=_TIMELINE.after_fork)


@contextlib.contextmanager
def _traced(channel: str, label: str) -> Iterator[None]:
    assert _TIMELINE is not None
    start = _now()
    try:
        yield
    finally:
        _TIMELINE.add(channel, label, start, _now())


class Channel:
    """A named row of the timeline. Does nothing unless PVTI_OPTIONS enables tracing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def tracepoint(self, label: str) -> ContextManager[None]:
        """Trace what happens inside a `with` statement, under this label."""
        if _TIMELINE is None:
            return contextlib.nullcontext()
        return _traced(self._name, label)

    def instrument(self, obj: object, *methods: str) -> None:
        """Trace each call of these methods of an object, under the methods' names."""
        if _TIMELINE is None:
            return
        for name in methods:
            setattr(obj, name, self._around(getattr(obj, name), name))

    def _around(self, method: Callable[..., Any], label: str) -> Callable[..., Any]:
        @functools.wraps(method)
        def traced(*args: Any, **kwargs: Any) -> Any:
            with self.tracepoint(label):
                return method(*args, **kwargs)

        return traced


# Methods of an executor and what they are called in the timeline.
_EXECUTOR_METHODS = {
    "__call__": "modelExecution",
    "_forward": "graphPreprocessing",
    "compile": "compile",
    "compileAndExport": "compileAndExport",
    "save": "saveExecutableToFile",
    "loadExecutable": "loadExecutable",
    "copyWeightsToHost": "copyWeightsToHost",
    "copyWeightsToDevice": "copyWeightsToDevice",
    "setOptimizer": "setOptimizer",
    "attachToDevice": "attachToDevice",
    "detachFromDevice": "detachFromDevice",
    "destroy": "destroy",
}
_TRAINING = Channel("poptorch.trainingModel")
_INFERENCE = Channel("poptorch.inferenceModel")


def _traced_method(method: Callable[..., Any], label: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        channel = _TRAINING if self._training else _INFERENCE
        if label in ("modelExecution", "compile") and not self.isCompiled():
            with channel.tracepoint("modelCompilation"), channel.tracepoint(label):
                return method(self, *args, **kwargs)
        with channel.tracepoint(label):
            return method(self, *args, **kwargs)

    return traced


def instrument_package(executor: type, loader: type) -> None:
    """Make executors and data loaders trace themselves, where tracing is enabled."""
    if _TIMELINE is None:
        return
    for name, label in _EXECUTOR_METHODS.items():
        method = executor.__dict__.get(name)
        if method is not None:
            setattr(executor, name, _traced_method(method, label))
    init = loader.__init__  # type: ignore[misc]
    Channel("poptorch.DataLoader").instrument(loader, "__iter__")

    @functools.wraps(init)
    def traced_init(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        _trace_dataset(type(self._users_dataset))

    setattr(loader, "__init__", traced_init)


def _trace_dataset(dataset: type) -> None:
    method = dataset.__dict__.get("__getitem__")
    if method is not None and not hasattr(method, "__wrapped__"):
        try:
            Channel("dataset").instrument(dataset, "__getitem__")
        except TypeError:  # a class of Python's own, such as list
            pass
