"""A PyTorch program ported: the network and its loss stay what they were, a wrapper joins them.

Reads Fashion-MNIST from ../datasets, where tools/fashion_mnist_root puts Debian's copy.
"""

import poptorch
import torch
import torch.nn as nn
import torchvision
from tqdm import tqdm


class ClassificationModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(5, 12, 5)
        self.norm = nn.GroupNorm(3, 12)
        self.fc1 = nn.Linear(972, 100)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(100, 10)
        # Over the batch, not over the classes: the original has it so, and learns nevertheless.
        self.log_softmax = nn.LogSoftmax(dim=0)

    def forward(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.relu(self.conv2(x)))
        x = torch.flatten(x, start_dim=1)
        x = self.relu(self.fc1(x))
        x = self.log_softmax(self.fc2(x))

        return x


class ModelwithLoss(nn.Module):
    def __init__(self, model, criterion):
        super().__init__()
        self.model = model
        self.criterion = criterion

    def forward(self, x, labels=None):
        output = self.model(x)
        if labels is not None:
            loss = self.criterion(output, labels)
            return output, loss
        return output


torch.manual_seed(42)
opts = poptorch.Options()

transform = torchvision.transforms.Compose(
    [torchvision.transforms.ToTensor(), torchvision.transforms.Normalize((0.5,), (0.5,))]
)
train_dataset = torchvision.datasets.FashionMNIST(
    "../datasets", transform=transform, download=True, train=True
)
test_dataset = torchvision.datasets.FashionMNIST(
    "../datasets", transform=transform, download=True, train=False
)
train_dataloader = poptorch.DataLoader(opts, train_dataset, batch_size=16, shuffle=True)
test_dataloader = poptorch.DataLoader(opts, test_dataset, batch_size=16)

model = ClassificationModel()
model.train()
criterion = nn.NLLLoss()
optimizer = poptorch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
model = ModelwithLoss(model, criterion)
training_model = poptorch.trainingModel(model, options=opts, optimizer=optimizer)

epochs = 5
for epoch in range(epochs):
    bar = tqdm(train_dataloader, desc=f"[Epoch {epoch + 1:02d}]")
    for data, labels in bar:
        output, loss = training_model(data, labels)
        bar.set_postfix(Loss=loss.item(), refresh=False)
training_model.detachFromDevice()

model.eval()
inference_model = poptorch.inferenceModel(model, options=opts)
right = 0
for data, labels in test_dataloader:
    output = inference_model(data)
    right += int((output.argmax(dim=1) == labels).sum())
inference_model.detachFromDevice()
print(f"Eval accuracy: {100 * right / (len(test_dataloader) * 16):.2f}%")
