"""What wrapping does to a module, and what an executor shows of it."""

import collections
import copy
import io
import os
import pathlib
import pickle
import subprocess
import sys
import weakref

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import MLP, BatchNormCNN, batch

QUIET = poptorch.Options().showCompilationProgressBar(False)


class Direct(nn.Module):
    """Parameters and a buffer of its own, besides those of a sub-module."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer("offset", torch.ones(3))
        self.sub = nn.Linear(3, 3)
        self.flag = "at wrapping"

    def forward(self, x):
        y = self.sub(x) * self.scale + self.offset
        return y, F.mse_loss(y, torch.zeros_like(y))

    def describe(self, prefix):
        return f"{prefix}: {self.flag}"


def train(model, steps=1, **kwargs):
    executor = poptorch.trainingModel(model, QUIET.clone(), **kwargs)
    name = "MLP" if isinstance(model, MLP) else type(model).__name__
    for step in range(steps):
        executor(*(batch(name, seed=step) if name != "PoptorchDirect" else (torch.ones(2, 3),)))
    return executor


# Entry points


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


def run_program(code, **environment):
    """Run a Python program; its result, with output as text."""
    return subprocess.run(
        [sys.executable, "-B", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.spec("1.1 import side effects")
def test_importing_prepares_the_process():
    done = run_program(
        "import os, sys, faulthandler\n"
        "os.environ.pop('RDMAV_FORK_SAFE', None)\n"
        "import poptorch\n"
        "assert os.environ['RDMAV_FORK_SAFE'] == '1' and faulthandler.is_enabled()\n"
        "assert sys.excepthook is not sys.__excepthook__\n"
        "raise LookupError('of the user')\n"
    )
    assert done.returncode == 1
    assert "[critical]" in done.stderr.lower() and "Traceback" in done.stderr
    assert done.stderr.rstrip().endswith("LookupError: of the user")
    kept = run_program(
        "import os, poptorch; print(os.environ['RDMAV_FORK_SAFE'])", RDMAV_FORK_SAFE="0"
    )
    assert kept.stdout == "0\n"
    silent = run_program("import poptorch; raise LookupError('seen')", POPTORCH_LOG_LEVEL="OFF")
    assert silent.stderr.rstrip().endswith("LookupError: seen")  # an error is never lost


@pytest.mark.spec("1.1 import side effects")
def test_sigterm_shows_where_the_program_was():
    done = run_program(
        "import os, signal, poptorch\n"
        "def the_busy_function():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    import time; time.sleep(60)\n"
        "the_busy_function()\n"
    )
    assert done.returncode == -15 and "the_busy_function" in done.stderr


@pytest.mark.spec("1.1 import side effects")
def test_a_program_may_end_with_open_executors():
    done = run_program(
        "import atexit, torch, poptorch\n"
        "net = torch.nn.Linear(2, 2)\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.l = torch.nn.Linear(2, 2)\n"
        "    def forward(self, x):\n"
        "        return poptorch.identity_loss(self.l(x), 'sum')\n"
        "quiet = poptorch.Options().showCompilationProgressBar(False)\n"
        "training = poptorch.trainingModel(Net(), quiet)\n"
        "inference = poptorch.inferenceModel(training, quiet)\n"
        "training(torch.ones(2, 2)); inference(torch.ones(2, 2))\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# What is shared


@pytest.mark.spec("1.2 shallow copy")
def test_flags_of_the_module_itself_are_copied_and_those_of_its_parts_shared():
    class Flags(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Dropout(0.5)
            self.factor = 2

        def forward(self, x):
            return self.part(x) * self.factor + (100 if self.training else 0)

    model = Flags().train()
    executor = poptorch.inferenceModel(model)
    model.eval()
    model.factor = 5
    # The copy kept its own flag and factor; the dropout is the same object and is off.
    assert torch.equal(executor(torch.ones(4)), torch.full((4,), 102.0))
    assert executor.model is not model and executor.model.training and not model.training
    model.part.train()
    assert torch.equal(executor(torch.ones(4)), torch.full((4,), 102.0))  # compiled is compiled


@pytest.mark.spec("1.2 executor.model", "1.4 model")
def test_executor_model():
    model = Direct()
    assert poptorch.inferenceModel(model).model is not model
    assert poptorch.inferenceModel(model).model.sub is model.sub
    assert poptorch.trainingModel(model).model is model


@pytest.mark.spec("1.2 class change", "1.4 destroy")
def test_training_changes_classes_and_destroy_changes_them_back():
    model = Direct()
    parameter, buffer = model.scale, model.offset
    executor = train(model)
    assert type(model).__name__ == "PoptorchDirect" and isinstance(model, Direct)
    assert type(model.sub) is nn.Linear
    assert type(parameter) is not nn.Parameter and isinstance(parameter, nn.Parameter)
    assert type(buffer) is not torch.Tensor and isinstance(buffer, torch.Tensor)
    assert model.scale is parameter and model.sub.weight.is_leaf
    executor.destroy()
    assert type(model) is Direct and type(parameter) is nn.Parameter
    assert type(buffer) is torch.Tensor and not parameter.__dict__
    inference = poptorch.inferenceModel(model)
    assert type(model) is Direct and type(inference.model) is Direct


@pytest.mark.spec("1.2 class change")
def test_a_program_may_unwrap_the_module_itself():
    from poptorch._impl import unwrapIfWrapped

    model = Direct()
    executor = train(model)
    assert unwrapIfWrapped(model) is model
    assert type(model) is Direct and type(model.scale) is nn.Parameter
    assert unwrapIfWrapped(model) is model and executor.isCompiled()


@pytest.mark.spec("1.2 buffer types")
def test_buffers_must_be_plain_tensors():
    class Special(torch.Tensor):
        pass

    model = Direct()
    model.sub.register_buffer("special", torch.ones(2).as_subclass(Special))
    with pytest.raises(poptorch.Error, match="'sub.special'.*Special"):
        poptorch.trainingModel(model)
    assert type(model) is Direct and type(model.scale) is nn.Parameter  # nothing is half done
    poptorch.inferenceModel(model)(torch.ones(2, 3))


@pytest.mark.spec("1.2 class change")
def test_parameters_of_a_derived_class_keep_it():
    class Named(nn.Parameter):
        pass

    model = Direct()
    model.scale = Named(torch.ones(3))
    executor = train(model)
    assert isinstance(model.scale, Named) and type(model.scale) is not Named
    assert type(copy.deepcopy(model).scale) is Named
    executor.destroy()
    assert type(model.scale) is Named


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "torch.save": lambda m: torch.load(_saved(m)),
}


def _saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.spec("1.2 pickle and copy")
@pytest.mark.parametrize("way", COPIES)
def test_copies_of_a_wrapped_module_are_plain(way):
    model = Direct()
    executor = train(model, steps=2)
    copied = COPIES[way](model)
    assert type(copied) is Direct and type(model).__name__ == "PoptorchDirect"
    expected = model.state_dict()
    for name, value in copied.state_dict().items():
        assert torch.equal(value, expected[name]), name
    if way != "copy":  # which shares its weights with the wrapped one
        assert type(copied.scale) is nn.Parameter and type(copied.offset) is torch.Tensor
        assert copied.scale.requires_grad and not copied.scale.__dict__
        executor(torch.ones(2, 3))
        assert not torch.equal(copied.scale, model.scale)
        train(copied)
    weight = pickle.loads(pickle.dumps(model.scale))
    assert type(weight) is nn.Parameter and torch.equal(weight, model.scale)
    assert type(copy.deepcopy(model.offset)) is torch.Tensor


class OwnWays(nn.Module):
    """Pickles itself in its own way."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.cache = lambda: None  # cannot be pickled

    def __getstate__(self):
        return {**self.__dict__, "cache": None}

    def forward(self, x):
        return poptorch.identity_loss(self.fc(x), "mean")


