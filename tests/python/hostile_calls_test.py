"""Calls that would crash, hang, or compute with something else than the user meant."""

import copy
import io
import pickle
import subprocess
import sys
import textwrap
import threading

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

X = torch.linspace(-1, 1, 12).reshape(4, 3)


class Model(nn.Module):
    """A forward given as a function, and a weight."""

    def __init__(self, forward):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self._forward = forward

    def forward(self, x):
        y = self._forward(self, x)
        return y, F.mse_loss(y, torch.zeros_like(y))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        y = self.fc(x)
        return y, F.mse_loss(y, torch.zeros_like(y))


def wrapped(forward, options=None):
    module = nn.Module()
    module.forward = forward
    return poptorch.inferenceModel(module, options)


# An executor inside of another


CALLED_INSIDE = "a wrapped model was called while forward.*call the module itself"


@pytest.mark.parametrize("compiled", [True, False])
def test_a_training_executor_in_the_forward_of_another_is_refused(compiled):
    teacher = poptorch.trainingModel(Plain())
    if compiled:
        teacher(X)
    student = poptorch.trainingModel(Model(lambda self, x: self.fc(x) - teacher(x)[0]))
    with pytest.raises(poptorch.Error, match=CALLED_INSIDE):
        student(X)
    with pytest.raises(poptorch.Error, match=CALLED_INSIDE):
        student(X)
    teacher(X)  # both are as before
    module = teacher.model.fc
    student = poptorch.trainingModel(Model(lambda self, x: self.fc(x) - module(x).detach()))
    student(X)


def test_an_executor_in_its_own_forward_is_refused():
    model = Model(lambda self, x: executor(x)[0])
    executor = poptorch.trainingModel(model)
    with pytest.raises(poptorch.Error, match=CALLED_INSIDE):
        executor(X)


def test_a_training_executor_in_a_hook_is_refused():
    other = poptorch.trainingModel(Plain())
    other(X)
    model = Plain()
    model.fc.register_forward_hook(lambda module, args, result: other(X)[0])
    executor = poptorch.trainingModel(model)
    with pytest.raises(poptorch.Error, match=CALLED_INSIDE):
        executor(X)

    def with_hook(self, x):
        y = self.fc(x)
        y.register_hook(lambda gradient: other(X)[0])
        return y

    executor = poptorch.trainingModel(Model(with_hook))
    with pytest.raises(poptorch.Error, match=CALLED_INSIDE):
        executor(X)


def test_executors_in_two_threads():
    models = [Plain(), Plain()]
    models[1].fc = models[0].fc  # they hand weights to each other
    executors = [poptorch.trainingModel(model) for model in models]
    failures = []

    def run(executor):
        try:
            for _ in range(20):
                executor(X)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(e,), daemon=True) for e in executors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures


# Memory that is not there


def shrunk(tensor):
    tensor.storage().resize_(0)
    return tensor


def test_an_input_without_memory():
    executor = wrapped(lambda x: x + 1)
    with pytest.raises(poptorch.Error, match="input 'x' has lost its memory"):
        executor(shrunk(X.clone()))
    executor(X)
    with pytest.raises(poptorch.Error, match="input 'x' has lost its memory"):
        executor(shrunk(X.clone()))
    part = X.clone()
    part.storage().resize_(5)
    with pytest.raises(poptorch.Error, match="input 'x' has lost its memory"):
        executor(part)
    with pytest.raises(poptorch.Error, match="input 'x' has lost its memory"):
        executor(shrunk(X.t().clone().t()))


def test_a_weight_without_memory():
    model = Plain()
    shrunk(model.fc.weight.data)
    with pytest.raises(poptorch.Error, match="'fc.weight' has lost its memory"):
        poptorch.inferenceModel(model)(X)
    model = Plain()
    executor = poptorch.trainingModel(model)
    executor(X)
    shrunk(model.fc.weight.data)
    with pytest.raises(poptorch.Error, match="'fc.weight' has lost its memory"):
        executor.copyWeightsToDevice()
    executor(X)
    model.fc.bias + 0  # what can be written is written
    with pytest.raises(poptorch.Error, match="'fc.weight' has lost its memory"):
        executor.copyWeightsToHost()
    executor.destroy()


