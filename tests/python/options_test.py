"""Options as programs set, read, copy and store them."""

import copy
import os
import pickle
import subprocess
import sys

import pytest
import torch

import poptorch


class LinearWithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
        self.loss = torch.nn.MSELoss()

    def forward(self, x, y):
        out = self.fc(x)
        return out, self.loss(out, y)


# name of the setter, arguments, attribute, default, value after
PLAIN_SETTERS = [
    ("deviceIterations", (4,), "device_iterations", 1, 4),
    ("replicationFactor", (4,), "replication_factor", 1, 4),
    ("broadcastBuffers", (False,), "broadcast_buffers", True, False),
    ("autoRoundNumIPUs", (), "auto_round_num_ipus", False, True),
    ("logDir", ("/tmp/logs",), "log_dir", ".", "/tmp/logs"),
    ("maxRepeatLogs", (7,), "max_repeat_logs", 4, 7),
    ("maxRepeatLogs", (None,), "max_repeat_logs", 4, None),
    (
        "connectionType",
        (poptorch.ConnectionType.OnDemand,),
        "connection_type",
        poptorch.ConnectionType.Always,
        poptorch.ConnectionType.OnDemand,
    ),
    (
        "syncPattern",
        (poptorch.SyncPattern.SinglePipeline,),
        "sync_pattern",
        poptorch.SyncPattern.Full,
        poptorch.SyncPattern.SinglePipeline,
    ),
    (
        "outputMode",
        (poptorch.OutputMode.EveryN, 3),
        "output_mode",
        poptorch.OutputMode.Default,
        poptorch.OutputMode.EveryN,
    ),
    (
        "setAvailableMemoryProportion",
        ({"IPU0": 0.6, "IPU12": 0.1},),
        "available_memory_proportion",
        {},
        {0: 0.6, 12: 0.1},
    ),
    (
        "sourceLocationExcludes",
        (["mine"],),
        "source_location_excludes",
        ["install/poptorch", "site-packages/torch", "site-packages/poptorch"],
        ["mine"],
    ),
    (
        "appendToLocationExcludes",
        ("a", "b"),
        "source_location_excludes",
        ["install/poptorch", "site-packages/torch", "site-packages/poptorch"],
        ["install/poptorch", "site-packages/torch", "site-packages/poptorch", "a", "b"],
    ),
    ("relaxOptimizerAttributesChecks", (), "_relax_optimizer_checks", False, True),
    ("showCompilationProgressBar", (False,), "_show_compilation_progress_bar", True, False),
    ("disableModuleNamescope", (), "_module_namescope_enabled", True, False),
]
UNSET = [
    ("randomSeed", (42,), "random_seed", 42),
    ("useIpuModel", (True,), "use_model", True),
    ("useIpuId", (3,), "ipu_id", 3),
    ("modelName", ("tower",), "model_name", "tower"),
    ("updatableNamedBuffers", (["a.mean"],), "updatable_named_buffers", ["a.mean"]),
    ("useOfflineIpuTarget", (), "ipu_version", 2),
]


@pytest.mark.parametrize("setter, args, attribute, default, after", PLAIN_SETTERS)
@pytest.mark.spec(
    "2.1 fluent",
    "2.1 reading values",
    "2.2 deviceIterations",
    "2.2 replicationFactor",
    "2.2 broadcastBuffers",
    "2.2 autoRoundNumIPUs",
    "2.2 logDir",
    "2.2 maxRepeatLogs",
    "2.2 connectionType",
    "2.2 syncPattern",
    "2.2 outputMode",
    "2.2 setAvailableMemoryProportion",
    "2.2 sourceLocationExcludes",
    "2.2 appendToLocationExcludes",
    "2.2 relaxOptimizerAttributesChecks",
    "2.2 showCompilationProgressBar",
    "2.2 disableModuleNamescope",
)
def test_setters_return_the_options_and_are_read_in_snake_case(
    setter, args, attribute, default, after
):
    opts = poptorch.Options()
    assert getattr(opts, attribute) == default
    assert getattr(opts, setter)(*args) is opts
    assert getattr(opts, attribute) == after
    assert type(getattr(opts, attribute)) is type(after)


@pytest.mark.parametrize("setter, args, attribute, after", UNSET)
@pytest.mark.spec(
    "2.1 exists",
    "2.2 randomSeed",
    "2.2 useIpuModel",
    "2.2 useIpuId",
    "2.2 modelName",
    "2.2 updatableNamedBuffers",
    "2.2 useOfflineIpuTarget",
)
def test_options_that_are_unset_do_not_exist(setter, args, attribute, after):
    opts = poptorch.Options()
    assert not opts.exists(attribute)
    with pytest.raises(AttributeError, match=attribute):
        getattr(opts, attribute)
    assert getattr(opts, attribute, None) is None
    assert getattr(opts, setter)(*args) is opts
    assert opts.exists(attribute) and getattr(opts, attribute) == after


@pytest.mark.spec("2.1 fluent", "2.3 gradientAccumulation")
def test_setters_of_a_part_return_the_part():
    opts = poptorch.Options()
    assert opts.Training.gradientAccumulation(4) is opts.Training
    assert opts.Precision.enableStochasticRounding(True) is opts.Precision
    assert opts.TensorLocations.numIOTiles(32) is opts.TensorLocations
    assert opts.Distributed.disable() is opts.Distributed
    assert opts.Jit.traceModel(False) is opts.Jit
    assert opts._Popart.set("enableOutlining", True) is opts._Popart
    assert opts.Popart is opts._Popart
    assert isinstance(opts.Training, poptorch.options._TrainingOptions)


