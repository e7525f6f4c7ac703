"""An inference executor in the forward of another model: a part of that model's program."""

import copy
import threading
import time

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
X = torch.randn(6, 5)
IMAGES = torch.randn(4, 2, 8, 8)


class Mlp(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, 3))

    def forward(self, x):
        return self.layers(x)


class ConvNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()
        )
        self.head = nn.Linear(channels, 3)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


class Distillation(nn.Module):
    """A student that learns what `teacher`, anything that can be called, says."""

    def __init__(self, student, teacher, choose=lambda said: said):
        super().__init__()
        self.student = student
        self.teacher = teacher
        self.choose = choose

    def forward(self, x):
        soft = F.log_softmax(self.choose(self.teacher(x)) / 2, -1)
        logits = self.student(x)
        loss = F.kl_div(F.log_softmax(logits / 2, -1), soft, log_target=True, reduction="batchmean")
        return logits, poptorch.identity_loss(loss * 4, "none")


def eager_losses(student, teach, x, steps):
    """Of the same training, in float64."""
    student = copy.deepcopy(student).double()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        with torch.no_grad():
            soft = F.log_softmax(teach(x.double()) / 2, -1)
        ours = F.log_softmax(student(x.double()) / 2, -1)
        loss = 4 * F.kl_div(ours, soft, log_target=True, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach() for parameter in student.parameters()]


def train(model, x, steps):
    optimizer = torch.optim.SGD(model.student.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, optimizer=optimizer)
    return executor, [executor(x)[1].item() for _ in range(steps)]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("make, x", [(Mlp, X), (ConvNet, IMAGES)])
