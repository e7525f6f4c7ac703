"""Programs that were compiled before are found again, whatever is in the folder."""

import os
import pathlib
import subprocess
import sys
import textwrap

import poptorch
import pytest
import torch
from saving_models import CallsPyTorch, HalfRegression, Regression

FOUND = "from the executable cache"


def options_for(folder, **settings):
    options = poptorch.Options().randomSeed(1).enableExecutableCaching(str(folder))
    for name, value in settings.items():
        getattr(options, name)(value)
    return options


def training(folder, change=None, **settings):
    torch.manual_seed(0)
    model = Regression()
    options = options_for(folder, **settings)
    if change:
        change(options)
    return poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=0.1))


def batch():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(8, 4, generator=generator), torch.randn(8, 3, generator=generator)


def losses(model, steps=3):
    return [model(*batch())[1] for _ in range(steps)]


def was_found(capfd):
    return FOUND in capfd.readouterr().err


@pytest.mark.spec("2.2 enableExecutableCaching", "9 executable cache")
def test_a_second_executor_loads_what_the_first_compiled(tmp_path, capfd):
    first = losses(training(tmp_path))
    assert not was_found(capfd)
    assert len(list(tmp_path.iterdir())) == 1
    second = losses(training(tmp_path))
    said = capfd.readouterr().err
    assert f"100/100 [00:00<00:00, {FOUND} in " in said and " s, compiling took " in said
    assert all(torch.equal(a, b) for a, b in zip(first, second))
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.spec("9 executable cache")
def test_what_does_not_matter_hits_and_what_matters_misses(tmp_path, capfd, monkeypatch):
    losses(training(tmp_path))
    capfd.readouterr()
    monkeypatch.setenv("TESSERA_NUM_THREADS", "3")
    losses(training(tmp_path, logDir=str(tmp_path.parent), modelName="another"))
    assert was_found(capfd)
    trained = training(tmp_path)
    with torch.no_grad():
        trained.model.fc.weight.mul_(2)  # values of weights are no part of the program
    losses(trained)
    assert was_found(capfd)
    for change in (
        lambda o: o.deviceIterations(2),
        lambda o: o.Training.gradientAccumulation(2),
        lambda o: o.outputMode(poptorch.OutputMode.All),
        lambda o: o.Precision.enableStochasticRounding(True),
        lambda o: o.anchorTensor("weights", "fc.weight"),
    ):
        training(tmp_path, change)(*batch())
        assert not was_found(capfd)
    monkeypatch.setenv("TESSERA_PRECISION", "precise")
    losses(training(tmp_path))
    assert not was_found(capfd)
    model = poptorch.inferenceModel(Regression().eval(), options_for(tmp_path))
    model(batch()[0])
    assert not was_found(capfd)


def test_half_precision_and_constants_are_found(tmp_path, capfd):
    def run(shift):
        torch.manual_seed(0)
        model = HalfRegression()
        wrapped = poptorch.inferenceModel(model, options_for(tmp_path))
        plain = Shifted(shift)
        return wrapped(*(t.half() for t in batch())), poptorch.inferenceModel(
            plain, options_for(tmp_path)
        )(torch.ones(2))

    first = run(1.0)
    capfd.readouterr()
    second = run(1.0)
    assert capfd.readouterr().err.count(FOUND) == 2
    assert torch.equal(first[0][0], second[0][0]) and torch.equal(first[1], second[1])
    third = run(2.0)  # a constant of forward is a part of the program
    assert capfd.readouterr().err.count(FOUND) == 1
    assert torch.equal(third[1], torch.full((2,), 3.0))


class Shifted(torch.nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.shift = torch.tensor(shift)

    def forward(self, x):
        return x + self.shift


@pytest.mark.spec("9 executable cache")
def test_kernels_that_were_chosen_by_timing_are_chosen_again(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("TESSERA_AUTOTUNE", "1")

    def plan():
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 16, 3))
        model = poptorch.inferenceModel(layers, options_for(tmp_path))
        model.compile(torch.ones(2, 3, 20, 20))
        return model._core.plan_text()

    first = plan()
    capfd.readouterr()
    assert plan() == first and was_found(capfd)


