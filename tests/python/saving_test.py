"""Compiled models in files: saved, loaded with and without the model, and refused where wrong."""

import json
import os
import pathlib
import pickle
import subprocess
import sys
import textwrap

import poptorch
import pytest
import torch
from saving_models import (
    CallsPyTorch,
    Constant,
    Grouped,
    HalfRegression,
    Opaque,
    Pair,
    Regression,
    Structured,
    TakesOpaque,
    Unpicklable,
    Way,
)

GENERATOR = torch.Generator().manual_seed(3)
X, Y = torch.randn(8, 4, generator=GENERATOR), torch.randn(8, 3, generator=GENERATOR)


def quiet():
    return poptorch.Options().showCompilationProgressBar(False)


def training(options=None, optimizer=None):
    torch.manual_seed(0)
    model = Regression()
    optimizer = optimizer or (lambda p: poptorch.optim.AdamW(p, lr=0.05))
    options = options or quiet().randomSeed(4)
    return poptorch.trainingModel(model, options, optimizer(model.parameters()))


def run(model, steps=3):
    return [model(X, Y) for _ in range(steps)]


def assert_same(a, b):
    for ours, theirs in zip(a, b):
        assert all(torch.equal(x, y) for x, y in zip(ours, theirs))
    assert len(a) == len(b) > 0


OPTIMIZERS = {
    "AdamW": lambda p: poptorch.optim.AdamW(p, lr=0.05),
    "SGD": lambda p: poptorch.optim.SGD(p, lr=0.05, momentum=0.9),
    "LAMB": lambda p: poptorch.optim.LAMB(p, lr=0.05),
    "RMSprop": lambda p: poptorch.optim.RMSprop(p, lr=0.05, momentum=0.5),
    "torch SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "torch Adam": lambda p: torch.optim.Adam(p, lr=0.05),
}


@pytest.mark.spec("1.1 load", "1.4 save", "9 export", "12 rng across save and load")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_bit_for_bit(tmp_path, name):
    model = training(optimizer=OPTIMIZERS[name])
    run(model)
    model.save(tmp_path / "model.poptorch")
    expected = run(model)
    loaded = poptorch.load(tmp_path / "model.poptorch")
    assert loaded.isCompiled() and loaded.isAttachedToDevice()
    assert loaded.model is not model.model and type(loaded.model).__name__ == "PoptorchRegression"
    assert_same(expected, run(loaded))
    for key, value in model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[key]), key
    assert loaded.rng_state == model.rng_state


def test_modes_are_those_of_the_program(tmp_path):
    """A module that was put into eval() for validation is saved as it was trained."""
    model = training()
    run(model)
    model.model.eval()
    model.save(tmp_path / "model.poptorch")
    expected = run(model)
    loaded = poptorch.load(tmp_path / "model.poptorch")
    assert_same(expected, run(loaded))


CHANGES = {
    "plain": lambda o: o,
    "device iterations": lambda o: o.deviceIterations(2),
    "accumulation": lambda o: o.Training.gradientAccumulation(4),
    "all": lambda o: o.deviceIterations(4).outputMode(poptorch.OutputMode.All),
    "sum": lambda o: o.deviceIterations(2).outputMode(poptorch.OutputMode.Sum),
    "every n": lambda o: o.deviceIterations(4).outputMode(poptorch.OutputMode.EveryN, 2),
    "anchors": lambda o: o.anchorTensor("weights", "fc.weight"),
    "replicas": lambda o: o.replicationFactor(2).broadcastBuffers(False),
    "accumulated": lambda o: o.deviceIterations(2).Training.gradientAccumulation(2),
}


def changed(name, options):
    CHANGES[name](options)
    return options


@pytest.mark.spec("1.4 compileAndExport", "1.4 loadExecutable", "9 export")
@pytest.mark.parametrize("name", CHANGES)
def test_every_kind_of_program_is_loaded(tmp_path, name):
    file = tmp_path / "model.poptorch"
    model = training(changed(name, quiet().randomSeed(4)))
    model.compileAndExport(file, X, Y)
    expected = run(model)
    assert_same(expected, run(poptorch.load(file)))
    other = training(changed(name, quiet().randomSeed(4)))
    other.loadExecutable(file)
    assert other.isCompiled()
    assert_same(expected, run(other))
    if name == "anchors":
        weights = model.getAnchoredTensor("weights")
        assert torch.equal(weights, other.getAnchoredTensor("weights"))


