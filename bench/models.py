"""The models that are measured. Each returns its output and its loss."""
import torch
from torch import nn


class ClassificationModel(nn.Module):
    """The network of examples/python/fashion_mnist.py."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(5, 12, 5)
        self.norm = nn.GroupNorm(3, 12)
        self.fc1 = nn.Linear(972, 100)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(100, 10)
        self.log_softmax = nn.LogSoftmax(dim=1)
        self.loss = nn.NLLLoss()

    def forward(self, x, labels):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.relu(self.conv2(x)))
        x = torch.flatten(x, start_dim=1)
        x = self.relu(self.fc1(x))
        x = self.log_softmax(self.fc2(x))
        return x, self.loss(x, labels)


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels):
        output = self.model(x)
        return output, self.loss(output, labels)


def resnet18():
    import torchvision  # slow to load: only where it is needed

    return WithLoss(torchvision.models.resnet18())


def make(workload):
    """The model and one batch, the same in every process."""
    torch.manual_seed(0)
    model = {"cnn": ClassificationModel, "resnet18": resnet18}[workload.model]().train()
    labels = torch.randint(workload.classes, workload.images[:1])
    return model, (torch.randn(workload.images), labels)
