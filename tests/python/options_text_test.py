"""Options from files, JSON and the environment."""

import os
import subprocess
import sys

import poptorch
import pytest
import torch


def write(path, *lines):
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.spec("2.1 loadFromFile")
def test_a_file_of_setters(tmp_path):
    opts = poptorch.Options()
    loaded = opts.loadFromFile(
        write(
            tmp_path / "tmp.conf",
            "deviceIterations(1).replicationFactor(1)",
            "setExecutionStrategy(poptorch.ShardedExecution())",
            "  Training.gradientAccumulation(4)",
            "    ",
            "enableSyntheticData(True) # measured only",
            "# a comment",
            "outputMode(poptorch.OutputMode.EveryN, output_return_period=2)",
            'setAvailableMemoryProportion({"IPU0": 0.2, "IPU1": 2e-1})',
            '_Popart.set("dotChecks", ["FINAL", "ALL"])',
            'Popart.set("hardwareInstrumentations", {0, 1})',
            "TensorLocations.setWeightLocation("
            "poptorch.TensorLocationSettings().useOnChipStorage(False))",
            "Precision.setPartialsType(torch.half)",
            'appendToLocationExcludes("a", "b")',
            "options.useIpuId(-0)",
        )
    )
    assert loaded is opts
    expected = (
        poptorch.Options()
        .setExecutionStrategy(poptorch.ShardedExecution())
        .enableSyntheticData(True)
        .outputMode(poptorch.OutputMode.EveryN, 2)
        .setAvailableMemoryProportion({"IPU0": 0.2, "IPU1": 0.2})
        .appendToLocationExcludes("a", "b")
        .useIpuId(0)
    )
    expected.Training.gradientAccumulation(4)
    expected._Popart.set("dotChecks", ["FINAL", "ALL"]).set("hardwareInstrumentations", {0, 1})
    expected.Precision.setPartialsType(torch.half)
    expected.TensorLocations.setWeightLocation(
        poptorch.TensorLocationSettings().useOnChipStorage(False)
    )
    assert repr(opts) == repr(expected)
    opts.loadFromFile(write(tmp_path / "later.conf", "deviceIterations(7)"))
    assert opts.device_iterations == 7 and opts.Training.gradient_accumulation == 4


@pytest.mark.parametrize(
    "line, message",
    [
        ("outputMode(poptorch.OutputMode.All", "SyntaxError at line 3 of bad.conf: "),
        ("deviceIterations", "SyntaxError at line 3 of bad.conf: a line must be a setter"),
        ("deviceIterations = 3", "SyntaxError at line 3"),
        ("import os", "SyntaxError at line 3"),
        ("deviceIteration(3)", "AttributeError at line 3 of bad.conf: Options has no setter"),
        ("deviceIterations('3')", "AssertionError at line 3 of bad.conf: device_iterations"),
        ("deviceIterations(0)", "ValueError at line 3 of bad.conf"),
        ("deviceIterations(1, 2)", "TypeError at line 3 of bad.conf"),
        ("outputMode(poptorch.OutputMode.Most)", "no member"),
        ("deviceIterations(1 + 1)", "neither a literal"),
        ("deviceIterations(n)", "neither a literal"),
        ("__init__()", "AttributeError at line 3"),
        ("_freeze()", "no setter '_freeze'"),
        ("clone()", "no setter 'clone'"),
        ("__class__.__init__()", "line 3"),
        ("deviceIterations(poptorch.DataLoader())", "cannot be called here"),
        ("logDir(__import__('os').getcwd())", "line 3"),
        ("Training.__dict__.clear()", "line 3"),
        ("logDir(open('x', 'w'))", "cannot be called here"),
        ("logDir(*['x'])", "line 3"),
        ("deviceIterations(**{})", "line 3"),
    ],
)
@pytest.mark.spec("2.1 loadFromFile", "2.1 ConfigFileError")
def test_a_bad_line_is_named_and_nothing_is_executed(tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "bad.conf", "deviceIterations(2)", "", line)
    with pytest.raises(poptorch.options.ConfigFileError) as raised:
        poptorch.Options().loadFromFile(path)
    assert message in str(raised.value)
    assert str(raised.value).endswith(f"\n> {line}")
    assert os.listdir(tmp_path) == ["bad.conf"]
    with pytest.raises(FileNotFoundError):
        poptorch.Options().loadFromFile(str(tmp_path / "none.conf"))


JSON = """{
  "deviceIterations": 2,
  "logDir": "/tmp/x",
  "enableSyntheticData": true,
  "Training.gradientAccumulation": 4,
  "Precision.enableFloatingPointExceptions": true,
  "connectionType": "ConnectionType.OnDemand",
  "outputMode": ["OutputMode.EveryN", 2],
  "setAvailableMemoryProportion": {"IPU0": 0.5},
  "updatableNamedBuffers": [["a", "b"]],
  "_Popart.set": ["saveInitializersToFile", "my_file.onnx"]
}"""


