"""Type checkers know the package: the stub is true, and programs are checked against it."""
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import poptorch
import torch

options = poptorch.Options().deviceIterations(4)
options.Training.gradientAccumulation(2)
model = torch.nn.Linear(1, 1)
executor: poptorch.PoplarExecutor = poptorch.trainingModel(model, options)
compiled: bool = executor.isCompiled()
try:
    executor.destroy()
except poptorch.Error as error:
    text: str = error.message + error.type + error.location
poptorch.setLogLevel("WARN")
with poptorch.profiling.Channel("mine").tracepoint("here"):
    pass
"""


def mypy(tmp_path, text):
    (tmp_path / "program.py").write_text(text)
    command = ["mypy", "--config-file", ROOT / "pyproject.toml", tmp_path / "program.py"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return [line for line in result.stdout.splitlines() if "program.py:" in line]


def test_the_stub_of_the_compiled_module_is_true():
    if not shutil.which("black"):
        pytest.skip("the stub is written by Debian 12's black, which is not installed")
    result = subprocess.run([ROOT / "tools/make_stub"], capture_output=True, text=True)
    assert result.stdout + result.stderr == ""
    assert result.returncode == 0


def test_a_program_with_right_types(tmp_path):
    assert mypy(tmp_path, PROGRAM) == []


def test_a_program_with_wrong_types(tmp_path):
    wrong = 'options.deviceIterations("four")\nexecutor.destroy(3)\n'
    errors = mypy(tmp_path, PROGRAM + wrong)
    assert len(errors) == 2 and "deviceIterations" in errors[0] and "destroy" in errors[1]