@pytest.mark.spec(
    "2.1 assignment", "2.1 type strict", "2.1 unknown attribute", "2.2 removed members"
)
def test_direct_assignment_is_strict():
    opts = poptorch.Options()
    opts.replication_factor = 4
    opts.output_mode = poptorch.OutputMode.All
    opts.Training.gradient_accumulation = 3
    assert (opts.replication_factor, opts.Training.gradient_accumulation) == (4, 3)
    assert opts.output_mode is poptorch.OutputMode.All
    opts.set(device_iterations=5, log_dir="here")
    assert opts.device_iterations == 5 and opts("log_dir") == "here"
    for name, value in [
        ("replication_factor", "4"),
        ("replication_factor", 4.0),
        ("device_iterations", None),
        ("broadcast_buffers", 0),
        ("log_dir", 3),
        ("output_mode", 2),
        ("output_mode", poptorch.ConnectionType.Never),
        ("anchored_tensors", []),
    ]:
        with pytest.raises(AssertionError, match=name):
            setattr(opts, name, value)
    with pytest.raises(AssertionError):
        opts.Training.gradient_accumulation = "many"
    for name in ("replicationFactor", "replications", "anchorMode"):
        with pytest.raises((AssertionError, AttributeError), match=name):
            setattr(opts, name, 4)
    with pytest.raises(AttributeError):
        opts.replications
    with pytest.raises(AttributeError):
        opts._not_there


@pytest.mark.spec("2.2 deviceIterations", "2.3 gradientAccumulation")
def test_counts_must_be_at_least_one():
    opts = poptorch.Options()
    for setter in (
        opts.deviceIterations,
        opts.replicationFactor,
        opts.Training.gradientAccumulation,
    ):
        with pytest.raises(ValueError, match="at least 1, got 0"):
            setter(0)
        with pytest.raises(AssertionError, match="must be an int, not a str"):
            setter("2")


@pytest.mark.spec("2.2 outputMode", "2.2 defaultOutputMode")
def test_output_modes():
    opts = poptorch.Options()
    assert opts.defaultOutputMode()
    for period in (None, 0):
        with pytest.raises(AssertionError, match="EveryN"):
            opts.outputMode(poptorch.OutputMode.EveryN, period)
    with pytest.raises(AssertionError, match="OutputMode"):
        opts.outputMode(2)
    opts.outputMode(poptorch.OutputMode.All, 5)
    assert opts.output_return_period == 1 and not opts.defaultOutputMode()
    opts.outputMode(poptorch.OutputMode.EveryN, output_return_period=5)
    assert opts.output_return_period == 5
    opts.outputMode(poptorch.OutputMode.Default)
    assert opts.defaultOutputMode()


@pytest.mark.spec("2.2 inputReplicaGrouping")
def test_groups_of_replicas():
    opts = poptorch.Options()
    with pytest.raises(ValueError, match="replicationFactor first"):
        opts.inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    opts.replicationFactor(4)
    with pytest.raises(ValueError, match="All"):
        opts.inputReplicaGrouping(4, poptorch.CommGroupType.All)
    for size in (0, 3, 8):
        with pytest.raises(ValueError, match="factor"):
            opts.inputReplicaGrouping(size, poptorch.CommGroupType.Orthogonal)
    assert opts.inputReplicaGrouping(2, poptorch.CommGroupType.Orthogonal) is opts
    assert opts.input_group_size == 2
    opts.inputReplicaGrouping(4, poptorch.CommGroupType.NoGrouping)
    assert opts.input_group_size == 1


@pytest.mark.spec("2.2 setAvailableMemoryProportion")
def test_memory_proportions_are_by_ipu():
    opts = poptorch.Options()
    for wrong in ({"0": 0.6}, {"IPU": 0.6}, {"IPUx": 0.6}, {0: 0.6}):
        with pytest.raises(AssertionError, match="IPU"):
            opts.setAvailableMemoryProportion(wrong)
    with pytest.raises(AssertionError, match="dict"):
        opts.setAvailableMemoryProportion(0.6)


@pytest.mark.spec("2.2 useOfflineIpuTarget", "2.2 connectionType")
def test_offline_targets():
    opts = poptorch.Options().useOfflineIpuTarget(21)
    assert opts.ipu_version == 21
    assert opts.connection_type == poptorch.ConnectionType.Never
    with pytest.raises(ValueError, match="1, 2 or 21, got 3"):
        poptorch.Options().useOfflineIpuTarget(3)
    with pytest.raises(AssertionError):
        poptorch.Options().connectionType("never")
    for contradiction in ("useIpuModel", "useIpuId"):
        opts = poptorch.Options().useOfflineIpuTarget()
        getattr(opts, contradiction)(True if contradiction == "useIpuModel" else 0)
        model = poptorch.inferenceModel(torch.nn.Linear(2, 2), opts)
        with pytest.raises(poptorch.Error, match="offline target"):
            model.compile(torch.zeros(1, 2))


@pytest.mark.spec("2.2 randomSeed")
def test_random_seed_seeds_torch_at_once_and_never_again(monkeypatch):
    opts = poptorch.Options().randomSeed(7)
    drawn = torch.rand(4)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(4))
    state = torch.get_rng_state()
    copies = [opts.clone(), copy.deepcopy(opts), pickle.loads(pickle.dumps(opts))]
    assert [made.random_seed for made in copies] == [7, 7, 7]
    assert torch.equal(state, torch.get_rng_state())
    with pytest.raises(AssertionError):
        poptorch.Options().randomSeed("7")
    # Not even where the environment has a seed for new options.
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"randomSeed": 3, "useIpuId": 2}')
    for made in (pickle.loads(pickle.dumps(opts)), opts.clone(), copy.deepcopy(opts.Training)):
        assert not made.exists("ipu_id")
    assert torch.equal(state, torch.get_rng_state())
    assert poptorch.Options().random_seed == 3
    assert not torch.equal(state, torch.get_rng_state())


