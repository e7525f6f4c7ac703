"""One run of bench/accuracy: trains a network for an epoch and prints its accuracy on test images.

usage: train_and_test.py ours|eager cnn|resnet SEED IMAGES
"""
import functools
import pathlib
import subprocess
import sys
import tempfile

import torch
import torchvision
from models import ClassificationModel, WithLoss
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCH = 64
LEARNING_RATE = 0.02


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.change = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.change(x))


def resnet():
    """Small, but with 3x3 convolutions of 16 channels and more, which run by Winograd's method."""
    return WithLoss(
        nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            Residual(16, 16, 1),
            Residual(16, 32, 2),
            Residual(32, 64, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, 10),
        )
    )


@functools.lru_cache
def images_and_labels(train):
    with tempfile.TemporaryDirectory() as folder:
        command = [ROOT / "tools/fashion_mnist_root", folder]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(result.stderr.strip())
        dataset = torchvision.datasets.FashionMNIST(folder, train=train)
    return (dataset.data[:, None].float() / 255 - 0.5) / 0.5, dataset.targets


def eager_training(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)

    def step(data, labels):
        optimizer.zero_grad()
        model(data, labels)[1].backward()
        optimizer.step()

    return step, optimizer, lambda: None


def our_training(model):
    import poptorch

    options = poptorch.Options().showCompilationProgressBar(False)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    return training, optimizer, lambda: training.setOptimizer(optimizer)


def main():
    side, network, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.manual_seed(seed)
    model = {"cnn": ClassificationModel, "resnet": resnet}[network]().train()
    order = torch.randperm(60000)[: count // BATCH * BATCH].split(BATCH)
    training, optimizer, changed = {"ours": our_training, "eager": eager_training}[side](model)
    images, labels = images_and_labels(True)
    for i, batch in enumerate(order):
        # Down to zero: at a constant rate the accuracy after the last step is a matter of luck.
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - i / len(order))
        changed()
        training(images[batch], labels[batch])
    if side == "ours":
        training.copyWeightsToHost()

    # Both are judged by eager PyTorch: what was learned is compared, not how it is run.
    model.eval()
    images, labels = images_and_labels(False)
    right = 0
    with torch.no_grad():
        for data, wanted in zip(images.split(500), labels.split(500)):
            right += int((model(data, wanted)[0].argmax(1) == wanted).sum())
    print(100 * right / len(labels))


if __name__ == "__main__":
    main()
