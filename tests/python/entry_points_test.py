"""What programs begin with: making executors, devices, compile hooks, names."""

import copy

import poptorch
import pytest
import torch
import torch.nn as nn
from models import MLP, BatchNormCNN, batch
from wrapped import train


@pytest.mark.spec("1.1 trainingModel", "1.1 trainingModel default optimizer")
def test_without_an_optimizer_it_is_sgd_with_a_rate_of_a_hundredth():
    torch.manual_seed(0)
    model = MLP()
    reference = copy.deepcopy(model)
    poptorch.trainingModel(model)(*batch("MLP"))
    reference(*batch("MLP"))[1].backward()
    torch.optim.SGD(reference.parameters(), lr=0.01).step()
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach(), theirs.detach())


@pytest.mark.spec("1.1 trainingModel already wrapped", "1.4 destroy before compile")
def test_a_module_has_one_training_executor_at_a_time():
    model = MLP()
    first = poptorch.trainingModel(model)
    with pytest.raises(RuntimeError, match="already been wrapped"):
        poptorch.trainingModel(model)
    first.destroy()  # not compiled: nothing happens, the module stays wrapped
    assert type(model).__name__ == "PoptorchMLP"
    with pytest.raises(RuntimeError, match="already been wrapped"):
        poptorch.trainingModel(model)
    first(*batch("MLP"))
    first.destroy()
    second = poptorch.trainingModel(model)
    second(*batch("MLP"))
    del second
    third = poptorch.trainingModel(model)  # the one before is gone
    third(*batch("MLP"))


@pytest.mark.spec("1.1 trainingModel accepts executor", "1.1 inferenceModel accepts executor")
def test_an_executor_may_stand_for_its_module():
    model = MLP()
    training = train(model)
    inference = poptorch.inferenceModel(training)
    x, _ = batch("MLP")
    torch.testing.assert_close(inference(x), copy.deepcopy(model)(x).detach())
    with pytest.raises(RuntimeError, match="already been wrapped"):
        poptorch.trainingModel(inference)
    training.destroy()
    again = poptorch.trainingModel(inference)
    assert again.model is model
    again(*batch("MLP"))


@pytest.mark.spec("1.1 inferenceModel", "1.1 inferenceModel over training module")
def test_any_number_of_inference_executors_over_one_module():
    model = MLP()
    training = train(model)
    x, labels = batch("MLP")
    executors = [poptorch.inferenceModel(model) for _ in range(3)]
    for _ in range(2):
        results = [executor(x) for executor in executors]
        assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
        training(x, labels)
    assert not torch.equal(executors[0](x), results[0])


@pytest.mark.spec("1.1 inferenceModel gradient accumulation")
def test_inference_does_not_accumulate():
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    with pytest.raises(poptorch.Error, match="deviceIterations"):
        poptorch.inferenceModel(MLP(), options)


@pytest.mark.spec("1.1 default output mode")
def test_training_returns_the_last_and_inference_all_of_a_call():
    options = poptorch.Options().deviceIterations(3)
    x, labels = batch("MLP", size=12)
    assert poptorch.trainingModel(MLP(), options)(x, labels)[0].shape == (4, 4)
    assert poptorch.inferenceModel(MLP(), options)(x).shape == (12, 4)


@pytest.mark.spec("1.1 options type")
@pytest.mark.parametrize("options", [{"deviceIterations": 4}, 3, poptorch.Options], ids=str)
def test_options_must_be_options(options):
    for wrap in (poptorch.trainingModel, poptorch.inferenceModel):
        with pytest.raises(poptorch.Error, match="poptorch.Options"):
            wrap(MLP(), options)


@pytest.mark.spec("1.1 isRunningOnIpu")
def test_is_running_on_ipu_only_while_captured():
    seen = []

    class Asks(nn.Module):
        def __init__(self):
            super().__init__()
            seen.append(poptorch.isRunningOnIpu())

        def forward(self, x):
            seen.append(poptorch.isRunningOnIpu())
            return x + 1

    model = Asks()
    model(torch.ones(1))
    executor = poptorch.inferenceModel(model)
    executor(torch.ones(1))
    executor(torch.ones(1))
    assert seen == [False, False, True] and not poptorch.isRunningOnIpu()


@pytest.mark.spec("1.1 ipuHardwareIsAvailable", "1.1 ipuHardwareVersion")
def test_sixteen_virtual_ipus_are_the_hardware(monkeypatch):
    for name in ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL", "TESSERA_NUM_IPUS"):
        monkeypatch.delenv(name, raising=False)
    assert poptorch.ipuHardwareIsAvailable() and poptorch.ipuHardwareIsAvailable(16)
    assert not poptorch.ipuHardwareIsAvailable(num_ipus=17)
    assert poptorch.ipuHardwareVersion() == 2
    monkeypatch.setenv("TESSERA_NUM_IPUS", "64")
    assert poptorch.ipuHardwareIsAvailable(64)
    monkeypatch.setenv("TESSERA_NUM_IPUS", "0")
    assert not poptorch.ipuHardwareIsAvailable()
    with pytest.raises(AssertionError, match="no IPU hardware"):
        poptorch.ipuHardwareVersion()
    monkeypatch.setenv("TESSERA_NUM_IPUS", "many")
    with pytest.raises(ValueError, match="'many'"):
        poptorch.ipuHardwareIsAvailable()


