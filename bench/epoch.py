"""The training of examples/python/fashion_mnist.py without its plots and progress bars: one epoch.

usage: epoch.py ours|eager FOLDER WORKERS IMAGES

FOLDER has the data set as torchvision expects it. Prints the mean loss. bench/run times the whole
process.
"""
import sys

import torch
import torchvision
from models import ClassificationModel


def main():
    side, folder, workers, images = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.manual_seed(42)
    transform = torchvision.transforms.Compose(
        [torchvision.transforms.ToTensor(), torchvision.transforms.Normalize((0.5,), (0.5,))]
    )
    dataset = torchvision.datasets.FashionMNIST(folder, transform=transform, train=True)
    if images < len(dataset):
        dataset = torch.utils.data.Subset(dataset, range(images))
    model = ClassificationModel().train()
    loading = {"batch_size": 16, "shuffle": True, "num_workers": workers}
    settings = {"lr": 0.001, "momentum": 0.9}
    if side == "ours":
        import poptorch

        options = poptorch.Options().showCompilationProgressBar(False)
        loader = poptorch.DataLoader(options, dataset, **loading)
        optimizer = poptorch.optim.SGD(model.parameters(), **settings)
        training = poptorch.trainingModel(model, options=options, optimizer=optimizer)
    else:
        loader = torch.utils.data.DataLoader(dataset, **loading)
        optimizer = torch.optim.SGD(model.parameters(), **settings)

        def training(data, labels):
            optimizer.zero_grad()
            output, loss = model(data, labels)
            loss.backward()
            optimizer.step()
            return output, loss.detach()

    total = 0.0
    for data, labels in loader:
        _, loss = training(data, labels)
        total += loss
    print(float(total) / len(loader))


if __name__ == "__main__":
    main()
