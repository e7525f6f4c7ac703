"""What errors say and carry."""
import copy
import pickle
import subprocess
import sys

import poptorch
import pytest
import torch
import torch.nn as nn
from packaging.version import Version

pytestmark = pytest.mark.spec("7 Error")


class Sum(nn.Module):
    def forward(self, x):
        return x.sum()


class Reads(nn.Module):
    def forward(self, x):
        return x * x.tolist()[0]


class OneHot(nn.Module):
    def forward(self, x):
        return nn.functional.one_hot(x)


class Loss(nn.Module):
    def forward(self, x, labels):
        return nn.functional.nll_loss(x, labels)


def core_error():
    """An error that the core raises while it compiles."""
    with pytest.raises(poptorch.Error) as caught:
        poptorch.inferenceModel(Sum())(torch.ones(2, dtype=torch.complex64))
    return caught.value


@pytest.mark.spec("7 RecoverableError", "7 UnrecoverableError")
def test_classes():
    assert poptorch.Error is poptorch.poptorch_core.Error
    assert issubclass(poptorch.Error, Exception)
    assert not issubclass(poptorch.Error, RuntimeError)
    assert issubclass(poptorch.RecoverableError, poptorch.Error)
    assert issubclass(poptorch.UnrecoverableError, poptorch.Error)
    assert not issubclass(poptorch.RecoverableError, poptorch.UnrecoverableError)


@pytest.mark.spec("7 Error attributes", "7 str of python errors", "1.1 createPoptorchError")
@pytest.mark.parametrize("make", [poptorch.createPoptorchError, poptorch.Error])
def test_errors_of_python(make):
    error = make("the sky is green")
    assert type(error) is poptorch.Error
    assert str(error) == "'poptorch_py_error': the sky is green"
    assert error.message == "the sky is green"
    assert error.type == "poptorch_py_error"
    assert error.location == ""


@pytest.mark.spec("7 str of python errors")
def test_wrong_options_are_an_error_of_python():
    with pytest.raises(poptorch.Error, match="^'poptorch_py_error': ") as caught:
        poptorch.inferenceModel(Sum(), options=3)
    assert caught.value.type == "poptorch_py_error"


@pytest.mark.spec("7 Error attributes", "7 str of core errors", "7 location")
def test_errors_of_the_core():
    error = core_error()
    assert error.type == "poptorch_cpp_error"
    lines = error.location.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith(f"[{i}] ") for i, line in enumerate(lines))
    assert "input 'x'" in lines[0]  # innermost first
    assert "compiling the inference step" in lines[-1]
    head, _, tail = str(error).partition("\nError raised in:\n")
    assert head.startswith("In ") and "errors_test.py:" in head
    assert head.endswith(f": 'poptorch_cpp_error': {error.message}")
    assert tail == "\n".join(f"  {line}" for line in lines)


def lines_of(function):
    first = function.__code__.co_firstlineno
    return tuple(
        f"In {__file__}:{line}: 'poptorch_cpp_error': " for line in range(first, first + 6)
    )


@pytest.mark.spec("7 str of core errors")
def test_the_line_of_forward_comes_first():
    with pytest.raises(poptorch.Error, match="looked at the value") as caught:
        poptorch.inferenceModel(Reads())(torch.ones(2))
    assert str(caught.value).startswith(lines_of(Reads.forward))


@pytest.mark.spec("7 str of core errors")
def test_the_line_of_forward_when_a_program_runs():
    model = poptorch.inferenceModel(Loss())
    with pytest.raises(poptorch.Error, match="class index 7 is outside") as caught:
        model(torch.ones(1, 2), torch.tensor([7]))
    assert str(caught.value).startswith(lines_of(Loss.forward))


def test_what_an_operator_refuses_is_an_error_of_ours():
    with pytest.raises(
        poptorch.Error, match="OneHot num classes must be specified and must be constant."
    ):
        poptorch.inferenceModel(OneHot())(torch.tensor([1, 2]))