def test_programs_that_call_what_no_file_may_are_not_kept(tmp_path, capfd):
    results = [
        poptorch.inferenceModel(CallsPyTorch(), options_for(tmp_path))(batch()[0]) for _ in range(2)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*results))
    assert "[warning]" not in capfd.readouterr().err and not list(tmp_path.iterdir())


def test_none_turns_it_off(tmp_path, capfd):
    options = options_for(tmp_path).enableExecutableCaching(None)
    poptorch.inferenceModel(Regression().eval(), options)(batch()[0])
    assert not list(tmp_path.iterdir()) and not was_found(capfd)


@pytest.mark.spec("7 POPTORCH_CACHE_DIR", "9 executable cache")
def test_a_missing_folder_is_made_with_one_warning(tmp_path, capfd, monkeypatch):
    folder = tmp_path / "made" / "here"
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(folder))
    model = Regression().eval()
    poptorch.inferenceModel(model)(batch()[0])
    said = capfd.readouterr().err
    assert said.count("[warning]") == 1
    assert f'Specified directory not found. Creating "{folder}" directory' in said
    poptorch.inferenceModel(model)(batch()[0])
    said = capfd.readouterr().err
    assert FOUND in said and "[warning]" not in said


@pytest.mark.parametrize("content", [b"", b"not a program", bytes(5000)])
def test_damaged_files_are_mended(tmp_path, capfd, content):
    expected = losses(training(tmp_path))
    file = next(tmp_path.iterdir())
    whole = file.read_bytes()
    file.write_bytes(content)
    capfd.readouterr()
    got = losses(training(tmp_path))
    said = capfd.readouterr().err
    assert all(torch.equal(a, b) for a, b in zip(expected, got))
    assert said.count("[warning]") == 1 and "cannot be used" in said and FOUND not in said
    assert len(file.read_bytes()) == len(whole)
    losses(training(tmp_path))
    assert was_found(capfd)


@pytest.mark.spec("9 executable cache")
def test_a_folder_that_cannot_be_is_a_warning_for_one_process(tmp_path, capfd):
    file = tmp_path / "file"
    file.write_text("text")
    losses(training(file))
    said = capfd.readouterr().err
    assert said.count("[warning]") == 1 and "is no folder" in said


@pytest.mark.spec("9 several processes")
def test_several_processes_need_a_folder_they_can_write_to(tmp_path, capfd):
    file = tmp_path / "file"
    file.write_text("text")

    def compiled(options):  # for inference, which needs no other process
        options.Distributed.configureProcessId(0, 2)
        poptorch.inferenceModel(Regression().eval(), options).compile(batch()[0])
        return capfd.readouterr().err

    with pytest.raises(AssertionError, match="must be a folder that can be written to"):
        compiled(options_for(file))
    capfd.readouterr()
    assert "[warning]" not in compiled(options_for(tmp_path))
    assert "each of the 2 processes compiles the model" in compiled(poptorch.Options())


PROGRAM = """
import sys, poptorch, torch
sys.path.insert(0, {tests!r})
from executable_cache_test import losses, training
model = training({folder!r})
print([loss.item() for loss in losses(model)])
"""


def start(folder, **environment):
    program = textwrap.dedent(PROGRAM).format(
        tests=str(pathlib.Path(__file__).parent), folder=str(folder)
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "POPTORCH_LOG_LEVEL": "INFO", **environment},
    )


@pytest.mark.spec("9 several processes")
def test_one_of_several_processes_compiles(tmp_path):
    running = [start(tmp_path, TESSERA_NUM_THREADS=str(1 + i % 2)) for i in range(4)]
    ended = [process.communicate(timeout=120) for process in running]
    assert all(process.returncode == 0 for process in running), ended
    assert len({out for out, _ in ended}) == 1
    assert sum("kept in the executable cache" in err for _, err in ended) == 1
    assert sum(FOUND in err for _, err in ended) == 3
    assert len(list(tmp_path.iterdir())) == 1
