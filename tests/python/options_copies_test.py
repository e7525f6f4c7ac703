"""Options as objects: derived classes, freezing, copies, their text."""

import copy
import pickle

import poptorch
import pytest
import torch
from models import LinearWithLoss


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