@pytest.mark.spec("9 export")
def test_weights_of_groups_of_replicas(tmp_path):
    torch.manual_seed(0)
    model = Grouped()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = poptorch.trainingModel(model, quiet().replicationFactor(2), optimizer)
    first.weight.replicaGrouping(
        poptorch.CommGroupType.NoGrouping, 0, poptorch.VariableRetrievalMode.OnePerGroup
    )
    run(first)
    first.save(tmp_path / "model.poptorch")
    second = poptorch.load(tmp_path / "model.poptorch")
    assert_same(run(first), run(second))
    assert torch.equal(first.model.weight, second.model.weight)
    assert not torch.equal(first.model.weight[0], first.model.weight[1])


def test_half_models_and_inference(tmp_path):
    torch.manual_seed(0)
    model = HalfRegression()
    trained = poptorch.trainingModel(
        model, quiet(), poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    )
    x, y = X.half(), Y.half()
    trained(x, y)
    trained.save(tmp_path / "half.poptorch")
    expected = [trained(x, y) for _ in range(2)]
    loaded = poptorch.load(tmp_path / "half.poptorch")
    assert_same(expected, [loaded(x, y) for _ in range(2)])
    inference = poptorch.inferenceModel(Regression().eval(), quiet())
    out = inference(X)
    inference.save(tmp_path / "inference.poptorch")
    again = poptorch.load(tmp_path / "inference.poptorch")
    assert torch.equal(again(X), out) and not again.model.training


@pytest.mark.spec("9 export")
def test_arguments_and_results_may_have_any_structure(tmp_path):
    file = tmp_path / "structured.poptorch"
    torch.manual_seed(0)
    model = Structured()
    call = (Pair(X, {"bias": torch.ones(4)}), torch.full((8, 4), 2.0))
    named = dict(
        way=Way.TWICE, factor=0.5, options={"a": (1, 2.5, None)}, last=torch.full((8, 4), 3.0)
    )
    first = poptorch.inferenceModel(model, quiet())
    first.compileAndExport(file, *call, **named)
    expected = first(*call, **named)
    second = poptorch.inferenceModel(model, quiet())
    second.loadExecutable(file)
    assert second.isCompiled()
    got = second(*call, **named)
    assert torch.equal(got["x"], expected["x"]) and type(got["pair"]) is Pair
    assert torch.equal(got["pair"].second[0], expected["pair"].second[0])
    assert got["pair"].second[1:] == ["text", None]
    with pytest.raises(poptorch.Error, match="factor"):
        second(*call, **{**named, "factor": 0.25})
    loaded = poptorch.load(file)
    assert torch.equal(loaded(*call, **named)["x"], expected["x"])


@pytest.mark.spec("1.4 loadExecutable")
def test_arguments_that_are_no_data_are_those_of_the_next_call(tmp_path, monkeypatch):
    file = tmp_path / "opaque.poptorch"
    first = poptorch.inferenceModel(TakesOpaque(), quiet())
    first.compileAndExport(file, X, Opaque(2.0))
    second = poptorch.inferenceModel(TakesOpaque(), quiet())
    second.loadExecutable(file)
    assert not second.isCompiled()
    assert torch.equal(second(X, Opaque(2.0)), X * 2)
    third = poptorch.inferenceModel(TakesOpaque(), quiet())
    third.loadExecutable(file)
    with pytest.raises(poptorch.Error, match="is not the one of this model"):
        third(X, Opaque(3.0))
    assert torch.equal(poptorch.load(file)(X, Opaque(2.0)), X * 2)


@pytest.mark.spec("1.4 loadExecutable", "9 export")
def test_loading_an_executable_unpickles_nothing(tmp_path, monkeypatch):
    file = tmp_path / "model.poptorch"
    model = training()
    model.compileAndExport(file, X, Y)
    expected = run(model)

    def refuse(*_):
        raise AssertionError("something was unpickled")

    other = training()
    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    other.loadExecutable(str(file))
    assert_same(expected, run(other))
    with pytest.raises(poptorch.Error, match="something was unpickled"):
        poptorch.load(file)


@pytest.mark.spec("1.4 save")
def test_places_of_files(tmp_path, capfd):
    model = training()
    with pytest.raises(poptorch.Error, match="has not been compiled"):
        model.save(tmp_path / "model.poptorch")
    model.compile(X, Y)
    model.save(tmp_path / "a" / "b" / "model.poptorch")
    assert (tmp_path / "a" / "b" / "model.poptorch").is_file()
    assert "[warning]" not in capfd.readouterr().err
    model.save(str(tmp_path))
    assert "model.poptorch'" in capfd.readouterr().err
    assert (tmp_path / "model.poptorch").is_file()
    (tmp_path / "file").write_text("text")
    with pytest.raises(poptorch.Error, match="cannot be made"):
        model.save(tmp_path / "file" / "model.poptorch")
    assert not [p for p in tmp_path.rglob("*") if "part" in p.name]