@pytest.mark.spec("2.2 anchorTensor")
def test_anchors_return_nothing_and_ignore_freezing():
    opts = poptorch.Options()
    assert opts.anchorTensor("grad", "Gradient___fc.bias") is None
    opts._freeze()
    opts.anchorTensor("w", "fc.weight", poptorch.OutputMode.EveryN, 2)
    opts.anchorTensor("b", "fc.bias", poptorch.OutputMode.Final, 2)
    assert opts.anchored_tensors == {
        "grad": ["Gradient___fc.bias", True, None, 1],
        "w": ["fc.weight", False, poptorch.OutputMode.EveryN, 2],
        "b": ["fc.bias", False, poptorch.OutputMode.Final, 1],
    }


@pytest.mark.spec(
    "2.2 enableSyntheticData",
    "2.2 logCycleCount",
    "2.2 enableStableNorm",
    "2.2 enableProfiling",
    "2.4 enableFloatingPointExceptions",
    "2.4 enableStochasticRounding",
    "2.4 setPartialsType",
    "2.3 setAutomaticLossScaling",
    "2.3 setConvolutionDithering",
    "2.6 _Popart.options",
)
def test_setters_that_are_settings_of_popart(monkeypatch):
    monkeypatch.delenv("POPTORCH_CACHE_DIR", raising=False)
    opts = poptorch.Options()
    settings = {"instrumentWithHardwareCycleCounter": False, "rearrangeAnchorsOnHost": False}
    assert opts._Popart.options == settings
    opts.enableSyntheticData(1).logCycleCount(True).enableStableNorm(True)
    opts.enableExecutableCaching("cache").enableProfiling("reports")
    opts.Precision.enableFloatingPointExceptions(True).enableStochasticRounding(True)
    opts.Precision.setPartialsType(torch.half)
    opts.Training.setAutomaticLossScaling(True)
    assert opts._Popart.options == {
        "instrumentWithHardwareCycleCounter": True,
        "rearrangeAnchorsOnHost": False,
        "syntheticDataMode": 2,
        "enableStableNorm": True,
        "cachePath": "cache",
        "enableEngineCaching": True,
        "engineOptions": {
            "debug.allowOutOfMemory": "true",
            "autoReport.directory": "reports",
            "autoReport.all": "true",
        },
        "enableFloatingPointChecks": True,
        "enableStochasticRounding": True,
        "partialsTypeMatMuls": "half",
        "convolutionOptions": {"partialsType": "half"},
        "automaticLossScalingSettings.enabled": True,
    }
    # Options of convolutions are replaced, not merged.
    opts.Training.setConvolutionDithering(True)
    assert opts._Popart.options["convolutionOptions"] == {"enableConvDithering": True}
    opts.Precision.setPartialsType(torch.float32)
    assert opts._Popart.options["convolutionOptions"] == {"partialsType": "float"}
    opts.enableExecutableCaching(None).enableSyntheticData(False)
    assert opts._Popart.options["enableEngineCaching"] is False
    assert opts._Popart.options["syntheticDataMode"] == 0


@pytest.mark.spec("2.4 enableFloatingPointExceptions", "2.4 setPartialsType")
def test_precision_refuses_other_types():
    opts = poptorch.Options()
    with pytest.raises(AssertionError, match="bool"):
        opts.Precision.enableFloatingPointExceptions(1)
    for wrong in (torch.float64, torch.int32, "half"):
        with pytest.raises(ValueError, match="torch.float or torch.half"):
            opts.Precision.setPartialsType(wrong)


@pytest.mark.spec("2.4 halfFloatCasting", "2.4 runningStatisticsAlwaysFloat", "2.4 traceModel")
def test_what_is_gone_warns_and_does_nothing(capfd):
    opts = poptorch.Options()
    before = repr(opts)
    opts.Precision.halfFloatCasting(poptorch.HalfFloatCastingBehavior.HalfUpcastToFloat)
    assert "halfFloatCasting is deprecated" in capfd.readouterr().err
    opts.Precision.runningStatisticsAlwaysFloat(True)
    assert "runningStatisticsAlwaysFloat is deprecated" in capfd.readouterr().err
    opts.Jit.traceModel(False)
    assert "traceModel is deprecated" in capfd.readouterr().err
    assert repr(opts) == before
    with pytest.raises(ValueError, match="bool"):
        opts.Precision.runningStatisticsAlwaysFloat(1)
    with pytest.raises(ValueError, match="traceModel"):
        opts.Jit.traceModel(True)


@pytest.mark.spec("2.2 enableProfiling")
def test_profiling_warns_where_the_environment_wins(monkeypatch, capfd):
    poptorch.Options().enableProfiling()
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.all":"true"}')
    opts = poptorch.Options().enableProfiling()
    assert "POPLAR_ENGINE_OPTIONS" in capfd.readouterr().err
    assert opts._Popart.options["engineOptions"]["autoReport.directory"] == "."


