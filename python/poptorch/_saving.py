"""Executors in files: saving one, loading its program, and loading all of it again."""

import os
import pickle
from typing import Any, Dict, Optional, Tuple

from . import _argument_data, poptorch_core
from ._arguments import Bound
from ._load import VERSION

_MODEL = "pickled model"  # the part of a file that only load() reads
_ARGUMENTS = "arguments"  # of forward, as data


def save(executor: Any, filename: Any, export_model: bool, save_rng_state: bool) -> None:
    """What PoplarExecutor.save() does."""
    parts: Dict[str, bytes] = {}
    metadata: Dict[str, str] = {}
    if executor.isCompiled():  # the core says it where not
        executor.copyWeightsToHostIfNeeded()
        try:
            metadata[_ARGUMENTS] = _argument_data.to_text(executor._compiled_for)
        except _argument_data.NotData:
            pass  # loading waits for arguments, or has them from the pickled model
        if export_model:
            parts[_MODEL] = _pickled(executor, save_rng_state)
    executor._core.save(os.fspath(filename), bool(save_rng_state), metadata, parts)


def _pickled(executor, save_rng_state):
    made_from, state = executor._made_from()
    state["modes"] = executor._modes  # those of the program; the user may have called eval() since
    if not save_rng_state:
        state["rng_state"] = None
    try:
        return pickle.dumps((type(executor), *made_from, state, executor._compiled_for))
    except Exception as error:  # whatever the user's objects raise
        raise poptorch_core.Error(
            f"save: the model cannot be pickled ({type(error).__name__}: {error}). Classes of the "
            "model and its arguments must be those of a module, not of a function; or use "
            "export_model=False, and later loadExecutable() on a wrapped model of the same kind"
        ) from error


def opened(filename: Any) -> poptorch_core.SavedModel:
    """The file; Error where it is none that save() wrote, or damaged."""
    return poptorch_core.SavedModel(os.fspath(filename))


def take_program(
    executor: Any,
    saved: poptorch_core.SavedModel,
    arguments: Optional[Bound] = None,
    optimizer_state: bool = False,
) -> None:
    """Make the program of a file that of an executor.

    Where the file does not tell the arguments, they are those of the executor's next call.
    """
    bound = _arguments_of(saved, arguments)
    if bound is None:
        executor._core.load_when_compiled(saved, optimizer_state)
        return
    if not executor.isCompiled():  # the core says it where it is
        executor._prepare_compilation(executor._signature_of_forward(), bound)
    executor._core.loadExecutable(saved, optimizer_state)


def _arguments_of(saved: Any, pickled: Optional[Bound]) -> Optional[Bound]:
    names, tensors = saved.input_names(), saved.example_inputs()
    if pickled is not None:
        return pickled._replace(names=names, tensors=tensors)
    text = saved.metadata(_ARGUMENTS)
    try:
        return None if text is None else _argument_data.from_text(text, names, tensors)
    except _argument_data.NotData:
        return None
    except ValueError as error:
        raise poptorch_core.Error(
            f"'{saved.path}' is damaged: its arguments cannot be read ({error})"
        ) from None


def unpickled(saved: poptorch_core.SavedModel) -> Tuple[tuple, Optional[Bound]]:
    """What the executor was made from, and its arguments. This runs what the file says."""
    assert saved.version == VERSION, (
        f"PopTorch version mismatch: File {saved.path} was created with version: {saved.version}, "
        f"and this is version: {VERSION}; compile and save the model again"
    )
    pickled = saved.part(_MODEL)
    assert pickled is not None, (
        f"File {saved.path} has no model: it was saved with export_model=False. Wrap the model "
        "with trainingModel() or inferenceModel(), and call loadExecutable() on it"
    )
    try:
        *made_from, arguments = pickle.loads(pickled)
    except Exception as error:  # whatever the user's objects raise
        raise poptorch_core.Error(
            f"the model in '{saved.path}' cannot be unpickled ({type(error).__name__}: {error}); "
            "import what it needs first, with the classes it was saved with"
        ) from error
    return tuple(made_from), arguments