def expected_of_json():
    opts = poptorch.Options().deviceIterations(2).logDir("/tmp/x").enableSyntheticData(True)
    opts.Training.gradientAccumulation(4)
    opts.Precision.enableFloatingPointExceptions(True)
    opts.connectionType(poptorch.ConnectionType.OnDemand)
    opts.outputMode(poptorch.OutputMode.EveryN, 2).setAvailableMemoryProportion({"IPU0": 0.5})
    opts.updatableNamedBuffers(["a", "b"])
    opts._Popart.set("saveInitializersToFile", "my_file.onnx")
    return opts


@pytest.mark.spec("2.1 from_json")
def test_options_from_json():
    opts = poptorch.Options()
    opts.from_json(JSON)
    assert repr(opts) == repr(expected_of_json())
    for wrong, kind in [
        ("{", ValueError),
        ("[1]", ValueError),
        ('{"setExecutionStrategy": "PipelinedExecution"}', AttributeError),
        ('{"deviceIteration": 1}', AttributeError),
        ('{"Trainings.gradientAccumulation": 1}', AttributeError),
        ('{"_core.freeze": []}', AttributeError),
        ('{"__init__": []}', AttributeError),
        ('{"Training.__class__.__init__": []}', AttributeError),
        ('{"deviceIterations": "2"}', AssertionError),
        ('{"connectionType": "ConnectionType.Sometimes"}', AssertionError),
        ('{"deviceIterations": [1, 2]}', TypeError),
    ]:
        with pytest.raises(kind):
            poptorch.Options().from_json(wrong)


@pytest.mark.spec("7 POPTORCH_DEFAULT_OPTIONS", "7 POPTORCH_CACHE_DIR")
def test_options_from_the_environment(monkeypatch):
    expected = expected_of_json()
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", JSON)
    assert repr(poptorch.Options()) == repr(expected)
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", "{")
    with pytest.raises(ValueError):
        poptorch.Options()
    monkeypatch.delenv("POPTORCH_DEFAULT_OPTIONS")
    monkeypatch.setenv("POPTORCH_CACHE_DIR", "/tmp/cache")
    opts = poptorch.Options()
    assert opts._Popart.options["cachePath"] == "/tmp/cache"
    assert opts._Popart.options["enableEngineCaching"] is True
    assert opts.enableExecutableCaching(None)._Popart.options["enableEngineCaching"] is False


PROGRAM = """
import sys, torch, poptorch, popart

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        out = self.fc(x)
        return out if labels is None else (out, self.loss(out, labels))

def train_options():
    opts = poptorch.Options().loadFromFile(sys.argv[1])
    opts.from_json(sys.argv[2])
    opts._Popart.set("autoRecomputation", int(popart.RecomputationType.Standard))
    opts.autoRoundNumIPUs(True).setAvailableMemoryProportion({"IPU0": 0.3})
    opts.TensorLocations.setOptimizerLocation(
        poptorch.TensorLocationSettings().useOnChipStorage(True).useReplicatedTensorSharding(True))
    return opts

if __name__ == "__main__":
    opts = train_options()
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
    loader = poptorch.DataLoader(opts, data, batch_size=2, shuffle=True, num_workers=1)
    net = Net()
    model = poptorch.trainingModel(net, opts, poptorch.optim.AdamW(net.parameters(), lr=0.1))
    losses = [model(x, y)[1].mean().item() for _ in range(5) for x, y in loader]
    assert losses[-1] < losses[0]
    test = opts.clone()
    test.Training.gradientAccumulation(1)
    assert poptorch.inferenceModel(net, test)(torch.randn(4, 4)).shape == (4, 3)
    print(opts.device_iterations, opts.Training.gradient_accumulation, opts.random_seed,
          loader.combinedBatchSize, opts.output_mode.name)
"""


@pytest.mark.spec("2.1 loadFromFile", "2.1 from_json", "7 POPTORCH_DEFAULT_OPTIONS")
def test_a_program_with_options_from_a_file_json_and_the_environment(tmp_path):
    config = write(
        tmp_path / "train.conf",
        "# training",
        "deviceIterations(2)",
        "Training.gradientAccumulation(4)",
        "Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)",
        "outputMode(poptorch.OutputMode.Final)",
    )
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, program, config, '{"outputMode": "OutputMode.All"}'],
        env={**os.environ, "POPTORCH_DEFAULT_OPTIONS": '{"randomSeed": 42, "logDir": "/tmp"}'},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["2", "4", "42", "16", "All"]