@pytest.mark.spec("2.3 accumulationAndReplicationReductionType")
def test_reduction_type_is_mean_or_sum():
    training = poptorch.Options().Training
    assert training.accumulation_and_replication_reduction_type is poptorch.ReductionType.Mean
    training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    assert training.accumulation_and_replication_reduction_type is poptorch.ReductionType.Sum
    for wrong in (poptorch.ReductionType.NoReduction, "sum", 1):
        with pytest.raises(ValueError, match="ReductionType"):
            training.accumulationAndReplicationReductionType(wrong)


@pytest.mark.spec("2.3 setMeanAccumulationAndReplicationReductionStrategy")
def test_mean_strategy(capfd):
    training = poptorch.Options().Training
    strategy = "meanAccumulationAndReplicationReductionStrategy"
    assert getattr(training, strategy) == poptorch.MeanReductionStrategy.Post
    training.setMeanAccumulationAndReplicationReductionStrategy(
        poptorch.MeanReductionStrategy.Running
    )
    assert getattr(training, strategy) == poptorch.MeanReductionStrategy.Running
    with pytest.raises(AssertionError):
        training.setMeanAccumulationAndReplicationReductionStrategy(0)
    training.setMeanAccumulationAndReplicationReductionStrategy(
        poptorch.MeanReductionStrategy.PostAndLoss
    )
    assert "deprecated" in capfd.readouterr().err


def trained_weight(reduction, accumulation, lr):
    """The weight after one update over `accumulation` micro-batches, by us and by PyTorch."""
    torch.manual_seed(1)
    model = LinearWithLoss()
    reference = copy.deepcopy(model)
    x, y = torch.randn(accumulation, 4), torch.randn(accumulation, 2)
    opts = poptorch.Options()
    opts.Training.gradientAccumulation(accumulation)
    opts.Training.accumulationAndReplicationReductionType(reduction)
    training = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=lr))
    training(x, y)
    for i in range(accumulation):
        _, loss = reference(x[i : i + 1], y[i : i + 1])
        loss.backward()
    parameter = next(reference.parameters())
    share = accumulation if reduction == poptorch.ReductionType.Mean else 1
    with torch.no_grad():
        parameter -= lr * parameter.grad / share
    return next(model.parameters()).detach(), parameter.detach()


@pytest.mark.parametrize("reduction", [poptorch.ReductionType.Mean, poptorch.ReductionType.Sum])
@pytest.mark.spec("2.3 accumulationAndReplicationReductionType")
def test_gradients_of_micro_batches_are_averaged_or_added(reduction):
    ours, reference = trained_weight(reduction, accumulation=4, lr=0.05)
    torch.testing.assert_close(ours, reference)


@pytest.mark.spec("2.3 setMeanAccumulationAndReplicationReductionStrategy")
def test_a_running_mean_does_not_overflow():
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(0.0)

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = model

        def forward(self, x):
            return poptorch.identity_loss(self.fc(x), "sum")

    results = {}
    for strategy in (poptorch.MeanReductionStrategy.Post, poptorch.MeanReductionStrategy.Running):
        model.weight.data.fill_(0.0)
        opts = poptorch.Options()
        opts.Training.gradientAccumulation(4)
        opts.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
        wrapped = Scaled()
        training = poptorch.trainingModel(wrapped, opts, torch.optim.SGD([model.weight], lr=1.0))
        training(torch.full((4, 1), 2e38))
        results[strategy.name] = model.weight.item()
        training.destroy()
    assert results["Post"] == float("-inf")
    assert results["Running"] == pytest.approx(-2e38)


class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())

    def forward(self, x):
        return self.layer1(x)


def graph_of(opts):
    model = poptorch.inferenceModel(Named(), opts.showCompilationProgressBar(False))
    model.compile(torch.zeros(1, 4))
    return model._core.graph_text()


@pytest.mark.spec("2.2 modelName")
def test_the_model_has_its_name():
    assert '"inference"' in graph_of(poptorch.Options())
    assert '"tommy flowers"' in graph_of(poptorch.Options().modelName("tommy flowers"))


@pytest.mark.spec("2.2 disableModuleNamescope")
def test_operators_are_named_after_their_module_unless_told_not_to():
    assert 'in "layer1.0"' in graph_of(poptorch.Options())
    assert 'layer1.0"' not in graph_of(poptorch.Options().disableModuleNamescope())


@pytest.mark.spec("2.2 sourceLocationExcludes", "2.2 appendToLocationExcludes")
def test_excluded_files_are_not_named():
    assert "options_test.py" in graph_of(poptorch.Options())
    hidden = graph_of(poptorch.Options().appendToLocationExcludes("options_test"))
    assert "options_test.py" not in hidden
    hidden = graph_of(poptorch.Options().sourceLocationExcludes(["tests/python"]))
    assert "options_test.py" not in hidden


@pytest.mark.spec("2.2 useIpuId")
def test_a_device_must_be_there_and_large_enough(capfd, monkeypatch):
    monkeypatch.delenv("TESSERA_NUM_IPUS", raising=False)
    graph_of(poptorch.Options().useIpuId(15))
    assert capfd.readouterr().err == ""
    graph_of(poptorch.Options().useIpuId(16))  # the first pair
    assert "has 2 IPUs, but the model needs only 1" in capfd.readouterr().err
    graph_of(poptorch.Options().useIpuId(30))
    assert "has 16 IPUs" in capfd.readouterr().err
    with pytest.raises(poptorch.Error, match="no device of this number"):
        graph_of(poptorch.Options().useIpuId(31))
    with pytest.raises(ValueError, match="negative"):
        poptorch.Options().useIpuId(-1)
    with pytest.raises(AssertionError):
        poptorch.Options().useIpuId("0")