@pytest.mark.spec("1.2 pickle and copy")
def test_a_module_with_its_own_way_of_pickling_keeps_it():
    model = OwnWays()
    executor = poptorch.trainingModel(model, QUIET.clone())
    executor(torch.ones(1, 2))
    loaded = pickle.loads(pickle.dumps(model))
    assert type(loaded) is OwnWays and loaded.cache is None
    assert torch.equal(loaded.fc.weight, model.fc.weight)


@pytest.mark.spec("1.2 pickle and copy")
def test_saved_weights_load_without_us(tmp_path):
    model = MLP()
    train(model, steps=2)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    torch.save(model, tmp_path / "model.pth")
    torch.save(list(model.parameters()), tmp_path / "parameters.pth")
    torch.save({"output": poptorch.inferenceModel(model)(batch("MLP")[0])}, tmp_path / "output.pth")
    folder = pathlib.Path(__file__).parent
    code = (
        "import sys, torch\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "sys.modules['poptorch'] = None  # importing it fails\n"
        "from models import MLP\n"
        f"folder = {str(tmp_path)!r}\n"
        "w, m, p, o = (torch.load(f'{folder}/{n}.pth')\n"
        "              for n in ('weights', 'model', 'parameters', 'output'))\n"
        "assert type(m) is MLP and type(next(m.parameters())) is torch.nn.Parameter\n"
        "assert all(torch.equal(w[k], v) for k, v in m.state_dict().items())\n"
        "assert all(type(t) is torch.nn.Parameter for t in p) and o['output'].shape == (16, 4)\n"
        "MLP().load_state_dict(w)\n"
    )
    done = run_program(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.spec("1.2 wrapped module methods", "1.4 destroy before compile")
def test_the_module_can_free_its_program():
    model = Direct()
    assert not hasattr(model, "destroy")
    executor = poptorch.trainingModel(model, QUIET.clone())
    model.destroy()  # not compiled: nothing happens
    assert type(model).__name__ == "PoptorchDirect"
    assert model.copyWeightsToHostIfNeeded() is False
    executor(torch.ones(2, 3))
    assert model.copyWeightsToHostIfNeeded() is True
    assert model.copyWeightsToHostIfNeeded() is False
    model.destroy()
    assert not executor.isCompiled() and type(model) is Direct
    assert not hasattr(model, "destroy")


@pytest.mark.spec("1.4 destroy", "1.2 class change")
def test_destroy_unwraps_and_a_call_wraps_again():
    model = MLP()
    executor = train(model)
    executor.destroy()
    assert type(model) is MLP and type(model.layers[0].weight) is nn.Parameter
    assert not executor.isCompiled()
    before = copy.deepcopy(model.state_dict())
    x, labels = batch("MLP", size=4)
    assert executor(x, labels)[0].shape == (4, 4)
    assert type(model).__name__ == "PoptorchMLP"
    after = model.state_dict()  # the weights follow, as the first time
    assert all(not torch.equal(before[k], after[k]) for k in before)


@pytest.mark.spec("1.2 shallow copy", "1.3 lazy copy to host")
def test_layers_replaced_between_wrapping_and_compiling_take_part():
    model = Direct()
    executor = poptorch.trainingModel(model, QUIET.clone())
    model.sub = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.sub.weight.fill_(1.0)
    model.scale = nn.Parameter(torch.ones(3))
    executor.setOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    executor(torch.ones(2, 3))
    assert not model.sub.weight.eq(1).any() and not model.scale.eq(1).any()
    executor.destroy()
    assert type(model.sub.weight) is nn.Parameter


@pytest.mark.spec("1.2 class change", "1.3 lazy copy to host")
def test_a_part_and_the_whole_may_be_trained_in_turns():
    class Whole(nn.Module):
        def __init__(self, part):
            super().__init__()
            self.part = part

        def forward(self, x):
            return poptorch.identity_loss(self.part(x)[1] * 2, "mean")

    part = Direct()
    whole = Whole(part)
    of_part = poptorch.trainingModel(part, QUIET.clone())
    of_whole = poptorch.trainingModel(whole, QUIET.clone())
    reference = Direct()
    reference.load_state_dict(part.state_dict())
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.01)
    for factor, executor in [(1, of_part), (2, of_whole), (2, of_whole), (1, of_part)]:
        x = torch.full((2, 3), 0.5)
        executor(x)
        optimizer.zero_grad()
        (reference(x)[1] * factor).backward()
        optimizer.step()
        torch.testing.assert_close(part.scale.detach(), reference.scale.detach())
    of_part.destroy()
    assert type(part) is Direct and type(part.scale) is not nn.Parameter
    of_whole.destroy()
    assert type(part.scale) is nn.Parameter


