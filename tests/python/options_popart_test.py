"""Options that PopTorch hands on to PopART, and the package popart."""

import poptorch
import pytest
import torch


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