@pytest.mark.spec("2.5 numIOTiles")
def test_io_tiles():
    locations = poptorch.Options().TensorLocations
    message = "numIOTiles must be an even number between 32 and 192."
    for wrong in (10, 33, 193, 194):
        with pytest.raises(AssertionError, match=message):
            locations.numIOTiles(wrong)
    with pytest.raises(AssertionError):
        locations.numIOTiles("32")
    for right in (32, 100, 192):
        assert locations.numIOTiles(right).numIOTiles is not None
    assert poptorch.Options().TensorLocations.toDict() == {}


@pytest.mark.spec(
    "2.5 setActivationLocation",
    "2.5 setWeightLocation",
    "2.5 setOptimizerLocation",
    "2.5 setAccumulatorLocation",
    "2.5 TensorLocationSettings",
)
def test_tensor_locations():
    settings = (
        poptorch.TensorLocationSettings()
        .useOnChipStorage(False)
        .useReplicatedTensorSharding()
        .useIOTilesToLoad()
        .useIOTilesToStore(False)
        .minElementsForOffChip(4)
        .minElementsForReplicatedTensorSharding(8)
    )
    expected = {
        "onChip": 0,
        "useReplicatedTensorSharding": 1,
        "useIOTilesToLoad": 1,
        "useIOTilesToStore": 0,
        "minElementsForOffChip": 4,
        "minElementsForReplicatedTensorSharding": 8,
    }
    assert settings.toDict() == expected
    opts = poptorch.Options()
    for kind in ("Activation", "Weight", "Optimizer", "Accumulator"):
        setter = getattr(opts.TensorLocations, f"set{kind}Location")
        assert setter(settings) is opts.TensorLocations
        assert getattr(opts.TensorLocations, f"location_{kind.lower()}") == expected
        with pytest.raises(AssertionError, match="TensorLocationSettings"):
            setter({"onChip": True})
    settings.useOnChipStorage(None)
    assert not settings.exists("onChip")
    assert opts.TensorLocations.location_weight["onChip"] == 0
    assert pickle.loads(pickle.dumps(settings)).toDict() == settings.toDict()
    with pytest.raises(AssertionError):
        settings.useIOTilesToLoad(1)
    with pytest.raises(AssertionError):
        settings.minElementsForOffChip("4")


@pytest.mark.spec(
    "2.6 configureProcessId",
    "2.6 setEnvVarNames",
    "2.6 disable",
    "2.6 processId",
    "2.6 numProcesses",
    "7 OMPI_COMM_WORLD",
)
def test_distributed(monkeypatch):
    opts = poptorch.Options()
    assert (opts.Distributed.processId, opts.Distributed.numProcesses) == (0, 1)
    opts.Distributed.configureProcessId(5, 15)
    assert opts.Distributed.distributed_process_id == opts.Distributed.processId == 5
    assert opts.Distributed.num_distributed_processes == opts.Distributed.numProcesses == 15
    with pytest.raises(ValueError, match="counted from 0"):
        opts.Distributed.configureProcessId(4, 4)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "8")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    started = poptorch.Options()
    assert (started.Distributed.processId, started.Distributed.numProcesses) == (3, 8)
    started.Distributed.disable()
    assert (started.Distributed.processId, started.Distributed.numProcesses) == (0, 1)
    monkeypatch.setenv("WORLD", "4")
    monkeypatch.setenv("ME", "1")
    started.Distributed.setEnvVarNames("WORLD", "ME")
    assert (started.Distributed.processId, started.Distributed.numProcesses) == (1, 4)
    monkeypatch.setenv("ME", "one")
    with pytest.raises(ValueError, match="ME must be a whole number"):
        started.Distributed.setEnvVarNames("WORLD", "ME")


def test_the_class_of_a_part_can_be_changed():
    class Guarded(poptorch.options._DistributedOptions):
        def disable(self):
            raise RuntimeError("not here")

    opts = poptorch.Options()
    opts.Distributed.__class__ = Guarded
    for made in (opts, opts.clone()):
        with pytest.raises(RuntimeError):
            made.Distributed.disable()


def test_options_can_be_subclassed():
    class Mine(poptorch.Options):
        def __init__(self, replicas):
            self._ready = False
            super().__init__()
            self._ready = True
            super().replicationFactor(replicas)

        def replicationFactor(self, replication_factor):
            raise RuntimeError("Cannot call `replicationFactor`")

    opts = Mine(1)
    with pytest.raises(RuntimeError):
        opts.replicationFactor(2)
    copied = opts.clone()
    assert type(copied) is Mine and copied._ready and copied.replication_factor == 1
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), opts)
    assert model(torch.zeros(1, 2)).shape == (1, 2)
    assert isinstance(model.options, Mine)


def all_setters(opts):
    return [
        lambda: opts.deviceIterations(2),
        lambda: opts.randomSeed(42),
        lambda: opts.outputMode(poptorch.OutputMode.All),
        lambda: opts.setExecutionStrategy(poptorch.ShardedExecution()),
        lambda: opts.enableSyntheticData(True),
        lambda: opts.enableProfiling(),
        lambda: opts.disableModuleNamescope(),
        lambda: opts.set(random_seed=42),
        lambda: setattr(opts, "replication_factor", 2),
        lambda: setattr(opts, "_mine", 2),
        lambda: opts.Training.gradientAccumulation(2),
        lambda: opts.Training.setAutomaticLossScaling(True),
        lambda: opts.Precision.setPartialsType(torch.half),
        lambda: opts.Precision.runningStatisticsAlwaysFloat(True),
        lambda: opts.TensorLocations.setWeightLocation(poptorch.TensorLocationSettings()),
        lambda: opts.Distributed.configureProcessId(0, 2),
        lambda: opts.Jit.traceModel(False),
        lambda: opts._Popart.set("groupNormStridedChannelGrouping", True),
        lambda: opts._Popart.setPatterns({}),
        lambda: opts.from_json('{"deviceIterations": 2}'),
        lambda: opts.checkIsFrozen(),
    ]