@pytest.mark.spec("1.2 attribute forwarding")
def test_the_module_is_seen_through_the_executor():
    model = Direct()
    executor = train(model)
    assert executor.sub is model.sub and executor.flag == "at wrapping"
    assert executor.describe("seen") == "seen: at wrapping"
    assert list(executor.state_dict()) == list(model.state_dict())
    assert [n for n, _ in executor.named_parameters()] == ["scale", "sub.weight", "sub.bias"]
    assert executor.offset is model.offset  # buffers are themselves
    assert executor.eval() is model and not model.training
    model.flag = "later"
    assert executor.flag == "later"
    with pytest.raises(AttributeError):
        executor.no_such_thing
    assert not hasattr(executor, "__len__")
    with pytest.raises(TypeError):
        len(poptorch.inferenceModel(nn.Sequential(nn.ReLU())))


@pytest.mark.spec("1.2 attribute assignment")
def test_assignment_stays_on_the_executor():
    model = Direct()
    executor = poptorch.trainingModel(model)
    executor.flag = "mine"
    executor.brand_new = 3
    assert executor.flag == "mine" and executor.brand_new == 3
    assert model.flag == "at wrapping" and not hasattr(model, "brand_new")


@pytest.mark.spec("1.2 parameter proxies")
def test_parameters_of_the_module_itself_are_proxies():
    model = Direct()
    executor = train(model)
    proxy = executor.scale
    assert not isinstance(proxy, torch.Tensor)
    assert proxy.shape == (3,) and proxy.requires_grad and repr(proxy) == repr(model.scale)
    assert torch.equal(proxy.detach(), model.scale.detach())  # the trained value
    proxy.requires_grad = False
    assert not model.scale.requires_grad
    assert executor.sub.weight is model.sub.weight
    assert executor.model.scale is model.scale
    with pytest.raises(AttributeError):
        proxy.no_such_thing


