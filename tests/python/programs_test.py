"""Whole programs as users write them: training, validation in between, checkpoints."""

import copy

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 3


def points(count, seed):
    """Three clouds of points that a small network can tell apart."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    centres = torch.tensor([[2.0, 0.0, 0.0, 1.0], [0.0, 2.0, 0.0, -1.0], [0.0, 0.0, 2.0, 0.0]])
    noise = torch.randn(count, 4, generator=generator)
    return torch.utils.data.TensorDataset(centres[labels] + 0.4 * noise, labels)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 16)
        self.norm = nn.BatchNorm1d(16)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.out(self.dropout(torch.relu(self.norm(self.hidden(x)))))


class WithLoss(nn.Module):
    """The usual wrapper: the loss is a part of the model."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        output = self.model(x)
        if labels is None:
            return output
        return output, self.loss(output, labels)


def accuracy(output, labels):
    return (output.argmax(1) == labels[-len(output) :]).float().mean().item()


def options(iterations=2, accumulation=1):
    opts = poptorch.Options().deviceIterations(iterations).randomSeed(3)
    opts.Training.gradientAccumulation(accumulation)
    return opts


@pytest.mark.spec("1.3 inference pulls training weights", "1.4 detachFromDevice")
def test_train_and_validate_in_turns_on_one_device():
    torch.manual_seed(0)
    model = Classifier()
    training = poptorch.trainingModel(
        WithLoss(model), options(), poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    )
    # Its own object: dropout and batch norm are in another mode. The weights are the same.
    validation = poptorch.inferenceModel(copy_for_validation(model), options())
    train_loader = poptorch.DataLoader(options(), points(384, 0), batch_size=16, shuffle=True)
    test_loader = poptorch.DataLoader(options(), points(128, 1), batch_size=16)
    scores, losses = [], []
    for _ in range(4):
        for x, labels in train_loader:
            _, loss = training(x, labels)
        losses.append(loss.item())
        training.detachFromDevice()
        scores.append(
            sum(accuracy(validation(x), labels) for x, labels in test_loader) / len(test_loader)
        )
        validation.detachFromDevice()
    assert not training.isAttachedToDevice() and not validation.isAttachedToDevice()
    assert scores[-1] > 0.9 and losses[-1] < losses[0]
    # What validation measured is what the module on the host computes.
    reference = copy.deepcopy(model).eval()
    x, labels = next(iter(test_loader))
    torch.testing.assert_close(validation(x), reference(x).detach(), rtol=1e-4, atol=1e-4)


def copy_for_validation(model):
    """A module in eval mode that shares its weights with `model`."""
    evaluated = copy.deepcopy(model).eval()
    for ours, theirs in zip(evaluated.modules(), model.modules()):
        ours._parameters, ours._buffers = theirs._parameters, theirs._buffers
    return evaluated


@pytest.mark.spec("1.2 shallow copy", "1.3 inference pulls training weights")
def test_the_mode_is_the_one_at_the_first_call():
    torch.manual_seed(0)
    model = Classifier()
    model.train()
    training = poptorch.trainingModel(
        WithLoss(model), options(), torch.optim.SGD(model.parameters(), lr=0.05)
    )
    x, labels = points(32, 0).tensors
    training(x, labels)
    model.eval()  # compiled is compiled: training goes on in its mode, inference starts in this
    inference = poptorch.inferenceModel(model)
    assert torch.equal(inference(x), inference(x))
    statistics = model.norm.running_mean.clone()
    training(x, labels)
    assert not torch.equal(model.norm.running_mean, statistics)


@pytest.mark.spec("1.3 lazy copy to host", "1.2 pickle and copy", "1.3 load_state_dict")
def test_a_checkpoint_continues_in_a_plain_module_and_in_a_new_executor(tmp_path):
    torch.manual_seed(0)
    model = WithLoss(Classifier())
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.01)
    training = poptorch.trainingModel(model, options(2, 2), optimizer)
    loader = poptorch.DataLoader(options(2, 2), points(256, 0), batch_size=8)
    path = tmp_path / "checkpoint.pt"
    for epoch in range(3):
        for x, labels in loader:
            output, loss = training(x, labels)
        torch.save({"epoch": epoch, "model": model.state_dict(), "loss": loss}, path)
    training.destroy()

    checkpoint = torch.load(path)
    assert checkpoint["epoch"] == 2 and checkpoint["loss"].shape == ()
    plain = WithLoss(Classifier())
    plain.load_state_dict(checkpoint["model"])
    plain.eval()
    x, labels = points(256, 5).tensors
    score = accuracy(plain(x).detach(), labels)
    assert score > 0.85
    inference = poptorch.inferenceModel(plain)
    torch.testing.assert_close(inference(x), plain(x).detach(), rtol=1e-4, atol=1e-4)

    resumed = WithLoss(Classifier())
    again = poptorch.trainingModel(
        resumed, options(2, 2), poptorch.optim.AdamW(resumed.parameters(), lr=0.01)
    )
    again.load_state_dict(checkpoint["model"])
    for x, labels in loader:
        _, loss = again(x, labels)
    assert loss.item() < 2 * checkpoint["loss"].item() + 0.1


