"""Loads PyTorch and our compiled part when imported, or says in one sentence what is in the way."""

import ctypes
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
            f"({error}): {_how_to_get(build)}"
        ) from None
    if torch.__version__.split(".")[:2] != build.TORCH.split("."):
        raise ImportError(
            f"poptorch was built for PyTorch {build.TORCH}, but {sys.executable} has PyTorch "
            f"{torch.__version__}: run it with the PyTorch it was built for, or build it again"
        )
    # Of one version too: ours would bring the libraries it was linked with, as a second PyTorch.
    if _source_of(torch) != build.TORCH_SOURCE:
        raise ImportError(
            f"poptorch was built for PyTorch {build.TORCH} from {build.TORCH_SOURCE}, but "
            f"{sys.executable} has PyTorch {torch.__version__} from {_source_of(torch)}: run it "
            "with the PyTorch it was built for, or build it again"
        )
    if build.TORCH_SOURCE == "pip" and _everybody_sees_libtorch():
        raise ImportError(
            "PyTorch's libraries were loaded with RTLD_GLOBAL, and the oneDNN inside of them would "
            "stand in for the one that poptorch needs: leave TORCH_USE_RTLD_GLOBAL unset"
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


def _source_of(torch):
    """As setup.py tells them apart."""
    library = pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    in_wheel = library.is_file() and library.resolve().name == library.name
    return "pip" if in_wheel else "Debian"


def _everybody_sees_libtorch():
    """Whether its symbols come before those of libraries that are loaded later."""
    return hasattr(ctypes.CDLL(None), "_ZTIN3c105ErrorE")  # the type of its exceptions


def _how_to_get(build):
    if build.TORCH_SOURCE == "pip":
        return f"install it with 'pip install torch=={build.TORCH}.*'"
    return "use Debian's /usr/bin/python3 with its package python3-torch"


def _not_built():
    return ImportError(
        f"the compiled part of poptorch, poptorch_core, is not in '{FOLDER}': build it with 'cmake "
        "--build build' and put build/python on PYTHONPATH, or install it with 'pip install .'"
    )


VERSION = _load()