@pytest.mark.spec("7 location")
def test_an_error_outside_of_any_scope_has_a_location():
    executor = poptorch.inferenceModel(Sum())
    with pytest.raises(poptorch.Error) as caught:
        executor.copyWeightsToHost()
    assert caught.value.location.startswith("[0] called at ")
    here = test_an_error_outside_of_any_scope_has_a_location
    assert str(caught.value).startswith(lines_of(here))  # else the line that called


@pytest.mark.spec("7 RecoverableError", "7 Error attributes")
def test_recovery_action():
    error = poptorch.RecoverableError("lost", recovery_action="LINK_RESET")
    assert error.recovery_action == "LINK_RESET"
    assert "LINK_RESET" in str(error)
    assert not hasattr(poptorch.UnrecoverableError("lost"), "recovery_action")


def test_errors_can_be_copied_and_sent_to_other_processes():
    for error in (core_error(), poptorch.RecoverableError("a", recovery_action="FULL_RESET")):
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert type(again) is type(error)
            assert str(again) == str(error)
            assert vars(again) == vars(error)


@pytest.mark.spec("7 argument mistakes")
def test_mistakes_in_arguments_have_the_classes_of_python():
    with pytest.raises(AssertionError):
        poptorch.identity_loss(torch.ones(2), reduction="product")
    options = poptorch.Options()
    poptorch.inferenceModel(Sum(), options)
    with pytest.raises(AttributeError, match="frozen"):
        options.deviceIterations(2)


@pytest.mark.spec("7 poptorch_error.log")
def test_long_messages_of_the_core_go_to_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "\n".join(f"line {i}" for i in range(1, 101))
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    with pytest.raises(poptorch.Error, match="poptorch_error.log") as caught:
        poptorch.inferenceModel(Sum())(torch.ones(2))
    assert "line 5\n" in caught.value.message and "line 50" not in caught.value.message
    assert "more lines" in str(caught.value) and "compiling" in str(caught.value)
    assert text in (tmp_path / "poptorch_error.log").read_text()


@pytest.mark.spec("7 poptorch_error.log", "2.2 logDir")
def test_the_file_is_in_the_log_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "\n" * 200)
    folder = tmp_path / "logs"
    folder.mkdir()
    with pytest.raises(poptorch.Error, match="more lines: the whole message is in"):
        poptorch.inferenceModel(Sum(), poptorch.Options().logDir(str(folder)))(torch.ones(2))
    assert [file.name for file in folder.iterdir()] == ["poptorch_error.log"]
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.spec("7 poptorch_error.log")
def test_long_messages_of_the_program_stay_as_they_are(tmp_path, monkeypatch):
    class Chatty(nn.Module):
        def forward(self, x):
            raise poptorch.Error("\n".join(f"line {i}" for i in range(100)))

    monkeypatch.chdir(tmp_path)
    with pytest.raises(poptorch.Error, match="line 99"):
        poptorch.inferenceModel(Chatty())(torch.ones(2))
    assert not (tmp_path / "poptorch_error.log").exists()


def program(text, **environment):
    command = [sys.executable, "-B", "-c", text]
    path = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(command, env=path, capture_output=True, text=True)


@pytest.mark.spec("7 str of core errors")
def test_a_program_without_a_file():
    result = program(
        "import poptorch, torch\n"
        "poptorch.inferenceModel(torch.nn.Identity()).copyWeightsToHost()\n"
    )
    assert result.returncode == 1
    assert "\npoptorch.poptorch_core.Error: In <string>:2: 'poptorch_cpp_error': " in result.stderr


@pytest.mark.spec("1.1 __version__")
def test_version():
    version = Version(poptorch.__version__)
    assert (version.major, version.minor, version.micro) == (3, 4, 0)
    assert version.local == f"tessera.{poptorch.__tessera_version__}"
    assert Version(poptorch.__tessera_version__) >= Version("0.1")
