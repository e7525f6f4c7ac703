"""Half and mixed precision: fine-tunes a ResNet-18 on Fashion-MNIST.

The images are float16, the weights float32: layers compute in the type of what arrives, and the
update of the one trained layer is float32. Pretrained weights are taken from
$TORCH_HOME/hub/checkpoints, where they are when torchvision has fetched them once.
"""

import poptorch
import torch
import torchvision
from torch import nn
from torchvision import transforms
from tqdm import tqdm


class CustomResNet18(nn.Module):
    def __init__(self, num_classes: int):
        super().__init__()
        self.resnet18 = torchvision.models.resnet18(pretrained=True)

        # Only the new last layer learns
        for param in self.resnet18.parameters():
            param.requires_grad = False
        self.resnet18.fc = torch.nn.Linear(512, num_classes)

        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        out = self.resnet18(x)
        if self.training:
            return out, self.loss(out, labels)
        return out


transform = transforms.Compose(
    [
        transforms.Grayscale(num_output_channels=3),
        transforms.Resize(224),
        transforms.ToTensor(),
        transforms.Normalize((0.5,), (0.5,)),
        transforms.ConvertImageDtype(torch.float16),
    ]
)
train_dataset = torchvision.datasets.FashionMNIST(
    "./datasets/", transform=transform, download=True, train=True
)
num_classes = len(train_dataset.classes)

model = CustomResNet18(num_classes)
optimizer = poptorch.optim.AdamW(model.parameters(), loss_scaling=100)

opts = poptorch.Options()
opts.Popart.set("enableStochasticRounding", True)

train_dataloader = poptorch.DataLoader(
    opts,
    train_dataset,
    batch_size=12,
    shuffle=True,
    num_workers=40,
    mode=poptorch.DataLoaderMode.Async,
)
poptorch_model = poptorch.trainingModel(model, options=opts, optimizer=optimizer)

epochs = 5
for epoch in tqdm(range(epochs), desc="epochs"):
    total_loss = 0.0
    for data, labels in tqdm(train_dataloader, desc="batches", leave=False):
        output, loss = poptorch_model(data, labels)
        total_loss += loss
    print(f"Epoch {epoch+1}/{epochs} - Loss: {total_loss}")
