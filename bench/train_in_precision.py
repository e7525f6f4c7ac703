"""One run of bench/precision: trains the CNN of examples/python/fashion_mnist.py in one precision
and prints its accuracy on the test images after every part of the training, as JSON.

usage: train_in_precision.py float32|nearest|stochastic|mixed tutorial|small
                             SEED IMAGES EPOCHS TESTS
"""
import dataclasses
import json
import sys

import poptorch
import torch
from models import ClassificationModel
from train_and_test import images_and_labels

BATCH = 16
LOSS_SCALING = 1024.0


@dataclasses.dataclass(frozen=True)
class Precision:
    weights: torch.dtype
    activations: torch.dtype
    stochastic: bool = False


PRECISIONS = {
    "float32": Precision(torch.float, torch.float),
    "nearest": Precision(torch.half, torch.half),
    "stochastic": Precision(torch.half, torch.half, stochastic=True),
    "mixed": Precision(torch.float, torch.half),
}
# The tutorial's own numbers; and steps so small that most of them change no weight in half.
OPTIMIZERS = {"tutorial": dict(lr=0.001, momentum=0.9), "small": dict(lr=0.00005, momentum=0.0)}


def options():
    return poptorch.Options().showCompilationProgressBar(False)


def training_of(model, precision, case, seed):
    numbers = dict(OPTIMIZERS[case], velocity_accum_type=precision.weights)
    if precision.activations == torch.half:
        numbers["loss_scaling"] = LOSS_SCALING
    opts = options().randomSeed(seed)
    opts.Precision.enableStochasticRounding(precision.stochastic)
    optimizer = poptorch.optim.SGD(model.parameters(), **numbers)
    return poptorch.trainingModel(model, opts, optimizer)


def main():
    precision, case = PRECISIONS[sys.argv[1]], sys.argv[2]
    seed, count, epochs, tests = map(int, sys.argv[3:])
    torch.manual_seed(seed)
    model = ClassificationModel().to(precision.weights)
    order = [torch.randperm(60000)[: count // BATCH * BATCH].split(BATCH) for _ in range(epochs)]
    batches = [batch for epoch in order for batch in epoch]
    training = training_of(model, precision, case, seed)
    inference = poptorch.inferenceModel(model, options())
    images, labels = images_and_labels(True)
    test_images, test_labels = images_and_labels(False)
    images, test_images = (part.to(precision.activations) for part in (images, test_images))

    def accuracy():
        right = 0
        for data, wanted in zip(test_images.split(500), test_labels.split(500)):
            right += int((inference(data, wanted)[0].argmax(1) == wanted).sum())
        return 100 * right / len(test_labels)

    points = [(0, accuracy())]
    done = 0
    for part in range(1, tests + 1):
        for batch in batches[done : part * len(batches) // tests]:
            training(images[batch], labels[batch])
        done = part * len(batches) // tests
        training.copyWeightsToHost()
        inference.copyWeightsToDevice()
        points.append((done, accuracy()))
    print(json.dumps(points))


if __name__ == "__main__":
    main()
