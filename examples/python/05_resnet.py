"""A small residual network on colour pictures of 32 x 32, as CIFAR-10 has them.

The pictures are made by a seed, so that nothing is downloaded: each class is a soft pattern of
colours, and a picture shows it moved, fainter or stronger, under noise.
"""

import poptorch
import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 10


def make_pictures(count, generator):
    patterns = torch.randn(CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    patterns = F.interpolate(patterns, size=32, mode="bilinear", align_corners=False)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    moves = torch.randint(-4, 5, (count, 2), generator=generator).tolist()
    moved = [patterns[k].roll(move, dims=(1, 2)) for k, move in zip(labels, moves)]
    strength = 0.5 + torch.rand(count, 1, 1, 1, generator=generator)
    noise = 0.7 * torch.randn(count, 3, 32, 32, generator=generator)
    return torch.stack(moved) * strength + noise, labels


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.across = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(out + self.across(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.blocks = nn.Sequential(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x, labels=None):
        out = self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))
        if labels is None:
            return out
        return out, F.cross_entropy(out, labels)


generator = torch.Generator().manual_seed(0)
train_set = torch.utils.data.TensorDataset(*make_pictures(2048, generator))
test_pictures, test_labels = make_pictures(512, generator)

torch.manual_seed(0)
options = poptorch.Options().deviceIterations(4)
loader = poptorch.DataLoader(options, train_set, batch_size=32, shuffle=True)
model = ResNet()
optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
training = poptorch.trainingModel(model, options, optimizer)
for epoch in range(2):
    for pictures, labels in loader:
        _, loss = training(pictures, labels)
    print(f"epoch {epoch + 1}: loss {loss:.3f}")

# The statistics of the batch norms came back with the weights.
inference = poptorch.inferenceModel(model.eval())
accuracy = (inference(test_pictures).argmax(dim=1) == test_labels).float().mean()
print(f"{accuracy:.1%} of {len(test_labels)} new pictures are right")
assert accuracy > 0.9