@pytest.mark.spec("1.1 ipuHardwareIsAvailable", "1.1 ipuHardwareVersion")
@pytest.mark.parametrize("variable", ["POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL"])
def test_the_ipu_model_is_no_hardware(monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    assert not poptorch.ipuHardwareIsAvailable()
    with pytest.raises(AssertionError, match="IPU model"):
        poptorch.ipuHardwareVersion()
    monkeypatch.setenv(variable, "0")
    assert poptorch.ipuHardwareIsAvailable()


@pytest.mark.spec("1.1 registerPreCompileHook", "1.1 registerPostCompileHook")
def test_compile_hooks_run_around_every_compilation_in_order():
    seen = []

    class Traces(nn.Module):
        def forward(self, x):
            seen.append("forward")
            return x + 1

    handles = [
        poptorch.registerPreCompileHook(lambda: seen.append("first")),
        poptorch.registerPreCompileHook(lambda: seen.append("second")),
        poptorch.registerPostCompileHook(lambda: seen.append("after")),
    ]
    assert isinstance(handles[0], torch.utils.hooks.RemovableHandle)
    executor = poptorch.inferenceModel(Traces())
    executor(torch.ones(2))
    executor(torch.ones(2))
    assert seen == ["first", "second", "forward", "after"]
    handles[0].remove()
    executor.destroy()
    executor.compile(torch.ones(2))
    assert seen[4:] == ["second", "forward", "after"]
    for handle in handles[1:]:
        handle.remove()
    poptorch.inferenceModel(Traces())(torch.ones(2))
    assert seen[7:] == ["forward"]


@pytest.mark.spec("1.1 registerPreCompileHook", "1.1 registerPostCompileHook")
def test_a_hook_must_be_callable_and_may_fail():
    for register in (poptorch.registerPreCompileHook, poptorch.registerPostCompileHook):
        with pytest.raises(RuntimeError, match="callable"):
            register("no function")

    def fails():
        raise LookupError("of the hook")

    undone = []
    with poptorch.registerPreCompileHook(fails):
        with pytest.raises(LookupError, match="of the hook"):
            poptorch.inferenceModel(MLP())(batch("MLP")[0])
    with poptorch.registerPostCompileHook(lambda: undone.append(True)):
        with pytest.raises(poptorch.Error):
            poptorch.inferenceModel(MLP())(torch.ones(2, 3))  # does not fit
    assert undone == [True]


@pytest.mark.spec("1.1 module_repr", "1.1 print", "1.2 repr")
def test_modules_as_text(capsys):
    class Begin:
        """What annotates a module."""

        def annotation(self):
            return "BeginBlock(user_id=late, ipu_id=1)"

        def __call__(self, module, args):
            pass

    model = BatchNormCNN()
    assert poptorch.module_repr(model) == repr(model)
    nested = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.ModuleList([MLP()])))
    assert poptorch.module_repr(nested) == repr(nested)
    model.conv2.register_forward_pre_hook(Begin())
    text = poptorch.module_repr(model)
    assert "(conv2): BeginBlock(user_id=late, ipu_id=1) Conv2d(8, 16" in text
    assert repr(poptorch.inferenceModel(model)) == text
    poptorch.print(model)
    poptorch.print("anything")
    assert capsys.readouterr().out == text + "\nanything\n"


@pytest.mark.spec("1.1 getIpuTensorId")
def test_tensors_have_a_number_while_captured():
    numbers = []

    class Asks(nn.Module):
        def forward(self, x):
            y = x + 1
            numbers.extend(poptorch.getIpuTensorId(t) for t in (x, y, x.view(-1)[:1]))
            with pytest.raises(poptorch.Error, match="constant"):
                poptorch.getIpuTensorId(torch.ones(1))
            return y

    poptorch.inferenceModel(Asks())(torch.ones(2))
    assert all(isinstance(number, int) for number in numbers) and numbers[0] != numbers[1]
    with pytest.raises(poptorch.Error, match="wrapped model"):
        poptorch.getIpuTensorId(torch.ones(1))


@pytest.mark.spec("1.1 accessAttributes")
def test_attributes_by_their_id():
    from poptorch._tensor_ids import rememberAttributes

    attributes = {"alpha": 0.5, "sizes": [1, 2]}
    assert poptorch.accessAttributes(rememberAttributes(attributes)) is attributes
    assert poptorch.accessAttributes(rememberAttributes(None)) is None
    assert poptorch.accessAttributes('{"alpha": 0.5}') == {"alpha": 0.5}
    for wrong in (3, "alpha", "attr:x", "attr:999"):
        with pytest.raises(ValueError):
            poptorch.accessAttributes(wrong)