@pytest.mark.spec("2.1 freezing", "2.1 clone")
def test_options_are_frozen_by_models_and_loaders():
    dataset = torch.utils.data.TensorDataset(torch.zeros(4, 2))
    for use in (
        lambda opts: poptorch.inferenceModel(torch.nn.Linear(2, 2), opts),
        lambda opts: poptorch.trainingModel(LinearWithLoss(), opts),
        lambda opts: poptorch.DataLoader(opts, dataset),
    ):
        opts = poptorch.Options()
        before = repr(opts)
        user = use(opts)
        for frozen in (opts, user.options, pickle.loads(pickle.dumps(opts))):
            for setter in all_setters(frozen):
                with pytest.raises(AttributeError, match="Can't modify frozen Options"):
                    setter()
        assert repr(opts) == before
        for made in (opts.clone(), copy.deepcopy(opts), copy.copy(opts), user.options.clone()):
            made.deviceIterations(5)
            made.Training.gradientAccumulation(4)
            made._Popart.set("autoRecomputation", 3)
            made.Precision.setPartialsType(torch.float16)
        assert opts.device_iterations == 1


@pytest.mark.spec("2.1 clone", "2.1 freezing")
def test_executors_have_options_of_their_own():
    model = LinearWithLoss()
    opts = poptorch.Options()
    training = poptorch.trainingModel(model, opts)
    inference = poptorch.inferenceModel(model, opts)
    assert opts.defaultOutputMode()
    assert training.options is training.options and training.options is not opts
    assert training.options.output_mode == poptorch.OutputMode.Final
    assert inference.options.output_mode == poptorch.OutputMode.All
    with pytest.raises(poptorch.Error, match="poptorch.Options"):
        poptorch.inferenceModel(model, {"deviceIterations": 2})


def configured():
    opts = poptorch.Options().deviceIterations(5).modelName("m").maxRepeatLogs(None)
    opts.Distributed.configureProcessId(5, 15)
    opts.anchorTensor("t1", "tensor1", poptorch.OutputMode.EveryN, 2)
    opts._Popart.set("autoRecomputation", 3).set("dummyKey", 5).set("dotChecks", {"a"})
    opts.Training.gradientAccumulation(4)
    opts.TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage())
    opts.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("A", "B").ipu(0), "C"))
    return opts


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda opts: opts.clone(), lambda opts: pickle.loads(pickle.dumps(opts))],
    ids=["deepcopy", "clone", "pickle"],
)
@pytest.mark.spec("2.1 clone", "2.1 deepcopy", "2.1 pickle", "2.1 repr")
def test_copies_have_all_values_and_share_none(copied):
    opts = configured()
    made = copied(opts)
    assert repr(made) == repr(opts)
    opts.deviceIterations(4)
    opts.anchorTensor("t2", "tensor2", poptorch.OutputMode.Final)
    opts._Popart.set("autoRecomputation", 2)
    opts.Distributed.configureProcessId(2, 15)
    opts.TensorLocations.setWeightLocation(poptorch.TensorLocationSettings())
    opts._execution_strategy.stage("C").ipu(3)
    assert repr(made) == repr(configured())


@pytest.mark.spec("2.1 repr")
def test_repr_lists_everything():
    text = str(configured())
    assert text.startswith("Options(")
    for part in (
        "replication_factor=1",
        "device_iterations=5",
        "log_dir='.'",
        "max_repeat_logs=None",
        "Training=_TrainingOptions(gradient_accumulation=4",
        "Precision=_PrecisionOptions(",
        "Distributed=_DistributedOptions(",
        "distributed_process_id=5",
        "TensorLocations=_TensorLocationOptions(location_weight={'onChip': 1})",
        "_Popart=_PopartOptions(",
        "autoRecomputation=3",
        "PipelinedExecution(Stage('A', 'B').ipu(0), Stage('C'))",
    ):
        assert part in text
    assert f"{id(text):x}" not in text


@pytest.mark.spec("2.1 toDict")
def test_to_dict_needs_an_output_mode_and_has_everything():
    opts = configured()
    with pytest.raises(AssertionError, match="output mode"):
        opts.toDict()
    opts.outputMode(poptorch.OutputMode.All)
    everything = opts.toDict()
    assert everything["device_iterations"] == 5
    assert everything["gradient_accumulation"] == 4
    assert everything["autoRecomputation"] == 3
    assert everything["num_distributed_processes"] == 15
    assert everything["location_weight"] == {"onChip": 1}
    assert everything["execution_mode"] == 0


