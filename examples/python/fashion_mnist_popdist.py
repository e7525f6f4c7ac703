"""A classifier of clothes that several processes train together

    poprun --num-instances=2 --num-replicas=4 python3 fashion_mnist_popdist.py

Each process, an instance, has its part of the replicas and of the images. An update is the mean
gradient of all replicas everywhere, so that all instances have the same weights all the time.
Without poprun the program is one process, with as many replicas as --replicas says.

It reads Fashion-MNIST from ~/.torch/datasets, where tools/fashion_mnist_root puts Debian's copy.
Each instance writes the weights after each epoch, to model-<updates>-<instance>.ckpt.
"""
import argparse
import logging
import pathlib
import sys

import horovod.torch as hvd
import popdist
import popdist.poptorch
import poptorch
import torch
import torchvision
from torch import nn

TEST_BATCH_SIZE = 20


class Classifier(nn.Module):
    """Two convolutions and two linear layers; when it trains, it returns the loss too."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(5, 12, 5)
        # Each image is normalised by itself: a batch norm would see those of one replica alone.
        self.norm = nn.GroupNorm(3, 12)
        self.fc1 = nn.Linear(972, 100)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(100, 10)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.relu(self.conv2(x)))
        x = self.relu(self.fc1(torch.flatten(x, start_dim=1)))
        x = self.fc2(x)
        if self.training:
            return x, self.loss(x, labels)
        return x


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Trains a classifier of clothes, as one process or, with poprun, as several.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data", default="~/.torch/datasets", help="where torchvision finds Fashion-MNIST"
    )
    parser.add_argument("--output", default=".", help="where checkpoints go")
    parser.add_argument("--epochs", type=int, default=5, help="how often all images are seen")
    parser.add_argument(
        "--batch-size", type=int, default=16, help="images per update, of all replicas together"
    )
    parser.add_argument("--lr", type=float, default=0.001, help="the learning rate")
    parser.add_argument(
        "--replicas", type=int, default=1, help="of one process; poprun has --num-replicas"
    )
    return parser.parse_args()


def log_in_single_instance(text):
    if not popdist.isPopdistEnvSet() or popdist.getInstanceIndex() == 0:
        logging.info(text)


def make_options(replicas):
    """The options of this instance, or of a process that nobody else belongs to."""
    if popdist.isPopdistEnvSet():
        opts = popdist.poptorch.Options()  # with this instance's part of poprun's replicas
    else:
        opts = poptorch.Options().replicationFactor(replicas)
    # Instances shuffle all images alike and then take a part each, which needs a seed in common.
    return opts.randomSeed(42)


def share_of_a_replica(batch_size, opts):
    """How many of the images of an update a replica sees."""
    replicas = opts.replication_factor * hvd.size()
    if batch_size < 1 or batch_size % replicas:
        sys.exit(f"--batch-size must be a multiple of the {replicas} replicas, not {batch_size}.")
    return batch_size // replicas


def load_images(root, train):
    transform = torchvision.transforms.Compose(
        [torchvision.transforms.ToTensor(), torchvision.transforms.Normalize((0.5,), (0.5,))]
    )
    return torchvision.datasets.FashionMNIST(root, transform=transform, train=train)


def mean_over_instances(value):
    return hvd.allreduce(torch.tensor(value), name="mean").item()


def train_epoch(training, loader):
    """The mean loss of all instances."""
    total = 0.0
    for images, labels in loader:
        _, loss = training(images, labels)
        total += loss.mean().item()  # each replica has one
    return mean_over_instances(total / len(loader))


def save_checkpoint(model, folder, step, instance):
    path = folder / f"model-{step}-{instance}.ckpt"
    torch.save({"step": step, "state_dict": model.state_dict()}, path)


def evaluate(model, opts, images):
    """How many of all images were looked at by all instances, and the share that was right."""
    loader = poptorch.DataLoader(opts, images, batch_size=TEST_BATCH_SIZE)
    inference = poptorch.inferenceModel(model.eval(), opts)
    right = seen = 0
    for images, labels in loader:
        right += (inference(images).argmax(dim=1) == labels).sum().item()
        seen += len(labels)
    right, seen = hvd.allreduce(torch.tensor([right, seen]), op=hvd.Sum).tolist()
    return seen, right / max(1, seen)


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    arguments = parse_arguments()
    instance = 0
    if popdist.isPopdistEnvSet():
        popdist.init()
        instance = popdist.getInstanceIndex()
    hvd.init()  # alone, a process is the mean of all

    opts = make_options(arguments.replicas)
    batch_size = share_of_a_replica(arguments.batch_size, opts)
    log_in_single_instance(
        f"Instances: {hvd.size()}, replicas of each: {opts.replication_factor}, "
        f"images per replica and update: {batch_size}"
    )
    folder = pathlib.Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    images = load_images(arguments.data, train=True)
    loader = poptorch.DataLoader(opts, images, batch_size=batch_size, shuffle=True)

    model = Classifier()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    training = poptorch.trainingModel(model.train(), opts, optimizer)
    for epoch in range(1, arguments.epochs + 1):
        loss = train_epoch(training, loader)
        save_checkpoint(model, folder, epoch * len(loader), instance)
        log_in_single_instance(f"Epoch {epoch}/{arguments.epochs}: loss {loss:.4f}")
    training.detachFromDevice()

    seen, accuracy = evaluate(model, opts, load_images(arguments.data, train=False))
    log_in_single_instance(f"Eval accuracy: {100 * accuracy:.2f}% of {seen} images")


if __name__ == "__main__":
    main()
