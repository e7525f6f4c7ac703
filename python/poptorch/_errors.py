"""The exceptions of Tessera's own: poptorch.Error and its kinds."""


class Error(Exception):
    """Something that you can mend: what was wanted, what came, what to do.

    * `message`: the bare sentence;
    * `type`: where it comes from, `poptorch_py_error` for Python, `poptorch_cpp_error` for the core;
    * `location`: what was being done, innermost first, one line `[0] ...` each; empty for Python.
    """

    def __init__(
        self,
        message: object = "",
        type: str = "poptorch_py_error",
        location: str = "",
        source: str = "",
    ) -> None:
        super().__init__(message)
        self.message = str(message)
        self.type = type
        self.location = location
        self._source = source

    def _lines_after_message(self) -> list:
        if not self.location:
            return []
        return ["Error raised in:", *(f"  {line}" for line in self.location.splitlines())]

    def __str__(self) -> str:
        where = f"In {self._source}: " if self._source else ""
        return "\n".join([f"{where}'{self.type}': {self.message}", *self._lines_after_message()])


class UnrecoverableError(Error):
    """The device failed in a way that no reset mends."""


class RecoverableError(Error):
    """The device failed, and `recovery_action` makes it usable again.

    It is one of IPU_RESET, LINK_RESET, PARTITION_RESET and FULL_RESET.
    """

    def __init__(
        self,
        message: object = "",
        type: str = "poptorch_py_error",
        location: str = "",
        source: str = "",
        recovery_action: str = "IPU_RESET",
    ) -> None:
        super().__init__(message, type, location, source)
        self.recovery_action = recovery_action

    def _lines_after_message(self) -> list:
        action = f"Recovery action required: {self.recovery_action}"
        return [action, *super()._lines_after_message()]


# Where users find them, and where a pickle looks.
for _class in (Error, UnrecoverableError, RecoverableError):
    _class.__module__ = "poptorch.poptorch_core"


def createPoptorchError(msg: str) -> Error:
    """An error of the Python side with this message, to be raised."""
    return Error(msg)