def test_a_buffer_without_memory():
    class Buffered(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("offset", torch.arange(3.0))

        def forward(self, x):
            return x + self.offset

    model = Buffered()
    executor = poptorch.inferenceModel(model)
    shrunk(model.offset)
    with pytest.raises(poptorch.Error, match="'offset' has lost its memory"):
        executor(X)


ODD = {
    "meta": (lambda: torch.empty(4, 3, device="meta"), "dense tensors on the CPU"),
    "sparse": (lambda: X.to_sparse(), "dense tensors on the CPU"),
    "sparse rows": (lambda: X.to_sparse_csr(), "dense tensors on the CPU"),
    "mkldnn": (lambda: X.to_mkldnn(), "dense tensors on the CPU"),
    "complex": (lambda: X.to(torch.complex64), "ComplexFloat cannot be part of a program"),
    "quantized": (
        lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
        "QInt8 cannot be part of a program",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_inputs_that_no_program_can_have(kind):
    make, words = ODD[kind]
    with pytest.raises(poptorch.Error, match=words):
        wrapped(lambda x: x * 2)(make())
    executor = wrapped(lambda x: x * 2)
    executor(X)
    with pytest.raises(poptorch.Error, match=f"{words}|compiled for"):
        executor(make())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_weights_that_no_program_can_have(kind):
    class Odd(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.register_buffer("odd", value)

        def forward(self, x):
            return x + self.odd

    with pytest.raises(poptorch.Error):
        poptorch.inferenceModel(Odd(ODD[kind][0]()))(X)


# Inputs that are one memory


def changes_first(x, y):
    x += 1
    return x + y


@pytest.mark.spec("1.5 in-place on inputs")
def test_a_changed_input_that_another_shares_is_refused():
    executor = wrapped(changes_first)
    a, b = X.clone(), X.clone()
    torch.testing.assert_close(executor(a, b), X + 1 + X)
    torch.testing.assert_close(a, X + 1)
    with pytest.raises(poptorch.Error, match="changes the input 'x' in place, and the input 'y'"):
        executor(a, a)
    whole = torch.zeros(6, 3)
    with pytest.raises(poptorch.Error, match="changes the input 'x' in place, and the input 'y'"):
        executor(whole[:4], whole[2:])
    halves = torch.zeros(8, 3)
    executor(halves[:4], halves[4:])
    assert halves[:4].eq(1).all() and halves[4:].eq(0).all()
    same = wrapped(lambda x, y: x + y)
    torch.testing.assert_close(same(a, a), a + a)


def test_a_changed_input_that_is_a_weight_is_refused():
    class Adds(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4, 3))

        def forward(self, x):
            x += 1
            return x + self.total

    model = Adds()
    with pytest.raises(poptorch.Error, match="input 'x' in place, which lies in .*'total'"):
        poptorch.inferenceModel(model)(model.total)


# Optimisers


@pytest.mark.spec("4.1 accepted types")
def test_an_optimizer_over_other_parameters_is_refused(capfd, caplog):
    model, other = Plain(), Plain()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    with pytest.raises(
        poptorch.Error,
        match=r"not the wrapped model's.*number 0 of group 0 \(Float\[3, 3\]\), number 1 of group",
    ):
        poptorch.trainingModel(model, optimizer=optimizer)(X)
    model = Plain()
    groups = [{"params": model.parameters()}, {"params": [other.fc.bias]}]
    both = torch.optim.SGD(groups, lr=0.1)
    poptorch.trainingModel(model, optimizer=both)(X)
    assert "not the wrapped model's" in (text := told(capfd, caplog))
    assert "does not train: number 0 of group 1 (Float[3])\n" in text


def test_parts_of_the_parameters_and_frozen_ones_are_fine():
    model, other = Plain(), Plain()
    other.fc.bias.requires_grad_(False)
    before = model.fc.bias.detach().clone()
    optimizer = torch.optim.SGD([model.fc.weight, other.fc.bias], lr=0.1)
    executor = poptorch.trainingModel(model, optimizer=optimizer)
    executor(X)
    assert torch.equal(model.fc.bias, before)


@pytest.mark.spec("4.5 missing entries")
def test_numbers_that_a_state_lacks_are_not_those_of_others():
    def trained(lr):
        torch.manual_seed(0)
        model = Plain()
        optimizer = poptorch.optim.Adam(model.parameters(), lr=lr)
        executor = poptorch.trainingModel(model, optimizer=optimizer)
        executor(X)
        return executor, optimizer

    state = copy.deepcopy(trained(0.5)[1].state_dict())
    del state["param_groups"]
    del state["ipu_param"]["learningRate___specific___fc.bias"]
    executor, optimizer = trained(0.1)
    optimizer.load_state_dict(state)
    with pytest.raises(ValueError, match="no 'learningRate___specific___fc.bias'.*whole state"):
        executor(X)

    state["ipu_param"]["learningRate___specific___fc.bias"] = torch.tensor(0.25)
    executor, optimizer = trained(0.1)
    optimizer.load_state_dict(state)
    with pytest.raises(ValueError, match="0.5 for .*weight' but 0.25 for .*bias'"):
        executor(X)


# Numbers that cannot be


@pytest.mark.parametrize("training", [True, False])
def test_more_micro_batches_than_can_be_counted(training):
    options = poptorch.Options().deviceIterations(2**62)
    if training:
        options.Training.gradientAccumulation(2**62)
    make = poptorch.trainingModel if training else poptorch.inferenceModel
    with pytest.raises((ValueError, AssertionError), match="deviceIterations"):
        make(Plain(), options)(X)


# What is legal


def test_a_loss_that_reaches_no_parameter():
    model = Model(lambda self, x: self.fc(x).detach())
    before = copy.deepcopy(model.state_dict())
    executor = poptorch.trainingModel(model, optimizer=torch.optim.Adam(model.parameters()))
    y, loss = executor(X)
    torch.testing.assert_close(y, model.fc(X).detach())
    torch.testing.assert_close(loss, y.square().mean())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_anomaly_detection_may_be_on():
    with torch.autograd.set_detect_anomaly(True):
        poptorch.trainingModel(Plain())(X)
        assert torch.is_anomaly_enabled()


@pytest.mark.spec("1.5 defaults")
def test_a_default_tensor_may_be_passed_later():
    def forward(x, mask=torch.ones(3)):
        return x * mask

    executor = wrapped(forward)
    assert torch.equal(executor(X), X)
    assert torch.equal(executor(X, torch.zeros(3)), X * 0)
    assert torch.equal(executor(X, mask=torch.full((3,), 2.0)), X * 2)
    assert torch.equal(executor(X), X)
    executor = wrapped(forward)
    assert torch.equal(executor(X, torch.zeros(3)), X * 0)
    assert torch.equal(executor(X), X)


@pytest.mark.spec("1.5 structures")
def test_a_dictionary_in_another_order():
    executor = wrapped(lambda batch: batch["a"] - batch["b"])
    a, b = X, X * 3
    assert torch.equal(executor({"a": a, "b": b}), a - b)
    assert torch.equal(executor({"b": b, "a": a}), a - b)
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor({"b": b, "c": a})
    nested = wrapped(lambda pair: pair[0]["a"]["x"] - pair[0]["b"] + pair[1])
    assert torch.equal(nested(({"a": {"x": a, "y": b}, "b": b}, X)), a - b + X)
    assert torch.equal(nested(({"b": b, "a": {"y": b, "x": a}}, X)), a - b + X)


@pytest.mark.spec("1.5 structures")
@pytest.mark.parametrize(
    "forward",
    [
        lambda batch: torch.cat(list(batch.values())),
        lambda batch: torch.cat([batch[name] for name in batch]),
        lambda batch: torch.cat([t for _, t in batch.items()]),
        lambda batch: torch.cat(list({**batch}.values())),
        lambda batch: torch.cat(list(dict(batch).values())),
    ],
)
def test_a_dictionary_whose_order_matters(forward):
    executor = wrapped(forward)
    a, b = X, X * 3
    assert torch.equal(executor({"a": a, "b": b}), torch.cat([a, b]))
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor({"b": b, "a": a})


COPIES = {
    "pickle": lambda executor: pickle.loads(pickle.dumps(executor)),
    "deepcopy": copy.deepcopy,
    "torch.save": lambda executor: torch_saved(executor),
}


def torch_saved(executor):
    file = io.BytesIO()
    torch.save(executor, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("compiled", [True, False])
def test_executors_can_be_copied(how, compiled):
    torch.manual_seed(0)
    model = Plain()
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    options = poptorch.Options().randomSeed(3).deviceIterations(2)
    executor = poptorch.trainingModel(model, options, optimizer)
    executor.note = "mine"
    if compiled:
        executor(X)
    copied = COPIES[how](executor)
    assert copied.note == "mine" and not copied.isCompiled()
    assert copied.options.device_iterations == 2
    for _ in range(3):
        ours, theirs = copied(X), executor(X)
        torch.testing.assert_close(ours[1], theirs[1])
    for name, value in model.state_dict().items():
        torch.testing.assert_close(copied.state_dict()[name], value)
    assert copied.fc.weight is not model.fc.weight
    inference = poptorch.inferenceModel(copied.model.eval())
    again = COPIES[how](inference)
    torch.testing.assert_close(again(X)[0], inference(X)[0])


# Attributes that are no buffers


def told(capfd, caplog):
    text = capfd.readouterr().err + caplog.text
    caplog.clear()
    return text


@pytest.mark.spec("12 plain tensor attributes")
def test_the_user_is_told_that_plain_attributes_do_not_change(capfd, caplog):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = torch.zeros(1)

        def forward(self, x):
            self.i = self.i + 1
            return x + self.i

    executor = poptorch.inferenceModel(Counts())
    assert torch.equal(executor(X), X + 1) and torch.equal(executor(X), X + 1)
    assert "assigned a tensor to 'i', which is no registered buffer" in told(capfd, caplog)
    assert executor.model.i.item() == 0

    class InPlace(Counts):
        def forward(self, x):
            self.i += 1
            return x + self.i

    executor = poptorch.inferenceModel(InPlace())
    assert torch.equal(executor(X), X + 1) and torch.equal(executor(X), X + 1)
    assert "changed 'i' in place, which is no registered buffer" in told(capfd, caplog)

    class Fine(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.utils.weight_norm(nn.Linear(3, 3))
            self.offset = torch.ones(3)

        def forward(self, x):
            scratch = torch.tensor([1.0, 2.0, 3.0])
            scratch += 1
            return self.fc(x) + self.offset + scratch

    poptorch.inferenceModel(Fine())(X)
    assert "registered buffer" not in told(capfd, caplog)


# Processes


def test_an_executor_in_a_loader_worker_ends():
    program = """
        import poptorch, torch

        model = poptorch.inferenceModel(torch.nn.Linear(3, 3))
        expected = model(torch.ones(1, 3))

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                return model(torch.ones(1, 3))[0]

        # Forked, which is no longer Python's default from 3.14 on: only a copy of this process has
        # the class and the model.
        forked = dict(num_workers=2, multiprocessing_context="fork")
        for batch in torch.utils.data.DataLoader(Data(), batch_size=4, **forked):
            assert torch.equal(batch, expected.expand(4, 3)), batch
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)


# Weights that are not there yet


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("make", [poptorch.inferenceModel, poptorch.trainingModel])
def test_lazy_modules_must_have_been_called(make):
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3))

        def forward(self, x):
            return F.mse_loss(self.layers(x), torch.zeros(4, 3))

    module = Lazy().eval()
    executor = make(module)
    with pytest.raises(poptorch.Error, match="'layers.0.weight' of a lazy module.*call the module"):
        executor(X)
    wanted = module(X).item()
    assert executor(X).item() == pytest.approx(wanted, rel=1e-5)
    before = module.layers[0].weight.detach().clone()
    executor(X)
    trained = make is poptorch.trainingModel
    assert torch.equal(module.layers[0].weight, before) != trained


# Buffers that forward decides by


class SetsItselfUp(nn.Module):
    """Scales by what it saw in its first call."""

    def __init__(self, ask):
        super().__init__()
        self.register_buffer("done", torch.tensor(False))
        self.register_buffer("scale", torch.ones(3))
        self._ask = ask

    def forward(self, x):
        if not self._ask(self.done):
            self.scale.copy_(1 / x.abs().mean(0))
            self.done.fill_(True)
        return x * self.scale


@pytest.mark.parametrize("ask", [bool, lambda b: b.item(), lambda b: b.tolist(), torch.any])
def test_a_layer_that_sets_itself_up_must_have_been_called(ask):
    module = SetsItselfUp(ask)
    executor = poptorch.inferenceModel(module)
    with pytest.raises(poptorch.Error, match="value of buffer 'done' at .*call the module itself"):
        executor(X)
    assert not module.done
    module(X)
    torch.testing.assert_close(executor(2 * X), module(2 * X))


def test_a_flag_that_forward_only_computes_with_may_change():
    class Alternates(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("flag", torch.tensor(False))

        def forward(self, x):
            y = torch.where(self.flag, x, -x) + torch.zeros_like(self.flag)
            self.flag.logical_not_()
            return y

    module = Alternates()
    executor = poptorch.inferenceModel(copy.deepcopy(module))
    for _ in range(4):
        torch.testing.assert_close(executor(X), module(X))
