"""Environment variables that programs for PopTorch are run with."""
import json
import pathlib
import re
import subprocess
import sys

import poptorch
import pytest
import torch
import torch.nn as nn


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


def run(options=None):
    assert poptorch.inferenceModel(Double(), options)(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.spec("7 POPTORCH_IPU_MODEL", "7 POPTORCH_SMALL_IPU_MODEL")
@pytest.mark.parametrize("name", ["POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL"])
@pytest.mark.parametrize("value", ["0", "1"])
def test_programs_run_with_the_ipu_model(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    run()


@pytest.mark.spec("7 POPTORCH_IPU_MODEL_VERSION")
@pytest.mark.parametrize("version", ["ipu1", "ipu2", "ipu21", ""])
def test_versions_of_the_ipu_model(monkeypatch, version):
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", version)
    run()


@pytest.mark.spec("7 POPTORCH_IPU_MODEL_VERSION", "7 POPTORCH_SMALL_IPU_MODEL")
@pytest.mark.parametrize("name", ["POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL"])
def test_a_version_that_does_not_exist(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", "ipu3")
    model = poptorch.inferenceModel(Double())
    with pytest.raises(poptorch.Error, match="must be ipu1, ipu2 or ipu21, not 'ipu3'"):
        model(torch.ones(2))


@pytest.mark.spec("7 POPTORCH_IPU_MODEL", "2.2 useIpuModel")
def test_the_option_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", "ipu3")
    run()  # no model, no version
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    run(poptorch.Options().useIpuModel(False))
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "0")
    with pytest.raises(poptorch.Error, match="'ipu3'"):
        run(poptorch.Options().useIpuModel(True))


@pytest.mark.spec("12 acquisition errors", "7 POPTORCH_WAIT_FOR_IPU")
@pytest.mark.parametrize("wait", ["0", "1"])
def test_without_devices_nothing_runs(monkeypatch, wait):
    monkeypatch.setenv("TESSERA_NUM_IPUS", "0")
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", wait)  # there is nothing to wait for
    with pytest.raises(poptorch.Error, match=r"Failed to acquire 1 IPU\(s\): .* has 0; set"):
        run()
    run(poptorch.Options().useIpuModel(True))
    offline = poptorch.inferenceModel(Double(), poptorch.Options().useOfflineIpuTarget())
    offline.compile(torch.ones(2))
    assert offline.isCompiled()


@pytest.mark.spec("7 POPTORCH_MAX_GRAPH_LEN")
def test_how_much_of_a_graph_is_logged(monkeypatch, capfd):
    class Long(nn.Module):
        def forward(self, x):
            for i in range(30):
                x = torch.cumsum(x, 0) + i
            return x

    def nodes_logged():
        poptorch.inferenceModel(Long())(torch.ones(2))
        return capfd.readouterr().err.count("= cumsum")

    poptorch.setLogLevel("TRACE")
    try:
        monkeypatch.setenv("POPTORCH_MAX_GRAPH_LEN", "10")
        few = nodes_logged()
        monkeypatch.setenv("POPTORCH_MAX_GRAPH_LEN", "0")
        everything = nodes_logged()
        monkeypatch.delenv("POPTORCH_MAX_GRAPH_LEN")
        assert nodes_logged() == everything
    finally:
        poptorch.setLogLevel("WARN")
    assert everything - few >= 20


@pytest.mark.spec("7 POPTORCH_WAIT_FOR_IPU", "7 lower layers")
@pytest.mark.parametrize(
    "name, value",
    [
        ("POPTORCH_WAIT_FOR_IPU", "1"),
        ("POPLAR_LOG_LEVEL", "ERR"),
        ("POPART_LOG_LEVEL", "DEBUG"),
        ("POPLIBS_LOG_LEVEL", "OFF"),
        ("POPLAR_TARGET_OPTIONS", '{"ipuLinkDomainSize":"64"}'),
        ("POPLAR_RUNTIME_OPTIONS", '{"streamCallbacks.maxLookahead":"unlimited"}'),
        ("POPLAR_SDK_ENABLED", "somewhere"),
        ("POPART_CACHE_DIR", "somewhere"),
    ],
)
def test_variables_that_change_nothing(monkeypatch, tmp_path, capfd, name, value):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    run(poptorch.Options().showCompilationProgressBar(False))
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("7 POPLAR_ENGINE_OPTIONS", "13 engine options")
@pytest.mark.parametrize("text", ["", "{}", '{"opt.internalExchangeOptimisationTarget":"fast"}'])
def test_engine_options(monkeypatch, text):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    run()


@pytest.mark.spec("7 POPLAR_ENGINE_OPTIONS")
@pytest.mark.parametrize("text", ["autoReport.all=true", "[]", "{", '{"a":{"b":"c"}}'])
def test_wrong_engine_options(monkeypatch, text):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    with pytest.raises(poptorch.Error, match="POPLAR_ENGINE_OPTIONS must"):
        run()


TRACED = """
import poptorch, torch, torch.nn as nn

class Line(nn.Linear):
    def forward(self, x, y):
        return nn.functional.mse_loss(super().forward(x), y)

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return torch.ones(1), torch.ones(1)

if __name__ == "__main__":
    channel = poptorch.profiling.Channel("MyApp")
    data = Data()
    with channel.tracepoint("everything"):
        model = poptorch.trainingModel(Line(1, 1))
        channel.instrument(model, "isCompiled")
        loader = poptorch.DataLoader(poptorch.Options(), data, batch_size=2)
        for x, y in loader:
            model(x, y)
        model.copyWeightsToHost()
        model.isCompiled()
        poptorch.inferenceModel(nn.Linear(1, 1))(x)
        model.destroy()
"""


def run_traced(tmp_path, options, text=TRACED):
    script = tmp_path / "program.py"
    script.write_text(text)
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    if options is not None:
        environment["PVTI_OPTIONS"] = options
    return subprocess.run(
        [sys.executable, "-B", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.spec("7 PVTI_OPTIONS", "13 tracepoints", "6 profiling.Channel", "3.1 tracing")
@pytest.mark.parametrize("directory", [None, "traces/today"])
def test_a_trace_is_written_when_asked_for(tmp_path, directory):
    options = {"enable": "true"}
    if directory:
        options["directory"] = directory
    run_traced(tmp_path, json.dumps(options))
    (file,) = (tmp_path / (directory or ".")).glob("poptorch_*.trace.json")
    events = json.loads(file.read_text())
    seen = {(event.get("cat"), event["name"]) for event in events}
    training, inference = "poptorch.trainingModel", "poptorch.inferenceModel"
    assert seen >= {
        ("MyApp", "everything"),
        ("MyApp", "isCompiled"),
        (training, "modelCompilation"),
        (training, "graphPreprocessing"),
        (training, "modelExecution"),
        (training, "copyWeightsToHost"),
        (training, "destroy"),
        (inference, "modelExecution"),
        ("poptorch.DataLoader", "__iter__"),
        ("dataset", "__getitem__"),
    }
    spans = [event for event in events if event["ph"] == "X"]
    everything = next(event for event in spans if event["name"] == "everything")
    assert all(event["dur"] <= everything["dur"] for event in spans)
    assert sum(event["name"] == "modelCompilation" for event in spans) == 2


@pytest.mark.spec("7 PVTI_OPTIONS", "13 tracepoints")
@pytest.mark.parametrize("options", [None, "", '{"enable":"false"}', "{}"])
def test_nothing_is_written_unless_asked_for(tmp_path, options):
    result = run_traced(tmp_path, options)
    assert [file.name for file in tmp_path.iterdir()] == ["program.py"]
    assert "PVTI" not in result.stderr


@pytest.mark.spec("7 PVTI_OPTIONS", "13 tracepoints")
def test_workers_write_files_of_their_own(tmp_path):
    options = json.dumps({"enable": "true", "directory": "traces"})
    # What the program instrumented is instrumented in copies of its process; from 3.14 on Python
    # does not make workers by forking unless asked to.
    forked = 'batch_size=2, num_workers=2, multiprocessing_context="fork"'
    run_traced(tmp_path, options, TRACED.replace("batch_size=2", forked))
    files = list((tmp_path / "traces").iterdir())
    assert len(files) == 3
    events = [event for file in files for event in json.loads(file.read_text())]
    assert {event["pid"] for event in events} == {int(f.name.split("_")[1][:-11]) for f in files}
    assert sum(event["name"] == "__getitem__" for event in events) == 4


@pytest.mark.spec("7 PVTI_OPTIONS")
def test_a_full_disk_ends_the_trace_and_not_the_program(tmp_path):
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
    result = run_traced(tmp_path, '{"enable":"true"}', limit + TRACED)
    assert result.stderr.count("the timeline of PVTI_OPTIONS cannot be written") == 1
    (file,) = tmp_path.glob("poptorch_*.trace.json")
    assert json.loads(file.read_text())


@pytest.mark.spec("7 PVTI_OPTIONS")
def test_wrong_options_of_the_trace_are_said(tmp_path):
    result = run_traced(tmp_path, "enable")
    assert "[warning] PVTI_OPTIONS is no JSON object" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["program.py"]


VARIABLE = re.compile(r'"((?:TESSERA|POPTORCH|POPLAR|POPART|PVTI|OMPI)_[A-Z_]+)"')


def test_the_guide_lists_every_variable():
    root = pathlib.Path(__file__).parents[2]
    guide = (root / "docs/guide/environment.md").read_text()
    read = set()
    for folder, pattern in (("tessera", "*.cpp"), ("python", "*.py")):
        for file in (root / folder).rglob(pattern):
            if file.name.endswith("_test.cpp"):
                continue  # what a test may be told is no user's matter
            read |= set(VARIABLE.findall(file.read_text()))
    missing = sorted(name for name in read if f"`{name}`" not in guide)
    assert "TESSERA_TRACE" in read and not missing


def test_passes_can_be_left_out(monkeypatch):
    def nodes():
        model = poptorch.inferenceModel(nn.Sequential(nn.ReLU(), nn.Tanh()))
        assert model(torch.ones(2)).tolist() == pytest.approx([0.76159416] * 2)
        return model._core.plan_text().count("map: generated(")

    monkeypatch.delenv("TESSERA_DISABLE_PASSES", raising=False)
    assert nodes() == 1
    monkeypatch.setenv("TESSERA_DISABLE_PASSES", "fuse_elementwise, remove_dead")
    assert nodes() != 1
    for name in ("fuse_everything", "decompose"):  # nothing, and what nothing can do without
        monkeypatch.setenv("TESSERA_DISABLE_PASSES", name)
        with pytest.raises(ValueError, match=f"can be turned off, got '{name}'; .*recompute"):
            run()
