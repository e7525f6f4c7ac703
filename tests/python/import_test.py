"""What `import poptorch` says when something it needs is missing: one sentence."""
import pathlib
import shutil
import subprocess
import sys

import poptorch
import pytest
import torch
from poptorch._build import TORCH_SOURCE as SOURCE

TORCH = ".".join(torch.__version__.split(".")[:2])
MODULE = pathlib.Path(poptorch.poptorch_core.__file__).name


@pytest.fixture
def copy(tmp_path):
    """A copy of the package that may be damaged."""
    shutil.copytree(pathlib.Path(poptorch.__file__).parent, tmp_path / "poptorch")
    return tmp_path


def import_in(folder, **variables):
    """The last line that importing poptorch from a folder prints."""
    command = [sys.executable, "-B", "-c", "import poptorch"]
    environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", **variables}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == (1 if result.stderr else 0)
    assert "During handling" not in result.stderr
    return result.stderr.strip().split("\n")[-1]


def test_the_copy_works(copy):
    assert import_in(copy) == ""


def test_another_torch_is_refused(copy):
    (copy / "torch.py").write_text('__version__ = "2.0.1+cpu"\n')
    sentence = import_in(copy)
    assert sentence.startswith(f"ImportError: poptorch was built for PyTorch {TORCH}, but ")
    assert "has PyTorch 2.0.1+cpu: " in sentence and "build it again" in sentence


def test_the_same_torch_from_elsewhere_is_refused(copy):
    """Debian's libraries and those of a wheel are two PyTorches, of whatever version."""
    (copy / "torch/lib").mkdir(parents=True)
    (copy / "torch/__init__.py").write_text(f'__version__ = "{TORCH}.9"\n')
    library = copy / "torch/lib/libtorch_cpu.so"
    if SOURCE == "pip":
        theirs = "Debian"
        library.with_suffix(".so.9").write_bytes(b"")
        library.symlink_to("libtorch_cpu.so.9")
    else:
        theirs = "pip"
        library.write_bytes(b"")
    sentence = import_in(copy)
    assert sentence.startswith(
        f"ImportError: poptorch was built for PyTorch {TORCH} from {SOURCE}, but "
    )
    assert f"has PyTorch {TORCH}.9 from {theirs}: " in sentence and "build it again" in sentence


def test_only_a_wheel_that_everybody_sees_is_refused(copy):
    """It has an oneDNN of its own; Debian's has ours."""
    sentence = import_in(copy, TORCH_USE_RTLD_GLOBAL="1")
    if SOURCE == "pip":
        assert sentence.startswith("ImportError: PyTorch's libraries were loaded with RTLD_GLOBAL")
        assert "oneDNN" in sentence and "TORCH_USE_RTLD_GLOBAL" in sentence
    else:
        assert sentence == ""


def test_a_torch_that_cannot_be_imported_is_named(copy):
    (copy / "torch.py").write_text("import no_such_thing\n")
    sentence = import_in(copy)
    assert sentence.startswith(f"ImportError: poptorch needs PyTorch {TORCH}, which ")
    assert "No module named 'no_such_thing'" in sentence
    assert {"Debian": "python3-torch", "pip": f"pip install torch=={TORCH}.*"}[SOURCE] in sentence


@pytest.mark.parametrize("name", [MODULE, "_build.py"])
def test_a_package_that_was_not_built_says_how(copy, name):
    (copy / "poptorch" / name).unlink()
    sentence = import_in(copy)
    assert sentence.startswith(
        "ImportError: the compiled part of poptorch, poptorch_core, is not in"
    )
    assert f"'{copy}/poptorch'" in sentence and "pip install ." in sentence


def test_a_library_that_cannot_be_loaded_is_named(copy):
    (copy / "poptorch" / MODULE).write_bytes(b"no library")
    sentence = import_in(copy)
    assert sentence.startswith("ImportError: the compiled part of poptorch in ")
    assert "cannot be loaded" in sentence and MODULE in sentence
