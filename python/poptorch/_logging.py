"""Messages of the Python side, in the form and at the level (POPTORCH_LOG_LEVEL) of the core's."""

import logging
import os
import sys

_LEVELS = {
    "TRACE": logging.DEBUG - 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "OFF": logging.CRITICAL + 10,
}
_NUMBERS = {"0": "TRACE", "1": "DEBUG", "2": "INFO", "3": "WARN", "4": "ERR", "6": "OFF"}


class _Handler(logging.Handler):
    def emit(self, record):
        try:
            # Looked up anew: test runners and notebooks replace it.
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class _Formatter(logging.Formatter):
    def format(self, record):
        time = self.formatTime(record, "%H:%M:%S")
        level = record.levelname.lower()
        return f"[{time}.{record.msecs:03.0f}] [poptorch:python] [{level}] {record.getMessage()}"


def _make_logger():
    made = logging.getLogger("poptorch::python")
    if not made.handlers:
        handler = _Handler()
        handler.setFormatter(_Formatter())
        made.addHandler(handler)
        asked = os.environ.get("POPTORCH_LOG_LEVEL", "WARN")
        made.setLevel(_LEVELS.get(_NUMBERS.get(asked, asked), logging.WARNING))
    return made


logger = _make_logger()