class Grouped(nn.Module):
    def __init__(self, rows=1):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(rows, 3, 2))
        self.scalar = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return poptorch.identity_loss(x @ self.weight * self.scalar, "sum")


@pytest.mark.spec("1.2 parameter proxies")
def test_replica_grouping_takes_the_first_dimension():
    arguments = (
        poptorch.enums.CommGroupType.Consecutive,
        1,
        poptorch.enums.VariableRetrievalMode.OnePerGroup,
    )
    model = Grouped()
    executor = poptorch.trainingModel(
        model, QUIET.clone(), torch.optim.SGD(model.parameters(), lr=0.5)
    )
    executor.weight.replicaGrouping(*arguments)
    assert executor(torch.ones(1, 3)).item() == 6
    assert torch.equal(model.weight.detach(), torch.full((1, 3, 2), 0.5))
    assert model.weight.shape == (1, 3, 2) and "weight" not in vars(executor._traced)
    with pytest.raises(poptorch.Error, match="before the model is compiled"):
        executor.weight.replicaGrouping(*arguments)
    with pytest.raises(poptorch.Error, match="scalar"):
        poptorch.inferenceModel(model).scalar.replicaGrouping(*arguments)
    wrong = poptorch.inferenceModel(Grouped(rows=2))
    wrong.weight.replicaGrouping(*arguments)
    with pytest.raises(poptorch.Error, match="'weight' must have 1 in dimension 0"):
        wrong(torch.ones(1, 3))
    wrong.weight.replicaGrouping(poptorch.enums.CommGroupType.Orthogonal, 2, arguments[2])
    with pytest.raises(poptorch.Error, match="groups of 2"):
        wrong(torch.ones(1, 3))


@pytest.mark.spec("1.2 repr")
def test_repr():
    executor = train(MLP())
    assert repr(executor) == poptorch.module_repr(executor.model)


@pytest.mark.spec("1.2 attribute forwarding")
def test_to_gives_the_module_and_says_so(capfd):
    model = Direct()
    executor = train(model)
    assert executor.to("cpu") is model
    assert "outside of the executor" in capfd.readouterr().err


