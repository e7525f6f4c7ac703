"""Half and mixed precision

The program of PopTorch's tutorial of that name: it fine-tunes a ResNet-18 on Fashion-MNIST. Images
are float16 and weights float32: layers compute in the type of what arrives, and the one layer that
learns is updated in float32. It reads the data set from ./datasets, where tools/fashion_mnist_root
puts Debian's copy, and pretrained weights from $TORCH_HOME/hub/checkpoints, where torchvision
leaves them when it has fetched them once.
"""

# fmt: off

import torch
import poptorch
import torchvision
from torch import nn
from torchvision import transforms
from tqdm import tqdm


class CustomResNet18(nn.Module):
    def __init__(self, num_classes: int):
        super().__init__()
        self.resnet18 = torchvision.models.resnet18(pretrained=True)

        # Nothing learns ...
        for param in self.resnet18.parameters():
            param.requires_grad = False

        # ... but a new last layer.
        self.resnet18.fc = torch.nn.Linear(512, num_classes)

        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        out = self.resnet18(x)
        if self.training:
            return out, self.loss(out, labels)
        return out


transform = transforms.Compose([transforms.Grayscale(num_output_channels=3),
                                transforms.Resize(224),
                                transforms.ToTensor(),
                                transforms.Normalize((0.5,), (0.5,)),
                                transforms.ConvertImageDtype(torch.float16)])

train_dataset = torchvision.datasets.FashionMNIST("./datasets/", transform=transform, download=True, train=True)  # noqa: E501
test_dataset = torchvision.datasets.FashionMNIST("./datasets/", transform=transform, download=True, train=False)  # noqa: E501
classes = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")  # noqa: E501
num_classes = len(classes)

model = CustomResNet18(10)

# Gradients are halves too: the scale keeps small ones from becoming zero.
optimizer = poptorch.optim.AdamW(model.parameters(), loss_scaling=100)

opts = poptorch.Options()

# Results are rounded up or down by chance, so that they are right in the mean.
opts.Popart.set("enableStochasticRounding", True)

train_dataloader = poptorch.DataLoader(opts,
                                       train_dataset,
                                       batch_size=12,
                                       shuffle=True,
                                       num_workers=40,
                                       mode=poptorch.DataLoaderMode.Async)

poptorch_model = poptorch.trainingModel(model, options=opts, optimizer=optimizer)

epochs = 5
for epoch in tqdm(range(epochs), desc="epochs"):
    total_loss = 0.0
    for data, labels in tqdm(train_dataloader, desc="batches", leave=False):
        output, loss = poptorch_model(data, labels)
        total_loss += loss
    print(f"Epoch {epoch+1}/{epochs} - Loss: {total_loss}")