@pytest.mark.spec("1.4 save")
def test_without_the_random_state(tmp_path):
    model = training()
    run(model)
    model.save(tmp_path / "model.poptorch", save_rng_state=False)
    assert poptorch.load(tmp_path / "model.poptorch").rng_state == [4]
    other = training()
    other.loadExecutable(tmp_path / "model.poptorch")
    assert other.rng_state == [4]


@pytest.mark.spec("1.1 load", "9 export")
def test_without_the_model(tmp_path):
    file = tmp_path / "model.poptorch"
    model = training()
    model.compileAndExport(file, X, Y, export_model=False)
    with pytest.raises(AssertionError, match="has no model"):
        poptorch.load(file)
    other = training()
    other.loadExecutable(file)
    assert_same(run(model), run(other))


@pytest.mark.spec("9 unpicklable models")
def test_models_that_cannot_be_pickled(tmp_path):
    file = tmp_path / "model.poptorch"
    model = poptorch.inferenceModel(Unpicklable(), quiet())
    model.compile(torch.ones(2, 2))
    file.write_text("what was here")
    with pytest.raises(poptorch.Error, match="cannot be pickled.*export_model=False"):
        model.save(file)
    assert file.read_text() == "what was here"
    model.save(file, export_model=False)
    other = poptorch.inferenceModel(model.model, quiet())
    other.loadExecutable(file)
    assert torch.equal(other(torch.ones(2, 2)), model(torch.ones(2, 2)))


@pytest.mark.spec("9 export")
def test_programs_that_call_pytorch(tmp_path):
    file = tmp_path / "model.poptorch"
    model = poptorch.inferenceModel(CallsPyTorch(), quiet())
    model.compileAndExport(file, X)
    assert {call["operator"] for call in model.hostCalls()} == {"aten::linalg_qr", "aten::histc"}
    other = poptorch.inferenceModel(CallsPyTorch(), quiet())
    other.loadExecutable(file)
    assert_same([model(X)], [other(X)])


@pytest.mark.spec("9 no device op")
def test_a_model_without_a_device_operator(tmp_path):
    model = poptorch.inferenceModel(Constant(), quiet())
    with pytest.raises(poptorch.Error, match="nothing to export"):
        model.compileAndExport(tmp_path / "model.poptorch", torch.ones(2))
    assert not list(tmp_path.iterdir())


@pytest.mark.spec("1.1 load", "9 options on load")
def test_options_are_edited_before_the_model_is_wrapped(tmp_path):
    file = tmp_path / "model.poptorch"
    model = training()
    model.compileAndExport(file, X, Y)
    seen = []

    def edit(options):
        seen.append(options)
        options.logDir(str(tmp_path)).useIpuId(15)  # the first ones are in use

    loaded = poptorch.load(file, edit)
    assert len(seen) == 1 and loaded.options.log_dir == str(tmp_path)
    assert_same(run(model), run(loaded))


@pytest.mark.spec("9 options on load", "9 offline targets")
@pytest.mark.parametrize("offline", ["useOfflineIpuTarget", "connectionType"])
def test_offline_targets_compile_and_export(tmp_path, offline):
    file = tmp_path / "model.poptorch"

    def options():
        made = quiet().randomSeed(4)
        if offline == "useOfflineIpuTarget":
            return made.useOfflineIpuTarget()
        return made.connectionType(poptorch.ConnectionType.Never)

    model = training(options())
    model.compileAndExport(file, X, Y)
    assert model.isCompiled() and not model.isAttachedToDevice()
    with pytest.raises(AssertionError):
        model(X, Y)
    expected = run(training())
    for loaded in (poptorch.load(file), training(options())):
        if not loaded.isCompiled():
            loaded.loadExecutable(file)
        assert loaded.options.connection_type == poptorch.ConnectionType.Always.value
        assert not loaded.options.exists("ipu_version")
        assert_same(expected, run(loaded))


