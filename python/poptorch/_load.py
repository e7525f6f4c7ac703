"""Loads PyTorch and our compiled part when imported, or says in one sentence what is in the way."""

import importlib
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent


def _load():
    try:
        build = importlib.import_module(f"{__package__}._build")
    except ModuleNotFoundError:
        raise _not_built() from None
    try:
        # Its libraries must be there before ours.
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(
            f"poptorch needs PyTorch {build.TORCH}, which {sys.executable} cannot import "
            f"({error}): use Debian's /usr/bin/python3 with its package python3-torch"
        ) from None
    if torch.__version__.split(".")[:2] != build.TORCH.split("."):
        raise ImportError(
            f"poptorch was built for PyTorch {build.TORCH}, but {sys.executable} has PyTorch "
            f"{torch.__version__}: run it with the PyTorch it was built for, or build it again"
        )
    try:
        importlib.import_module(f"{__package__}.poptorch_core")
    except ModuleNotFoundError:
        raise _not_built() from None
    except ImportError as error:
        raise ImportError(
            f"the compiled part of poptorch in '{FOLDER}' cannot be loaded ({error}): install the "
            "packages it was built with, or build it again"
        ) from None
    return build.VERSION


def _not_built():
    return ImportError(
        f"the compiled part of poptorch, poptorch_core, is not in '{FOLDER}': build it with 'cmake "
        "--build build' and put build/python on PYTHONPATH, or install it with 'pip install .'"
    )


VERSION = _load()