@pytest.mark.spec("1.2 class change")
def test_a_wrapped_module_still_trains_by_itself():
    torch.manual_seed(0)
    model, reference = BatchNormCNN(), BatchNormCNN()
    reference.load_state_dict(model.state_dict())
    executor = poptorch.trainingModel(
        model, QUIET.clone(), torch.optim.SGD(model.parameters(), lr=0.1)
    )
    x, labels = batch("BatchNormCNN")
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, reference)]
    for _ in range(2):
        for m, optimizer in zip((model, reference), optimizers):
            optimizer.zero_grad()
            m(x, labels)[1].backward()
            optimizer.step()
    for ours, theirs in zip(model.state_dict().values(), reference.state_dict().values()):
        torch.testing.assert_close(ours, theirs)
    executor(x, labels)  # and goes on from there
    reference(x, labels)
    assert not torch.equal(model.fc.weight, reference.fc.weight)


@pytest.mark.spec("1.1 trainingModel", "1.1 inferenceModel")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_callers_mode_of_gradients_does_not_matter(mode):
    model = Direct()
    executor = poptorch.trainingModel(model, QUIET.clone())
    before = model.scale.detach().clone()
    with mode():
        executor(torch.ones(2, 3))
        poptorch.inferenceModel(model, QUIET.clone())(torch.ones(2, 3))
        assert not torch.equal(model.scale, before)
    executor(torch.ones(2, 3))
    model(torch.ones(2, 3))[1].backward()
    assert model.scale.grad is not None


@pytest.mark.spec("1.2 class change")
def test_layers_with_lists_of_weights_work_while_wrapped():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x):
            y = self.lstm(x)[0]
            return y, poptorch.identity_loss(y, "sum")

    model = Recurrent()
    executor = poptorch.trainingModel(model, QUIET.clone())
    x = torch.randn(2, 5, 3)
    executor(x)
    executor.copyWeightsToHost()
    plain = copy.deepcopy(model)
    executor(x)
    executor.model(x)  # reads the newest weights
    assert not torch.equal(plain.lstm.weight_hh_l0, model.lstm.weight_hh_l0)
    torch.testing.assert_close(model(x)[0], copy.deepcopy(model)(x)[0])


@pytest.mark.spec("1.4 destroy")
def test_an_executor_that_goes_away_leaves_the_trained_weights():
    model = MLP()
    initial = copy.deepcopy(model.state_dict())
    executor = train(model, steps=2)
    gone = weakref.ref(executor)
    del executor
    assert gone() is None  # at once: nothing goes round in circles
    assert any(not torch.equal(initial[k], v) for k, v in model.state_dict().items())
    again = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))
    again(*batch("MLP"))
    again.destroy()
    assert type(model) is MLP


@pytest.mark.spec("1.4 __call__ backward")
def test_results_have_nothing_to_differentiate():
    model = MLP()
    output, loss = poptorch.trainingModel(model, QUIET.clone())(*batch("MLP"))
    for result in (output, loss, output[0, 0]):
        with pytest.raises(poptorch.Error, match="cannot be called explicitly"):
            result.backward()
    assert not loss.requires_grad and type(loss) is torch.Tensor
    pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss), loss.clone(), loss.numpy()
    output.resize_(64, 4)
    # What is computed from results is the user's own.
    head = nn.Linear(4, 1)
    head(output[:3]).sum().backward()
    assert head.weight.grad is not None
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).backward()


# Types of the user's own


class Box:
    """Neither tensor nor container."""

    def __init__(self, first, label, second):
        self.first, self.label, self.second = first, label, second


class BoxParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.first
        yield struct.second

    def reconstruct(self, original_structure, tensor_iterator):
        return type(original_structure)(
            next(tensor_iterator), original_structure.label, next(tensor_iterator)
        )


@pytest.fixture
def boxes():
    poptorch.registerCustomArgParser(Box, BoxParser())
    yield
    poptorch.registerCustomArgParser(Box, None)