def test_distillation_is_as_in_eager(make, x, compiled):
    module, student = make(8).eval(), make(4)
    if make is ConvNet:
        module.features[1].running_mean.normal_()
    reference = copy.deepcopy(module).double()
    weights = copy.deepcopy(module.state_dict())
    teacher = poptorch.inferenceModel(module)
    if compiled:
        said = teacher(x)
    wanted, trained = eager_losses(student, reference, x, 6)
    model = Distillation(student, teacher)
    executor, losses = train(model, x, 6)
    torch.testing.assert_close(losses, wanted, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(student.parameters(), trained):
        torch.testing.assert_close(ours.detach().double(), theirs, rtol=1e-4, atol=1e-5)
    for name, value in module.state_dict().items():
        assert torch.equal(value, weights[name])
    assert teacher.isCompiled() == compiled
    if compiled:
        assert torch.equal(teacher(x), said)
    else:
        torch.testing.assert_close(teacher(x), reference(x.double()).float())


def test_a_teacher_from_outside_of_the_student():
    module, student = Mlp(8), Mlp(4)
    teacher = poptorch.inferenceModel(module)
    wanted, _ = eager_losses(student, copy.deepcopy(module).double(), X, 4)
    model = Distillation(student, lambda x: teacher(x))
    _, losses = train(model, X, 4)
    torch.testing.assert_close(losses, wanted, rtol=1e-5, atol=1e-6)


class Many(nn.Module):
    """Results in a structure, a loss of its own and integers."""

    def __init__(self, structure):
        super().__init__()
        self.net = Mlp(8)
        self.structure = structure

    def forward(self, x, scale=1.0, *, flag=None):
        y = self.net(x) * scale
        classes = y.argmax(-1)
        loss = F.cross_entropy(y, classes)
        if self.structure == "dict":
            return {"y": y, "more": [classes, None, loss]}
        return y, (classes, loss), flag


@pytest.mark.parametrize("structure", ["dict", "tuple"])
@pytest.mark.parametrize("compiled", [True, False])
def test_results_have_the_structure_and_types_of_a_call(structure, compiled):
    module, student = Many(structure), Mlp(4)
    teacher = poptorch.inferenceModel(module)
    if compiled:
        teacher(X, scale=2.0, flag="f")
    seen = []

    def teach(x):
        said = teacher(x.double().float(), 2.0, flag="f")
        seen.append(said)
        return said["y"] if structure == "dict" else said[0]

    wanted, _ = eager_losses(student, lambda x: copy.deepcopy(module.net).double()(x) * 2, X, 3)
    _, losses = train(Distillation(student, teach), X, 3)
    torch.testing.assert_close(losses, wanted, rtol=1e-5, atol=1e-6)
    ordinary = teacher(X, 2.0, flag="f")
    (inside,) = seen

    def flat(value):
        if isinstance(value, torch.Tensor):
            return (value.shape, value.dtype, value.requires_grad)
        if isinstance(value, dict):
            return {key: flat(item) for key, item in value.items()}
        if isinstance(value, (tuple, list)):
            return type(value)(map(flat, value))
        return value

    assert flat(inside) == flat(ordinary)


def test_results_carry_no_gradient_to_the_inputs_and_can_be_changed():
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            said, weight = teacher(x * self.weight)
            weight.mul_(0)  # a copy, not the teacher's
            again = teacher(x * self.weight)[0]
            return F.mse_loss(said + again + self.weight, torch.zeros(6, 3)), weight

    class Teacher(Mlp):
        def forward(self, x):
            return self.layers(x), self.layers[0].weight

    module, around = Teacher(4), Around()
    teacher = poptorch.inferenceModel(module)
    with torch.no_grad():
        said = module(X * 2)[0]
    executor = poptorch.trainingModel(around, optimizer=torch.optim.SGD(around.parameters(), lr=1))
    loss, weight = executor(X)
    wanted = 2 * said + 2
    torch.testing.assert_close(loss, (wanted**2).mean())
    assert not weight.any()
    torch.testing.assert_close(around.weight.detach(), 2 - 2 * wanted.mean())
    torch.testing.assert_close(teacher(X * 2)[0], said)


def test_a_teacher_of_the_same_module_follows_the_training():
    module = Mlp(4)
    teacher = poptorch.inferenceModel(module)
    reference = copy.deepcopy(module).double()
    model = Distillation(module, teacher, lambda said: said * 0.5)
    _, losses = train(model, X, 5)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for loss in losses:
        ours = reference(X.double())
        soft = F.log_softmax(ours.detach() * 0.5 / 2, -1)
        wanted = 4 * F.kl_div(
            F.log_softmax(ours / 2, -1), soft, log_target=True, reduction="batchmean"
        )
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(loss, wanted.item(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_in_hooks(compiled):
    class Hooked(nn.Module):
        def __init__(self, teach):
            super().__init__()
            self.net = nn.Linear(5, 3)
            self.net.register_forward_hook(lambda module, args, result: result + teach(X))
            self.teach = teach

        def forward(self, x):
            y = self.net(x)
            y.register_hook(lambda gradient: gradient * self.teach(X))
            return F.mse_loss(y, torch.zeros(6, 3))

    module = Mlp(4)
    teacher = poptorch.inferenceModel(module)
    if compiled:
        teacher(X)
    outer, eager = Hooked(teacher), Hooked(lambda x: module(x).detach())
    eager.net.load_state_dict(outer.net.state_dict())
    executor = poptorch.trainingModel(outer, optimizer=torch.optim.SGD(outer.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(3):
        loss = eager(X)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(executor(X), loss.detach())


def test_an_encoder_and_dropout_inside():
    class Teacher(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.encoder(x), self.drop(torch.ones(1000))

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))

        def forward(self, x):
            with torch.no_grad():
                y, noise = teacher(x)
            return y * self.weight, noise

    module = Teacher()
    module.encoder.eval()
    teacher = poptorch.inferenceModel(module)
    x = torch.randn(2, 4, 8)
    outer = poptorch.inferenceModel(Outer())
    y, first = outer(x)
    with torch.no_grad():
        torch.testing.assert_close(y, module.encoder(x), rtol=1e-4, atol=1e-5)
    second = outer(x)[1]
    assert set(first.tolist()) == {0.0, 2.0} and not torch.equal(first, second)


def test_weights_that_another_executor_trains_come_along():
    module = Mlp(4)
    teacher = poptorch.inferenceModel(module)
    teacher(X)

    class Trained(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, x):
            return F.mse_loss(self.module(x), torch.ones(6, 3))

    training = poptorch.trainingModel(Trained())
    training(X)
    training(X)
    outer = poptorch.inferenceModel(Distillation(Mlp(3), teacher))
    reference = copy.deepcopy(module)
    model = Distillation(outer.model.student, reference)
    torch.testing.assert_close(outer(X), model(X), rtol=1e-5, atol=1e-6)


def test_later_changes_of_its_weights_are_told_and_not_followed(capfd):
    module = Mlp(4)
    teacher = poptorch.inferenceModel(module)
    teacher(X)
    outer = poptorch.inferenceModel(Distillation(Mlp(3), teacher))
    before = outer(X)[1]
    outer(X)
    assert "has changed since" not in capfd.readouterr().err
    with torch.no_grad():
        module.layers[2].weight.mul_(3)
    teacher.copyWeightsToDevice()
    assert torch.equal(outer(X)[1], before)
    assert "'layers.2.weight' of a wrapped model that forward calls has changed" in (
        capfd.readouterr().err
    )
    outer.destroy()
    assert not torch.equal(outer(X)[1], before)


def test_weights_that_were_not_sent_are_refused():
    module = Mlp(4)
    teacher = poptorch.inferenceModel(module)
    teacher(X)
    with torch.no_grad():
        module.layers[2].weight.mul_(3)
    outer = poptorch.inferenceModel(Distillation(Mlp(3), teacher))
    with pytest.raises(poptorch.Error, match="layers.2.weight.*call copyWeightsToDevice"):
        outer(X)
    teacher.copyWeightsToDevice()
    outer(X)


def test_a_batch_norm_in_training_mode_is_refused():
    teacher = poptorch.inferenceModel(ConvNet(3))
    outer = poptorch.inferenceModel(Distillation(ConvNet(2), teacher))
    with pytest.raises(poptorch.Error, match="changes its 'features.1.*call eval"):
        outer(IMAGES)


def test_a_changed_mode_of_a_compiled_teacher_is_refused():
    module = ConvNet(3).eval()
    teacher = poptorch.inferenceModel(module)
    teacher(IMAGES)
    module.train()
    outer = poptorch.inferenceModel(Distillation(ConvNet(2), teacher))
    with pytest.raises(poptorch.Error, match=r"between eval\(\) and train\(\)"):
        outer(IMAGES)


def test_a_changed_input_is_refused():
    class Changes(nn.Module):
        def forward(self, x):
            return x.mul_(2)

    teacher = poptorch.inferenceModel(Changes())
    outer = poptorch.inferenceModel(Distillation(Mlp(2), teacher))
    with pytest.raises(poptorch.Error, match="changes its input 'x' in place"):
        outer(X)


def test_own_forward_is_refused_also_through_another():
    class Calls(nn.Module):
        def forward(self, x):
            return self.other[0](x)

    one, two = Calls(), Calls()
    first, second = poptorch.inferenceModel(one), poptorch.inferenceModel(two)
    first.model.other, second.model.other = [second], [first]
    for executor in (first, second):
        with pytest.raises(poptorch.Error, match="its own forward is captured.*never end"):
            executor(X)


@pytest.mark.parametrize(
    "set_option, words",
    [
        (lambda o: o.deviceIterations(2), "deviceIterations"),
        (lambda o: o.anchorTensor("a", "x"), "anchored tensors"),
        (lambda o: o.enableSyntheticData(True), "synthetic data"),
        (lambda o: o.useOfflineIpuTarget(), "offline device"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(set_option, words):
    options = poptorch.Options()
    set_option(options)
    teacher = poptorch.inferenceModel(Mlp(3), options)
    outer = poptorch.inferenceModel(Distillation(Mlp(2), teacher))
    with pytest.raises(poptorch.Error, match=words):
        outer(X)


def test_two_threads_do_not_wait_for_each_other():
    module = Mlp(4)
    teacher = poptorch.inferenceModel(module)
    waiting = threading.Event()

    def slow_teacher(x):
        waiting.set()
        time.sleep(0.2)  # the other thread now has the teacher, and waits to compile it
        return teacher(x)

    outer = poptorch.inferenceModel(Distillation(Mlp(3), slow_teacher))
    thread = threading.Thread(target=lambda: (waiting.wait(), teacher(X)), daemon=True)
    thread.start()
    outer(X)
    thread.join(20)
    assert not thread.is_alive()