@pytest.mark.spec("2.6 _Popart.set", "2.6 _Popart.set unknown key", "2.6 _Popart.set wrong kind")
def test_popart_settings_are_checked_when_a_model_is_compiled():
    def compiled(key, value):
        opts = poptorch.Options().showCompilationProgressBar(False)
        opts._Popart.set(key, value)
        model = poptorch.inferenceModel(torch.nn.Linear(2, 2), opts)
        model.compile(torch.zeros(1, 2))

    for key, value in [
        ("hardwareInstrumentations", {0, 1}),
        ("dotChecks", ["FINAL", "ALL"]),
        ("engineOptions", {"debug.allowOutOfMemory": "true"}),
        ("customCodelets", []),
        ("autoRecomputation", 1),
        ("enableOutlining", True),
        ("outlineThreshold", 10.0),
        ("timeLimitScheduler", 10),
        ("cachePath", "somewhere"),
        ("batchSerializationSettings.factor", 1),
        ("accumulateOuterFragmentSettings.excludedVirtualGraphs", ["0", "1"]),
    ]:
        compiled(key, value)
    for key, value, message in [
        ("enableOutLining", True, "Unknown bool option enableOutLining"),
        ("autoRecompute", 1, "Unknown int option autoRecompute"),
        ("enableOutlining", 1, "Unknown int option enableOutlining"),
        ("autoRecomputation", "Standard", "Unknown str option autoRecomputation"),
        ("firstDotOp", True, "Unknown bool option firstDotOp"),
        ("engineOptions", ["a"], "Unknown list option engineOptions"),
        ("dotChecks", {"a": 1}, "Unknown dict option dotChecks"),
        ("dotChecks", torch.empty(1), "Unknown value type .*Tensor.* for option dotChecks"),
    ]:
        with pytest.raises(poptorch.Error, match=message):
            compiled(key, value)


@pytest.mark.spec("2.6 _Popart.set")
def test_every_kind_of_setting_has_its_table():
    keys = dict(poptorch.poptorch_core.popart_option_keys())
    assert len(keys) > 100
    assert keys["enableStochasticRounding"] == "bool"
    assert keys["automaticLossScalingSettings.binEdgeLocation"] == "float"
    assert keys["replicatedCollectivesSettings.mergeAllReduceCollectives"] == "bool"


@pytest.mark.spec("2.6 _Popart.set unknown key", "2.1 toDict")
def test_the_dictionary_of_all_options_can_be_checked():
    opts = configured().outputMode(poptorch.OutputMode.All).enableProfiling()
    with pytest.raises(poptorch.Error, match="Unknown int option dummyKey"):
        poptorch.poptorch_core._validateOptions(opts.toDict())
    opts = poptorch.Options().outputMode(poptorch.OutputMode.All)
    poptorch.poptorch_core._validateOptions(opts.toDict())
    opts._Popart.set("dotChecks", torch.empty(1))
    for made in (opts, opts.clone(), pickle.loads(pickle.dumps(opts))):
        with pytest.raises(poptorch.Error, match="Unknown value type .*Tensor.* for option"):
            poptorch.poptorch_core._validateOptions(made.toDict())


@pytest.mark.spec("2.6 _Popart.setPatterns", "2.6 _Popart.setEngineOptions")
def test_patterns_and_engine_options():
    opts = poptorch.Options()
    assert opts._Popart.setPatterns({"PadSum": True}, 0) is opts._Popart
    assert opts._Popart.options["patterns"] == {"PadSum": True}
    assert opts._Popart.options["patterns_level"] == 0
    opts._Popart.setPatterns({"TiedGather": False})
    assert opts._Popart.options["patterns_level"] == 2
    with pytest.raises(AssertionError):
        opts._Popart.setPatterns({}, "2")
    with pytest.raises(AssertionError):
        opts._Popart.setPatterns(["PadSum"])
    with pytest.raises(AssertionError, match="level"):
        opts._Popart.setPatterns({}, 4)
    opts._Popart.setEngineOptions({"a": "b"})
    assert opts._Popart.options["engineOptions"] == {"a": "b"}
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), opts)
    model.compile(torch.zeros(1, 2))


@pytest.mark.spec("2.6 popart enums")
def test_the_module_popart_names_the_numbers():
    import popart

    opts = poptorch.Options()
    opts._Popart.set("autoRecomputation", int(popart.RecomputationType.Standard))
    opts._Popart.set("subgraphCopyingStrategy", popart.SubgraphCopyingStrategy.JustInTime)
    opts._Popart.set(
        "accumulateOuterFragmentSettings.schedule",
        int(popart.AccumulateOuterFragmentSchedule.OverlapMemoryOptimized),
    )
    opts._Popart.set("virtualGraphMode", popart.VirtualGraphMode.ExecutionPhases)
    opts._Popart.set("syntheticDataMode", popart.SyntheticDataMode.RandomUniform.value)
    opts._Popart.set("mergeVarUpdate", popart.MergeVarUpdateType.AutoTight)
    opts.outputMode(poptorch.OutputMode.All)
    values = opts.toDict()
    assert [
        values["autoRecomputation"],
        values["subgraphCopyingStrategy"],
        values["accumulateOuterFragmentSettings.schedule"],
        values["virtualGraphMode"],
        values["syntheticDataMode"],
        values["mergeVarUpdate"],
    ] == [1, 1, 3, 3, 3, 3]
    assert popart.__version__
    assert popart.RecomputationType.RecomputeAll == 4
    assert popart.CommGroupType.Orthogonal == 2
    assert popart.VariableRetrievalMode.AllReplicas == 2
    assert popart.DeviceConnectionType.Never == 2


