"""Arguments of a wrong kind or out of range: one sentence each, in the classes of Python."""

import inspect
import re

import numpy as np
import poptorch
import pytest
import torch
import torch.nn as nn

WRONG = {
    "None": None,
    "nan": float("nan"),
    "huge": 2**70,
    "negative": -1,
    "float": 1.5,
    "text": "wrong",
    "not Unicode": "\udcff",
    "bool": True,
    "array": np.zeros(1000),
    "tensor": torch.ones(1000),
    "number in a tensor": torch.tensor(2),
    "list": [1, 2],
    "dict": {"a": 1},
    "object": object(),
    "bytes": b"wrong",
    "enumeration": poptorch.OutputMode.All,
}
GROUPS = ("", "Training", "Precision", "TensorLocations", "Distributed", "Jit", "_Popart")
# What only the inside of an error would say.
INTERNAL = re.compile(
    "incompatible function|pybind|Invoked with|Unable to cast|internal error|std::|0x[0-9a-f]{6}"
    "|has no attribute|not iterable|unhashable|not supported between|ambiguous"
)


def group_named(name):
    options = poptorch.Options()
    return getattr(options, name) if name else options


def setters():
    for name in GROUPS:
        for method in dir(type(group_named(name))):
            if method.startswith("_") or not inspect.ismethod(getattr(group_named(name), method)):
                continue
            parameters = inspect.signature(getattr(group_named(name), method)).parameters
            kinds = {parameter.kind for parameter in parameters.values()}
            if parameters and kinds != {inspect.Parameter.VAR_KEYWORD}:
                yield name, method, len(parameters)


def complaint_of(function, *args):
    """What the call raises, after looking at it; None where it is content."""
    try:
        function(*args)
    except RecursionError:
        raise
    except Exception as error:
        text = str(error)
        allowed = (AssertionError, AttributeError, OSError, TypeError, ValueError, RuntimeError)
        assert isinstance(error, (*allowed, poptorch.Error)), repr(error)
        assert not isinstance(error, UnicodeError), repr(error)
        assert text and "\n" not in text.partition("\nError raised in:")[0], text
        assert len(text) < 400 and not INTERNAL.search(text), text
        return text
    return None


