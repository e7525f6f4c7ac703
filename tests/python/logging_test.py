"""Messages: their form, levels and where they go."""
import logging
import os
import pty
import re
import subprocess
import sys

import poptorch
import pytest
import torch
import torch.nn as nn
from poptorch import _logging

LINE = re.compile(r"\[\d\d:\d\d:\d\d\.\d{3}\] \[poptorch(::python|:cpp)\] \[(\w+)\] (.*)")
# A program that writes one message of each level, in Python and in the core.
PROGRAM = """
import poptorch, sys
for level, name in enumerate(("debug", "info", "warning", "error"), 1):
    getattr(poptorch.logger, name)("in Python")
    poptorch.poptorch_core.write_log(level, "in the core")
"""


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


@pytest.fixture(autouse=True)
def forgotten():
    """Puts the level back, and forgets which messages were written how often."""
    poptorch.poptorch_core.limit_repeated_logs(4)
    yield
    poptorch.setLogLevel("WARN")


def program(text=PROGRAM, **environment):
    """What a program writes to stderr and stdout, as (source, level, message) of each line."""
    path = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", **environment}
    command = [sys.executable, "-B", "-c", text]
    result = subprocess.run(command, env=path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result


def messages(text):
    return [LINE.fullmatch(line).groups() for line in text.splitlines()]


def of_levels(*levels):
    sources = (("::python", "in Python"), (":cpp", "in the core"))
    return [(source, level, text) for level in levels for source, text in sources]


@pytest.mark.spec("7 formats", "7 default level")
def test_the_default_level_is_warn():
    result = program()
    assert messages(result.stderr) == of_levels("warning", "error")
    assert result.stdout == ""


@pytest.mark.spec("7 POPTORCH_LOG_LEVEL", "7 levels")
@pytest.mark.parametrize(
    "value, levels",
    [
        ("DEBUG", ("debug", "info", "warning", "error")),
        ("1", ("debug", "info", "warning", "error")),
        ("INFO", ("info", "warning", "error")),
        ("WARN", ("warning", "error")),
        ("ERR", ("error",)),
        ("4", ("error",)),
        ("OFF", ()),
        ("", ("warning", "error")),
    ],
)
def test_level_of_the_environment(value, levels):
    assert messages(program(POPTORCH_LOG_LEVEL=value).stderr) == of_levels(*levels)


@pytest.mark.spec("7 POPTORCH_LOG_LEVEL")
def test_a_wrong_level_in_the_environment_is_said_once():
    first, *others = messages(program(POPTORCH_LOG_LEVEL="LOUD").stderr)
    assert first[1] == "warning"
    assert first[2].startswith("POPTORCH_LOG_LEVEL is 'LOUD', which is none of TRACE, ")
    assert others == of_levels("warning", "error")


@pytest.mark.spec("7 POPTORCH_LOG_DEST")
def test_the_core_writes_where_it_is_told(tmp_path):
    core = [message for message in of_levels("warning", "error") if message[0] == ":cpp"]
    result = program(POPTORCH_LOG_DEST="stdout")
    assert messages(result.stdout) == core
    assert len(messages(result.stderr)) == 2  # Python's stay there
    file = tmp_path / "messages.log"
    result = program(POPTORCH_LOG_DEST=str(file))
    assert messages(file.read_text()) == core
    assert result.stdout == "" and len(messages(result.stderr)) == 2
    assert messages(program(POPTORCH_LOG_DEST="stderr").stderr) == of_levels("warning", "error")


@pytest.mark.spec("7 POPTORCH_LOG_DEST")
def test_a_file_that_cannot_be_written(tmp_path):
    result = program(POPTORCH_LOG_DEST=str(tmp_path / "absent" / "messages.log"))
    assert "cannot be written; messages go to stderr" in result.stderr
    assert result.stderr.count("in the core") == 2


@pytest.mark.spec("7 setLogLevel", "1.1 setLogLevel", "7 levels")
@pytest.mark.parametrize(
    "level, shown",
    [("TRACE", 4), (0, 4), ("DEBUG", 4), ("INFO", 3), (2, 3), ("WARN", 2), ("ERR", 1), (6, 0)],
)
def test_set_log_level(capfd, level, shown):
    poptorch.setLogLevel(level)
    for number in range(1, 5):
        poptorch.poptorch_core.write_log(number, f"core {number}")
    for name in ("debug", "info", "warning", "error"):
        getattr(poptorch.logger, name)(f"python {name}")
    text = capfd.readouterr().err
    assert text.count("] core ") == shown and text.count("] python ") == shown


@pytest.mark.spec("7 setLogLevel")
@pytest.mark.parametrize("level", [5, 7, -1])
def test_wrong_numbers(level):
    with pytest.raises(ValueError, match="Invalid log level integer"):
        poptorch.setLogLevel(level)


@pytest.mark.spec("7 setLogLevel")
@pytest.mark.parametrize("level", ["warn", "WARNING", "", "3", None, 2.0, True])
def test_wrong_names(level):
    with pytest.raises(ValueError, match="(Invalid|Unknown) log level.*Valid values are"):
        poptorch.setLogLevel(level)


@pytest.mark.spec("7 setPopartLogLevel")
def test_set_popart_log_level():
    for name in ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF"):
        _logging.setPopartLogLevel(name)
    for wrong in (0, "LOUD", None):
        with pytest.raises(ValueError, match="Level must be one of"):
            _logging.setPopartLogLevel(wrong)


@pytest.mark.spec("7 logger")
def test_the_logger_is_one_of_pythons(caplog):
    assert poptorch.logger is logging.getLogger("poptorch::python")
    assert poptorch.logger is _logging.logger
    poptorch.logger.warning("%d of %s", 3, "them")
    assert caplog.record_tuples == [("poptorch::python", logging.WARNING, "3 of them")]


@pytest.mark.spec("7 logger", "7 formats")
def test_a_warning_of_the_interface(capfd):
    class Mine(torch.optim.SGD):
        pass

    model = nn.Linear(1, 1)
    poptorch.trainingModel(model, optimizer=Mine(model.parameters(), lr=0.1))
    (line,) = capfd.readouterr().err.splitlines()
    source, level, message = LINE.fullmatch(line).groups()
    assert (source, level) == ("::python", "warning") and "Mine" in message


@pytest.mark.spec("7 formats")
def test_colours_only_on_a_terminal():
    leader, follower = pty.openpty()
    path = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", "TERM": "xterm"}
    command = [sys.executable, "-B", "-c", PROGRAM]
    subprocess.run(command, env=path, stderr=follower, check=True)
    os.close(follower)
    text = os.read(leader, 10000).decode()
    os.close(leader)
    assert text.count("[\x1b[33m\x1b[1mwarning\x1b[m] in ") == 2
    assert text.count("[\x1b[31m\x1b[1merror\x1b[m] in ") == 2
    assert "\x1b" not in program(TERM="xterm").stderr


@pytest.mark.spec("7 repeated messages")
def test_the_same_message_is_shown_four_times(capfd):
    for _ in range(10):
        poptorch.logger.warning("again")
        poptorch.poptorch_core.write_log(3, "again, in the core")
    poptorch.logger.warning("another")
    text = capfd.readouterr().err
    assert text.count("] again\n") == 4 and text.count("] again, in the core\n") == 4
    assert text.count("] another\n") == 1


@pytest.mark.spec("7 repeated messages", "2.2 maxRepeatLogs")
@pytest.mark.parametrize("limit, shown", [(2, 2), (1, 1), (None, 10)])
def test_how_often_a_message_is_shown_is_an_option(capfd, limit, shown):
    options = poptorch.Options().maxRepeatLogs(limit)
    poptorch.inferenceModel(Double(), options)(torch.ones(2))
    for _ in range(10):
        poptorch.logger.warning("again")
        poptorch.poptorch_core.write_log(3, "in the core")
    text = capfd.readouterr().err
    assert text.count("] again\n") == shown and text.count("] in the core\n") == shown


@pytest.mark.spec("7 progress bar")
def test_progress_bar(capfd):
    poptorch.inferenceModel(Double())(torch.ones(2))
    bar = capfd.readouterr().err
    assert bar.startswith("Graph compilation: 100%|") and "| 100/100 [" in bar
    assert "it/s" not in bar and bar.count("Graph compilation") == 1
    options = poptorch.Options().showCompilationProgressBar(False)
    poptorch.inferenceModel(Double(), options)(torch.ones(2))
    assert capfd.readouterr().err == ""


@pytest.mark.spec("7 progress bar")
def test_one_bar_for_each_compilation(capfd):
    model = poptorch.inferenceModel(Double())
    for size in (2, 3):
        model(torch.ones(size))
        model(torch.ones(size))
        model.destroy()
    assert capfd.readouterr().err.count("Graph compilation") == 2