class Boxes(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return Box(torch.full((3,), float(index)), "label", torch.zeros(3))


class Unpacks(nn.Module):
    def forward(self, box, extra):
        assert box.label == "label"
        return Box(box.first + extra, "out", box.second * 2), [box.first - box.second]


@pytest.mark.spec("1.1 registerCustomArgParser", "1.1 ICustomArgParser", "1.5 custom types")
def test_registered_types_are_arguments_and_results(boxes):
    executor = poptorch.inferenceModel(Unpacks(), poptorch.Options().deviceIterations(2))
    for value in (1.0, 2.0):
        box = Box(torch.full((4,), value), "label", torch.full((2,), 3.0))
        result, [difference] = executor(box, torch.arange(4.0))
        assert type(result) is Box and result.label == "out"
        assert torch.equal(result.first, torch.arange(4.0) + value)
        assert torch.equal(result.second, torch.full((2,), 6.0))
        assert difference.shape == (4,)

    class Derived(Box):
        pass

    other = poptorch.inferenceModel(Unpacks())
    made, _ = other(Derived(torch.ones(2), "label", torch.ones(2)), torch.ones(2))
    assert torch.equal(made.first, torch.full((2,), 2.0))
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(torch.ones(4), torch.ones(4))


@pytest.mark.spec("1.1 registerCustomArgParser", "1.5 custom types")
@pytest.mark.parametrize("strategy", ["Fork", "ForkServer"])
def test_registered_types_pass_through_the_loaders(boxes, strategy):
    def collate(items):
        return Box(
            torch.stack([item.first for item in items]),
            "label",
            torch.stack([item.second for item in items]),
        )

    accessor = poptorch.AsynchronousDataAccessor(
        Boxes(), sharing_strategy=poptorch.SharingStrategy[strategy]
    )
    try:
        seen = [(type(element), element.label, element.first.tolist()) for element in accessor]
    finally:
        accessor.terminate()
    assert seen == [(Box, "label", [float(i)] * 3) for i in range(4)]
    options = poptorch.Options().deviceIterations(2)
    sampler = torch.utils.data.BatchSampler(range(4), batch_size=1, drop_last=True)
    joined = list(poptorch.DataLoader(options, Boxes(), batch_sampler=sampler, collate_fn=collate))
    assert [type(box) for box in joined] == [Box, Box]
    assert joined[1].first[:, 0].tolist() == [2.0, 3.0]


@pytest.mark.spec("1.1 registerCustomArgParser", "1.1 ICustomArgParser")
def test_parsers_are_checked_and_removed(boxes):
    for wrong in (BoxParser, object(), "parser"):
        with pytest.raises(poptorch.Error, match="ICustomArgParser"):
            poptorch.registerCustomArgParser(Box, wrong)
    with pytest.raises(TypeError):
        poptorch.ICustomArgParser()
    poptorch.registerCustomArgParser(Box, None)
    poptorch.registerCustomArgParser(Box, None)

    class Returns(nn.Module):
        def forward(self, x):
            return Box(x + 1, "out", x)

    with pytest.raises(poptorch.Error, match="Box.*registerCustomArgParser"):
        poptorch.inferenceModel(Returns())(torch.ones(2))

    class Wrong(BoxParser):
        def yieldTensors(self, struct):
            yield struct.label

    poptorch.registerCustomArgParser(Box, Wrong())
    with pytest.raises(poptorch.Error, match="yieldTensors.*str"):
        poptorch.inferenceModel(Unpacks())(Box(torch.ones(1), "label", torch.ones(1)), None)


@pytest.mark.spec("1.5 custom types")
def test_a_registered_container_is_parsed_by_its_parser():
    Point = collections.namedtuple("Point", "x name")

    class PointParser(poptorch.ICustomArgParser):
        def yieldTensors(self, struct):
            return [struct.x]

        def reconstruct(self, original_structure, tensor_iterator):
            return Point(next(tensor_iterator), original_structure.name + "!")

    class Model(nn.Module):
        def forward(self, point):
            assert point.name == "a!"
            return point.x + 1

    poptorch.registerCustomArgParser(Point, PointParser())
    try:
        executor = poptorch.inferenceModel(Model())
        assert executor(Point(torch.zeros(1), "a")).item() == 1
    finally:
        poptorch.registerCustomArgParser(Point, None)
