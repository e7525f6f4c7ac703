"""Training by the fast kernels, by the precise ones and by the portable ones follows eager PyTorch,
with the same bits for any number of threads."""

import os
import subprocess
import sys

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from exactness import Exactness, our_step
from models import SeedCNN, batch, relative
from zoo import Classifier

STEPS = 4


class Residual(nn.Module):
    """The parts of a ResNet, with few channels."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.conv1 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(32)
        self.conv4 = nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.norm4 = nn.BatchNorm2d(32)
        self.short = nn.Conv2d(16, 32, 1, stride=2, bias=False)
        self.classify = nn.Linear(32, 10)

    def forward(self, x, labels):
        x = F.max_pool2d(F.relu(self.norm(self.enter(x))), 3, stride=2, padding=1)
        y = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(y)) + x)
        y = F.relu(self.norm3(self.conv3(x)))
        x = F.relu(self.norm4(self.conv4(y)) + self.short(x))
        scores = self.classify(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return scores, F.cross_entropy(scores, labels)


def small_cnn():
    torch.manual_seed(3)
    return SeedCNN(), batch("SeedCNN")


def residual():
    torch.manual_seed(3)
    return Residual(), (torch.randn(8, 3, 48, 48), torch.arange(8) % 10)


NETWORKS = {"small_cnn": small_cnn, "residual": residual}


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def eager(name):
    model, inputs = NETWORKS[name]()
    optimizer = optimizer_of(model)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(*inputs)[1]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses), list(model.parameters())


def ours(name, options=None):
    model, inputs = NETWORKS[name]()
    optimizer = optimizer_of(model)
    executor = poptorch.trainingModel(model, options or poptorch.Options(), optimizer=optimizer)
    losses = torch.tensor([executor(*inputs)[1].item() for _ in range(STEPS)])
    executor.copyWeightsToHost()
    return losses, [p.detach().clone() for p in model.parameters()]


def same_bits(a, b):
    return torch.equal(a[0], b[0]) and all(map(torch.equal, a[1], b[1]))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("precision, allowed", [("fast", 1e-4), ("precise", 2e-5)])
def test_training_follows_eager(monkeypatch, name, precision, allowed):
    monkeypatch.setenv("TESSERA_PRECISION", precision)
    losses, weights = ours(name)
    wanted_losses, wanted_weights = eager(name)
    assert torch.allclose(losses, wanted_losses, rtol=allowed, atol=0)
    for weight, wanted in zip(weights, wanted_weights):
        assert relative(weight, wanted.detach()) <= allowed


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("precision", ["fast", "precise"])
def test_threads_do_not_change_bits(monkeypatch, name, precision):
    monkeypatch.setenv("TESSERA_PRECISION", precision)
    results = []
    for threads in ("1", "2"):
        monkeypatch.setenv("TESSERA_NUM_THREADS", threads)
        results.append(ours(name))
    assert same_bits(*results)


def resnet18_for_small_images():
    network = torchvision.models.resnet18(num_classes=10)
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    network.maxpool = nn.Identity()
    return Classifier(network)


@pytest.mark.parametrize("seed", range(2))
def test_large_convolutions_are_as_close_to_float64_as_eager(monkeypatch, seed):
    """With a batch of two and norms over few values, where little rounding is much."""
    monkeypatch.setenv("TESSERA_PRECISION", "fast")
    torch.manual_seed(seed)
    model, inputs = resnet18_for_small_images(), (torch.randn(2, 3, 32, 32), torch.arange(2))
    exactness = Exactness(model, inputs)
    errors = exactness.errors(our_step(model, inputs))
    ratio, where = exactness.ratio(errors)
    assert ratio <= 1, f"{where} is {ratio:.1f} times as far from float64 as it may be"
    # What is computed forwards has no corners, so that it can be held more tightly.
    for kind in ("output", "buffer"):
        names = [name for name in errors if name.startswith(kind)]
        usual = max(exactness.eager[name] for name in names)
        assert max(errors[name] for name in names) <= 3 * usual, kind


def forward_of(options):
    """A convolution that the fast way computes with fewer, larger numbers."""
    torch.manual_seed(5)
    conv = nn.Conv2d(64, 64, 3, padding=1).eval()
    return poptorch.inferenceModel(conv, options)(torch.randn(8, 64, 32, 32))


def test_each_model_has_its_own_precision(monkeypatch):
    monkeypatch.delenv("TESSERA_PRECISION", raising=False)
    usual = forward_of(poptorch.Options())
    precise = forward_of(poptorch.Options().precise())
    fast = forward_of(poptorch.Options().precise(False))
    monkeypatch.setenv("TESSERA_PRECISION", "precise")
    assert torch.equal(usual, fast)
    assert torch.equal(forward_of(poptorch.Options()), precise)
    assert torch.equal(forward_of(poptorch.Options().precise(False)), fast)
    assert not torch.equal(fast, precise)
    assert (fast - precise).abs().max() <= 2e-5 * precise.abs().max()


def test_an_unknown_precision_is_one_sentence(monkeypatch):
    monkeypatch.setenv("TESSERA_PRECISION", "nonsense")
    with pytest.raises(ValueError) as error:
        forward_of(poptorch.Options())
    assert "TESSERA_PRECISION must be 'precise' or 'fast', got 'nonsense'." in str(error.value)


PORTABLE = """
import sys
sys.path.insert(0, sys.argv[1])
from precision_test import ours
print(*(repr(loss) for loss in ours("small_cnn")[0].tolist()))
"""


def test_portable_kernels_follow_eager():
    environment = {**os.environ, "TESSERA_CPU_LEVEL": "portable"}
    command = [sys.executable, "-B", "-c", PORTABLE, os.path.dirname(__file__)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    losses = torch.tensor([float(word) for word in done.stdout.split()])
    assert torch.allclose(losses, eager("small_cnn")[0], rtol=1e-5, atol=0)