@pytest.mark.spec("1.3 inference pulls training weights", "1.3 host edits need a push")
def test_weights_flow_both_ways_between_two_executors_and_the_host():
    torch.manual_seed(0)
    model = WithLoss(Classifier()).eval()
    training = poptorch.trainingModel(model, options(1), torch.optim.SGD(model.parameters(), 0.1))
    inference = poptorch.inferenceModel(model, options(1))
    x, labels = points(16, 0).tensors

    def on_host():
        return copy.deepcopy(model)(x).detach()

    for _ in range(3):
        training(x, labels)
        torch.testing.assert_close(inference(x), on_host(), rtol=1e-4, atol=1e-5)
    best = copy.deepcopy(model.state_dict())
    for _ in range(3):
        training(x, labels)
    # Back to the best weights, for both.
    training.load_state_dict(best)
    inference.copyWeightsToDevice()
    torch.testing.assert_close(inference(x), on_host(), rtol=1e-4, atol=1e-5)
    output, _ = training(x, labels)
    expected = WithLoss(Classifier()).eval()
    expected.load_state_dict(best)
    torch.testing.assert_close(output, expected(x).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.spec("1.4 setOptimizer", "1.2 attribute forwarding")
def test_a_schedule_with_the_weights_watched_from_outside():
    model = WithLoss(Classifier())
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    training = poptorch.trainingModel(model, options(1), optimizer)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.0)
    x, labels = points(16, 0).tensors
    training(x, labels)
    norm_before = sum(p.norm() for p in training.parameters()).item()
    schedule.step()
    training.setOptimizer(optimizer)
    before = copy.deepcopy(training.state_dict())
    training(x, labels)
    after = training.state_dict()
    for name, value in before.items():
        if "norm.running" not in name and "num_batches" not in name:
            assert torch.equal(value, after[name]), name
    assert sum(p.norm() for p in model.parameters()).item() == pytest.approx(norm_before)


@pytest.mark.spec("1.1 trainingModel", "1.5 structures")
def test_a_model_with_a_dictionary_of_inputs_and_several_outputs():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

        def forward(self, batch, margin=1.0):
            a, b = self.embed(batch["a"]), self.embed(batch["b"])
            loss = F.cosine_embedding_loss(a, b, batch["same"], margin=0.1)
            return {"loss": loss, "distance": (a - b).norm(dim=1), "margin": margin}

    torch.manual_seed(0)
    model = Siamese()
    training = poptorch.trainingModel(
        model, options(2), poptorch.optim.Adam(model.parameters(), 0.02)
    )
    first = None
    for step in range(30):
        x, labels = points(32, step % 3).tensors
        same = torch.where(labels == labels.roll(1), 1.0, -1.0)
        result = training({"a": x, "b": x.roll(1, 0), "same": same})
        first = first if first is not None else result["loss"].item()
    assert result["distance"].shape == (16,) and result["margin"] == 1.0
    assert result["loss"].item() < first


@pytest.mark.spec("1.3 lazy copy to host")
def test_two_networks_that_train_against_each_other():
    torch.manual_seed(0)
    maker, judge = nn.Linear(2, 4), nn.Linear(4, 1)

    class JudgeStep(nn.Module):
        def __init__(self):
            super().__init__()
            self.judge = judge

        def forward(self, real, made):
            real_loss = F.softplus(-self.judge(real)).mean()
            return poptorch.identity_loss(real_loss + F.softplus(self.judge(made)).mean(), "none")

    class MakerStep(nn.Module):
        def __init__(self):
            super().__init__()
            self.maker, self.judge = maker, judge

        def forward(self, noise):
            made = self.maker(noise)
            return made, poptorch.identity_loss(F.softplus(-self.judge(made)), "mean")

    train_judge = poptorch.trainingModel(
        JudgeStep(), optimizer=torch.optim.SGD(judge.parameters(), lr=0.1)
    )
    train_maker = poptorch.trainingModel(
        MakerStep(), optimizer=torch.optim.SGD(maker.parameters(), lr=0.1)
    )
    reference = [copy.deepcopy(maker), copy.deepcopy(judge)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in reference]
    for step in range(3):
        noise = torch.randn(8, 2)
        real = points(8, step).tensors[0]
        made, _ = train_maker(noise)
        train_judge(real, made)

        ref_made = reference[0](noise)
        optimizers[0].zero_grad()
        F.softplus(-reference[1](ref_made)).mean().backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        loss = F.softplus(-reference[1](real)).mean()
        (loss + F.softplus(reference[1](ref_made.detach())).mean()).backward()
        optimizers[1].step()
    for ours, theirs in zip((maker, judge), reference):
        torch.testing.assert_close(ours.weight.detach(), theirs.weight.detach())