@pytest.mark.spec("9 option checks")
def test_another_program_is_refused(tmp_path):
    file = tmp_path / "model.poptorch"
    training(quiet().deviceIterations(2)).compileAndExport(file, X, Y)

    def refused(model, words):
        with pytest.raises(poptorch.Error, match=words):
            model.loadExecutable(file)
        assert not model.isCompiled()

    refused(training(quiet().deviceIterations(4)), "deviceIterations.2.*options say 4")
    options = quiet().deviceIterations(2)
    options.Training.gradientAccumulation(2)
    refused(training(options), "gradientAccumulation.1.*options say 2")
    options = quiet().deviceIterations(2).replicationFactor(2).broadcastBuffers(False)
    refused(training(options), "replicationFactor.1.*options say 2")
    options = quiet().deviceIterations(2).outputMode(poptorch.OutputMode.All)
    refused(training(options), "another outputMode")
    sgd = OPTIMIZERS["SGD"]
    refused(training(quiet().deviceIterations(2), sgd), "another model, optimiser or options")
    refused(poptorch.inferenceModel(Regression(), quiet()), "a program for training")
    compiled = training(quiet().deviceIterations(2))
    compiled.compile(X, Y)
    with pytest.raises(poptorch.Error, match="compiled already"):
        compiled.loadExecutable(file)


def test_options_of_the_compiler_are_those_of_the_file(tmp_path, capfd):
    file = tmp_path / "model.poptorch"
    training().compileAndExport(file, X, Y)
    options = quiet().randomSeed(4)
    options.Precision.enableStochasticRounding(True)
    training(options).loadExecutable(file)
    assert "enableStochasticRounding is decided when" in capfd.readouterr().err


@pytest.mark.spec("1.1 load", "9 versions")
def test_files_of_another_version(tmp_path):
    file = tmp_path / "model.poptorch"
    model = training()
    model.compile(X, Y)
    model._core.save(str(file), True, {"poptorch version": "3.3.0"}, {})
    with pytest.raises(AssertionError, match="PopTorch version mismatch"):
        poptorch.load(file)
    with pytest.raises(poptorch.Error, match="PopTorch version mismatch"):
        training().loadExecutable(file)


@pytest.mark.spec("9 damaged files")
def test_damaged_files_are_one_clear_error(tmp_path):
    file = tmp_path / "model.poptorch"
    training().compileAndExport(file, X, Y)
    whole = file.read_bytes()
    cases = [b"", b"PK\3\4 a zip archive", whole + b"x"]
    cases += [whole[: len(whole) * i // 40] for i in range(40)]
    for at in range(0, len(whole), max(1, len(whole) // 40)):
        cases.append(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    for content in cases:
        file.write_bytes(content)
        with pytest.raises(poptorch.Error) as caught:
            poptorch.load(file)
        assert str(file) in caught.value.message
        model = training()
        with pytest.raises(poptorch.Error) as caught:
            model.loadExecutable(file)
        assert str(file) in caught.value.message and not model.isCompiled()
    for name in ("missing.poptorch", "."):
        with pytest.raises(poptorch.Error, match="missing.poptorch|folder|directory|file"):
            poptorch.load(tmp_path / name)


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import poptorch, torch
from saving_test import X, Y, run
print([[t.view(torch.int32).tolist() for t in result] for result in run(poptorch.load({file!r}))])
"""


@pytest.mark.spec("9 export")
def test_another_process_with_other_threads_goes_on(tmp_path):
    file = tmp_path / "model.poptorch"
    model = training()
    run(model)
    model.save(file)
    expected = [[t.view(torch.int32).tolist() for t in result] for result in run(model)]
    program = textwrap.dedent(PROGRAM).format(
        tests=str(pathlib.Path(__file__).parent), file=str(file)
    )
    for threads in ("1", "3"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "TESSERA_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == str(expected)


def test_after_detaching_and_after_other_weights(tmp_path):
    model = training()
    run(model)
    model.detachFromDevice()
    model.save(tmp_path / "detached.poptorch")
    loaded = poptorch.load(tmp_path / "detached.poptorch")
    assert_same(run(model), run(loaded))
    other = training()
    with torch.no_grad():
        other.model.fc.weight.add_(1)
    plain = training()
    with torch.no_grad():
        plain.model.fc.weight.add_(1)
    training().compileAndExport(tmp_path / "first.poptorch", X, Y)
    other.loadExecutable(tmp_path / "first.poptorch")  # the weights are those of the module
    assert_same(run(plain), run(other))


TRACED = """
import sys
sys.path.insert(0, {tests!r})
import poptorch
from saving_test import X, Y, training
training().compileAndExport("model.poptorch", X, Y)
training().loadExecutable("model.poptorch")
"""


@pytest.mark.spec("13 tracepoints")
def test_timelines_show_saving_and_loading(tmp_path):
    program = textwrap.dedent(TRACED).format(tests=str(pathlib.Path(__file__).parent))
    options = json.dumps({"enable": "true"})
    environment = {**os.environ, "PVTI_OPTIONS": options, "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
    (file,) = tmp_path.glob("poptorch_*.trace.json")
    seen = {event["name"] for event in json.loads(file.read_text())}
    assert seen >= {"compileAndExport", "saveExecutableToFile", "loadExecutable"}
