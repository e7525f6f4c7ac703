"""The exceptions of Tessera's own: poptorch.Error and its kinds."""

import enum


class Error(Exception):
    """Something that you can mend: what was wanted, what came, what to do.

    * `message`: the bare sentence;
    * `type`: who found it, `poptorch_py_error` for Python, `poptorch_cpp_error` for the core;
    * `location`: what was being done, innermost first, one line `[0] ...` each; empty for Python.
    """

    def __init__(
        self,
        message: object = "",
        type: str = "poptorch_py_error",
        location: str = "",
        source: str = "",
    ) -> None:
        self.message = str(message)
        self.type = type
        self.location = location
        self._source = source
        super().__init__(str(self))  # so that args[0] is what is printed

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
        self.recovery_action = recovery_action
        super().__init__(message, type, location, source)

    def _lines_after_message(self) -> list:
        action = f"Recovery action required: {self.recovery_action}"
        return [action, *super()._lines_after_message()]


class _ErrorInForward(RuntimeError):
    """An error of the core on its way through forward, which becomes an Error where forward ends.

    Forward may catch it, as it may catch what PyTorch raises.
    """

    _carried: object  # the core's own


# Where users find them, and where a pickle looks.
for _class in (Error, UnrecoverableError, RecoverableError):
    _class.__module__ = "poptorch.poptorch_core"


class TestErrorType(enum.Enum):
    """What _throwTestError() can raise, for tests of programs that handle our errors."""

    __test__ = False  # it is no test itself

    Poptorch = 0
    Popart = 1
    PopartInternal = 2
    Poplibs = 3
    PoplarUnrecoverable = 4
    PoplarUnknown = 5
    PoplarRecoverableFullReset = 6
    PoplarLinkError = 7


_TEST_ERRORS = {
    TestErrorType.Poptorch: (Error, "poptorch_cpp_error"),
    TestErrorType.Popart: (Error, "popart_exception"),
    TestErrorType.PopartInternal: (Error, "popart_internal_exception"),
    TestErrorType.Poplibs: (Error, "poplibs_exception"),
    TestErrorType.PoplarUnrecoverable: (UnrecoverableError, "poplar_unrecoverable_runtime_error"),
    TestErrorType.PoplarUnknown: (Error, "poplar_unknown_runtime_error"),
    TestErrorType.PoplarRecoverableFullReset: (
        RecoverableError,
        "poplar_recoverable_runtime_error",
    ),
    TestErrorType.PoplarLinkError: (Error, "poplar_link_error"),
}


def _throwTestError(kind: TestErrorType) -> None:
    """Raise an error as the core would, of a kind that is hard to come by."""
    if kind not in _TEST_ERRORS:
        raise TypeError(f"_throwTestError takes a TestErrorType, not {type(kind).__name__}")
    cls, name = _TEST_ERRORS[kind]
    # As though two scopes of the core had been open.
    scopes = ("throwTestError::bottomLevel", "throwTestError::topLevel")
    location = "\n".join(f"[{i}] {scope}" for i, scope in enumerate(scopes))
    message = f"an error of the kind {kind.name}, which was asked for"
    details = {"recovery_action": "FULL_RESET"} if cls is RecoverableError else {}
    raise cls(message, name, location, "throwTestError:1", **details)


def createPoptorchError(msg: str) -> Error:
    """An error of the Python side with this message, to be raised."""
    return Error(msg)
