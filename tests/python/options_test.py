"""Options as programs set and read them."""

import copy
import pickle

import poptorch
import pytest
import torch


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