@pytest.mark.spec("2.1 type strict", "7 argument mistakes")
@pytest.mark.parametrize("wrong", WRONG)
def test_setters(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for group, method, count in setters():
        if method == "loadFromFile" and wrong in ("bool", "enumeration"):
            continue  # files that are open already
        for given in range(1, count + 1):
            complaint_of(getattr(group_named(group), method), *[WRONG[wrong]] * given)


@pytest.mark.spec("2.1 type strict", "2.1 assignment")
@pytest.mark.parametrize("wrong", WRONG)
def test_assignments_name_the_option(wrong):
    for group in GROUPS[:-1]:
        for name in group_named(group)._core.names():
            text = complaint_of(setattr, group_named(group), name, WRONG[wrong])
            assert text is None or name in text or method_of(name) in text, text


def method_of(name):
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


COUNTS = {
    "deviceIterations": lambda n: poptorch.Options().deviceIterations(n),
    "replicationFactor": lambda n: poptorch.Options().replicationFactor(n),
    "gradientAccumulation": lambda n: poptorch.Options().Training.gradientAccumulation(n),
    "numIOTiles": lambda n: poptorch.Options().TensorLocations.numIOTiles(n),
    "randomSeed": lambda n: poptorch.Options().randomSeed(n),
    "useIpuId": lambda n: poptorch.Options().useIpuId(n),
    "maxRepeatLogs": lambda n: poptorch.Options().maxRepeatLogs(n),
}


@pytest.mark.spec("2.1 type strict")
@pytest.mark.parametrize("setter", COUNTS)
def test_counts(setter):
    COUNTS[setter](np.int64(64))
    COUNTS[setter](np.uint8(64))
    for wrong in (True, 1.0, float("nan"), "64", torch.tensor(64), np.bool_(True), np.float32(64)):
        with pytest.raises(AssertionError, match="an int"):
            COUNTS[setter](wrong)
    for huge in (2**63, 2**70, -(2**70)):
        with pytest.raises(AssertionError, match="an int beyond 64 bits"):
            COUNTS[setter](huge)
    with pytest.raises((ValueError, AssertionError), match="-1"):
        COUNTS[setter](-1)


@pytest.mark.spec("2.2 randomSeed")
def test_a_wrong_seed_changes_nothing():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    for wrong in (-1, 2**70, 1.5, None):
        with pytest.raises((ValueError, AssertionError), match="random_?[sS]eed"):
            poptorch.Options().randomSeed(wrong)
    assert torch.equal(torch.get_rng_state(), before)


def test_products_of_counts_that_overflow():
    options = poptorch.Options().deviceIterations(2**40)
    options.Training.gradientAccumulation(2**40)
    data = torch.utils.data.TensorDataset(torch.ones(4, 2))
    with pytest.raises(ValueError, match="deviceIterations.*more micro-batches than"):
        poptorch.DataLoader(options, data)
    with pytest.raises(ValueError, match="batch_size.*more samples than"):
        poptorch.DataLoader(poptorch.Options().deviceIterations(2**30), data, batch_size=2**40)


@pytest.mark.spec("2.2 setAvailableMemoryProportion")
def test_proportions():
    poptorch.Options().setAvailableMemoryProportion({"IPU0": np.float32(0.5), "IPU1": 1})
    for wrong in (float("nan"), -0.1, 1.5):
        with pytest.raises(ValueError, match="from 0 to 1"):
            poptorch.Options().setAvailableMemoryProportion({"IPU0": wrong})
    for wrong in ({0: 0.5}, {"IPU0": "half"}, {"IPU0": None}, {None: 0.5}, [0.5]):
        with pytest.raises(AssertionError, match="setAvailableMemoryProportion"):
            poptorch.Options().setAvailableMemoryProportion(wrong)


@pytest.mark.spec("2.2 sourceLocationExcludes")
def test_a_text_is_no_list_of_texts():
    with pytest.raises(AssertionError, match="source_location_excludes must be a list"):
        poptorch.Options().sourceLocationExcludes("site-packages")
    assert poptorch.Options().sourceLocationExcludes(("a", "b")).source_location_excludes == [
        "a",
        "b",
    ]


@pytest.mark.spec("2.6 _Popart.set")
def test_lists_without_end():
    endless = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        poptorch.Options()._Popart.set("hardwareInstrumentations", endless)


@pytest.mark.spec("2.1 from_json")
def test_json():
    for json, words in {
        '{"randomSeed": 18446744073709551615}': "an int beyond 64 bits",
        '{"deviceIterations": true}': "device_iterations must be an int, not a bool",
        '{"_Popart.set": ["x", ' + "[" * 1000 + "]" * 1000 + "]}": "lists in lists",
        "[" + "1," * 1000 + "1]": "must be an object",
    }.items():
        with pytest.raises((AssertionError, ValueError), match=words) as caught:
            poptorch.Options().from_json(json)
        assert len(str(caught.value)) < 300


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return poptorch.identity_loss(self.layer(x), "mean")


FUNCTIONS = {
    "BeginBlock": (
        lambda x: poptorch.BeginBlock(x),
        lambda x: poptorch.BeginBlock(nn.ReLU(), x, x),
    ),
    "Block": (lambda x: poptorch.Block(x), lambda x: poptorch.Block("a", x)),
    "DataLoader": (lambda x: poptorch.DataLoader(x, [torch.ones(1)]),),
    "Attribute": (lambda x: poptorch.Attribute(a=x),),
    "NameScope": (poptorch.NameScope,),
    "Stage": (poptorch.Stage, lambda x: poptorch.Stage("a").ipu(x)),
    "Phase": (poptorch.Phase, lambda x: poptorch.Phase("a").stage(x)),
    "PipelinedExecution": (
        poptorch.PipelinedExecution,
        lambda x: poptorch.PipelinedExecution("a").stage(x),
    ),
    "SerialPhasedExecution": (
        poptorch.SerialPhasedExecution,
        lambda x: poptorch.SerialPhasedExecution("a").phase(x),
        lambda x: poptorch.SerialPhasedExecution("a").setTensorsLiveness(x),
    ),
    "accessAttributes": (poptorch.accessAttributes,),
    "getIpuTensorId": (poptorch.getIpuTensorId,),
    "identity_loss": (
        lambda x: poptorch.identity_loss(torch.ones(2), x),
        lambda x: poptorch.identity_loss(x, "mean") if not isinstance(x, torch.Tensor) else None,
    ),
    "inferenceModel": (poptorch.inferenceModel, lambda x: poptorch.inferenceModel(Model(), x)),
    "ipuHardwareIsAvailable": (poptorch.ipuHardwareIsAvailable,),
    "module_repr": (poptorch.module_repr,),
    "nop": (poptorch.nop,),
    "recomputationCheckpoint": (poptorch.recomputationCheckpoint,),
    "registerCustomArgParser": (lambda x: poptorch.registerCustomArgParser(x, x),),
    "registerPreCompileHook": (poptorch.registerPreCompileHook,),
    "removeBlocks": (poptorch.removeBlocks,),
    "serializedMatMul": (
        lambda x: poptorch.serializedMatMul(torch.ones(2, 2), torch.ones(2, 2), x),
        lambda x: poptorch.serializedMatMul(torch.ones(2, 2), torch.ones(2, 2), "none", x),
    ),
    "setLogLevel": (poptorch.setLogLevel,),
    "set_available_memory": (lambda x: poptorch.set_available_memory(torch.ones(1), x),),
    "trainingModel": (
        poptorch.trainingModel,
        lambda x: poptorch.trainingModel(Model(), x),
        lambda x: poptorch.trainingModel(Model(), None, x),
    ),
}


@pytest.mark.spec("7 argument mistakes")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    for function in FUNCTIONS[name]:
        for wrong in WRONG.values():
            complaint_of(function, wrong)
    poptorch.setLogLevel("WARN")


LOADING = ("batch_size", "num_workers", "mode", "rebatched_worker_size")


@pytest.mark.spec("7 argument mistakes")
@pytest.mark.parametrize("argument", LOADING)
def test_data_loader(argument):
    data = torch.utils.data.TensorDataset(torch.ones(4, 2))
    for name, wrong in WRONG.items():
        if name in ("bool", "enumeration") or (name == "None" and argument == "batch_size"):
            continue
        more = {"mode": poptorch.DataLoaderMode.AsyncRebatched} if "rebatched" in argument else {}
        if name == "None" and more:
            continue
        text = complaint_of(
            lambda: poptorch.DataLoader(
                poptorch.Options().deviceIterations(2), data, **{argument: wrong, **more}
            )
        )
        assert text and argument in text, (name, text)


def test_batches_of_one_and_a_half():
    data = torch.utils.data.TensorDataset(torch.ones(4, 2))
    with pytest.raises(TypeError, match="^batch_size must be an int, not float$"):
        poptorch.DataLoader(poptorch.Options(), data, batch_size=1.5)
    assert poptorch.DataLoader(poptorch.Options(), data, np.int64(2)).combinedBatchSize == 2


@pytest.mark.spec("7 argument mistakes")
def test_methods_of_an_executor():
    executor = poptorch.trainingModel(Model())
    executor(torch.ones(1, 2))
    for wrong in WRONG.values():
        complaint_of(executor.setOptimizer, wrong)
        complaint_of(executor.getAnchoredTensor, wrong)
        complaint_of(setattr, executor, "rng_state", wrong)
        complaint_of(setattr, executor, "rng_state", [wrong])
        complaint_of(executor, wrong)
        complaint_of(executor, torch.ones(1, 2), wrong)
    executor(torch.ones(1, 2))


OPTIMISERS = ("SGD", "Adam", "AdamW", "RMSprop", "LAMB")


@pytest.mark.spec("7 argument mistakes")
@pytest.mark.parametrize("kind", OPTIMISERS)
def test_optimisers(kind):
    cls = getattr(poptorch.optim, kind)
    model = Model()
    own = [n for n in inspect.signature(cls).parameters if n not in ("params", "foreach", "fused")]
    for argument in own:
        for wrong in WRONG.values():

            def make():
                numbers = {"lr": 0.1, argument: wrong}
                poptorch.trainingModel(Model(), None, cls(model.parameters(), **numbers))

            complaint_of(make)
