"""Messages of the Python side, in the form and at the level of the core's.

They go through the logger "poptorch::python" of Python's own logging, to stderr. The level is
POPTORCH_LOG_LEVEL's at first.
"""

import logging
import os
import sys
from typing import Union

from . import poptorch_core

# The core's levels in the numbers of Python's logging.
_LEVELS = {
    0: logging.DEBUG - 5,
    1: logging.DEBUG,
    2: logging.INFO,
    3: logging.WARNING,
    4: logging.ERROR,
    6: logging.CRITICAL + 10,
}
_NAMES = ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF")
_COLOURS = {
    logging.DEBUG - 5: "\x1b[37m",
    logging.DEBUG: "\x1b[36m",
    logging.INFO: "\x1b[32m",
    logging.WARNING: "\x1b[33m\x1b[1m",
    logging.ERROR: "\x1b[31m\x1b[1m",
    logging.CRITICAL: "\x1b[1m\x1b[41m",
}

logging.addLevelName(_LEVELS[0], "TRACE")


def _is_coloured(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty() and os.environ.get("TERM", "dumb") != "dumb")


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            # Looked up anew: test runners and notebooks replace it.
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = self.formatTime(record, "%H:%M:%S")
        level = record.levelname.lower()
        colour = _COLOURS.get(record.levelno, "") if _is_coloured(sys.stderr) else ""
        if colour:
            level = f"{colour}{level}\x1b[m"
        millis = min(int(record.msecs), 999)
        text = f"[{time}.{millis:03}] [poptorch::python] [{level}] {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


# As `extra` of a message: the same words about another object are no repetition.
ABOUT_ONE_OBJECT = {"about_one_object": True}


class _Repeats(logging.Filter):
    """Lets one and the same message through as often as Options.maxRepeatLogs says."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "about_one_object", False):
            return True
        return poptorch_core.count_log(record.getMessage())


def _make_logger() -> logging.Logger:
    made = logging.getLogger("poptorch::python")
    if not made.handlers:
        handler = _Handler()
        handler.setFormatter(_Formatter())
        made.addHandler(handler)
        made.addFilter(_Repeats())
        made.setLevel(_LEVELS[poptorch_core.log_level()])
    return made


logger = _make_logger()


def setLogLevel(level: Union[str, int]) -> None:
    """Which messages are shown, of Python and of the core.

    A name or its number: TRACE (0), DEBUG (1), INFO (2), WARN (3, the default), ERR (4), OFF (6).
    """
    if isinstance(level, bool) or not isinstance(level, (str, int)):
        raise ValueError(
            f"Invalid log level of type {type(level).__name__}: it must be a name or an integer. "
            f"Valid values are {', '.join(_NAMES)}"
        )
    if isinstance(level, int):
        level = max(-1, min(level, 99))  # others beyond are as wrong
    else:
        level = level.encode("ascii", "backslashreplace").decode()
    poptorch_core.setLogLevel(level)
    logger.setLevel(_LEVELS[poptorch_core.log_level()])


def setPopartLogLevel(level: str) -> None:
    """Which messages of the compiler are shown.

    There is no separate compiler here whose messages have a level of their own: what it would say
    comes with the core's, so that only the name is checked.
    """
    if not isinstance(level, str) or level not in _NAMES:
        raise ValueError(f"Level must be one of {', '.join(_NAMES)}, not {level!r}")