ENUMS = {
    "OutputMode": {"Final": 0, "EveryN": 1, "All": 2, "Sum": 3, "Default": 4},
    "ConnectionType": {"Always": 0, "OnDemand": 1, "Never": 2},
    "ReductionType": {"Sum": 0, "Mean": 1, "NoReduction": 2},
    "MeanReductionStrategy": {"Running": 0, "Post": 1, "PostAndLoss": 2},
    "DataLoaderMode": {"Sync": 0, "Async": 1, "AsyncRebatched": 2},
    "SharingStrategy": {"SharedMemory": 0, "FileSystem": 1, "Fork": 2, "ForkServer": 3},
    "SyncPattern": {"Full": 0, "SinglePipeline": 1, "ReplicaAndLadder": 2},
    "AutoStage": {"SameAsIpu": 0, "AutoIncrement": 1},
    "Liveness": {
        "AlwaysLive": 0,
        "OffChipAfterFwd": 1,
        "OffChipAfterFwdNoOverlap": 2,
        "OffChipAfterEachPhase": 3,
    },
    "MultiConvPlanType": {"Parallel": 0, "Serial": 1},
    "CommGroupType": {"All": 0, "Consecutive": 1, "Orthogonal": 2, "NoGrouping": 3},
    "VariableRetrievalMode": {"OnePerGroup": 0, "AllReplicas": 2},
    "HalfFloatCastingBehavior": {"FloatDowncastToHalf": 0, "HalfUpcastToFloat": 1, "Default": 2},
    "MatMulSerializationMode": {
        "InputChannels": "input_channels",
        "ReducingDim": "reducing_dim",
        "OutputChannels": "output_channels",
        "Disabled": "none",
    },
    "OverlapMode": {
        "NoOverlap": "no_overlap",
        "OverlapAccumulationLoop": "overlap_accumulation_loop",
        "OverlapDeviceIterationLoop": "overlap_device_iteration_loop",
    },
}


@pytest.mark.parametrize("name", ENUMS)
@pytest.mark.spec(
    "2.8 OutputMode",
    "2.8 ConnectionType",
    "2.8 ReductionType",
    "2.8 MeanReductionStrategy",
    "2.8 DataLoaderMode",
    "2.8 SharingStrategy",
    "2.8 SyncPattern",
    "2.8 AutoStage",
    "2.8 Liveness",
    "2.8 MultiConvPlanType",
    "2.8 CommGroupType",
    "2.8 VariableRetrievalMode",
    "2.8 HalfFloatCastingBehavior",
    "2.8 MatMulSerializationMode",
    "2.8 OverlapMode",
)
def test_enumerations_have_poptorchs_numbers(name):
    enumeration = getattr(poptorch, name)
    assert enumeration is getattr(poptorch.enums, name)
    assert {member.name: member.value for member in enumeration} == ENUMS[name]


def test_every_setter_is_documented():
    for holder in (
        poptorch.Options,
        poptorch.TensorLocationSettings,
        poptorch.options._TrainingOptions,
        poptorch.options._PrecisionOptions,
        poptorch.options._DistributedOptions,
        poptorch.options._TensorLocationOptions,
        poptorch.options._JitOptions,
        poptorch.options._PopartOptions,
    ):
        for name in dir(holder):
            if not name.startswith("_"):
                assert getattr(holder, name).__doc__, f"{holder.__name__}.{name}"


def test_strategies_of_one_stage_run(capfd):
    for strategy in (
        poptorch.PipelinedExecution(),
        poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
        poptorch.ShardedExecution(),
        poptorch.ShardedExecution("A"),
    ):
        opts = poptorch.Options().setExecutionStrategy(strategy)
        opts.showCompilationProgressBar(False)
        model = poptorch.inferenceModel(torch.nn.Linear(2, 2), opts)
        assert model(torch.ones(1, 2)).shape == (1, 2)
    assert capfd.readouterr().err == ""
    with pytest.raises(AssertionError, match="execution strategy"):
        poptorch.Options().setExecutionStrategy("pipelined")


def test_strategies_check_their_arguments():
    with pytest.raises(AssertionError, match="strings"):
        poptorch.Stage("A", 1)
    with pytest.raises(AssertionError):
        poptorch.Stage("A").ipu("0")
    assert list(poptorch.Stage("A", "B").ipu(1).blocks) == ["A", "B"]
    with pytest.raises(AssertionError, match="more than one stage"):
        poptorch.PipelinedExecution("A", ["B", "A"])
    with pytest.raises(AssertionError):
        poptorch.PipelinedExecution("A", 3)
    pipeline = poptorch.PipelinedExecution("A", ["B", "C"], poptorch.Stage("D"))
    assert pipeline.stage("C") is pipeline.stage("B")
    with pytest.raises(AssertionError, match="Unknown block"):
        pipeline.stage("E")
    phase = poptorch.Phase(poptorch.Stage("A"), poptorch.Stage("B"))
    with pytest.raises(AssertionError, match="2 stages"):
        phase.ipus(0)
    with pytest.raises(AssertionError):
        poptorch.Phase("A", poptorch.Stage("B"))
    assert len(poptorch.Phase("A", "B").stages) == 1
    with pytest.raises(AssertionError, match="at least one"):
        poptorch.SerialPhasedExecution()
    serial = poptorch.SerialPhasedExecution(phase, ["C"], [poptorch.Stage("D")])
    assert serial.phase(0) is phase and serial.useSeparateBackwardPhase() is serial
    assert serial.setTensorsLiveness(poptorch.Liveness.OffChipAfterFwd) is serial
    parallel = poptorch.ParallelPhasedExecution("A", "B")
    assert parallel.sendTensorsOffChipAfterFwd() is parallel


def test_several_stages_say_that_they_run_as_one(capfd):
    opts = poptorch.Options().setExecutionStrategy(poptorch.PipelinedExecution("A", "B"))
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), opts)
    assert model(torch.ones(1, 2)).shape == (1, 2)
    assert "2 stages run one after the other" in capfd.readouterr().err


# --- from text ---


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
