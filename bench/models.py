"""The models that are measured. Each returns its output and its loss."""
import torch
from torch import nn
from torch.nn import functional

CLASSES = 10


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


def mlp():
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return WithLoss(nn.Sequential(*layers))


def resnet18():
    import torchvision  # slow to load: only where it is needed

    return WithLoss(torchvision.models.resnet18())


def resnet18_frozen():
    """Fine-tuning: only a new last layer learns."""
    model = resnet18()
    for parameter in model.parameters():
        parameter.requires_grad = False
    model.model.fc = nn.Linear(512, CLASSES)
    return model


class Encoder(nn.Module):
    """A classifier of sequences. Without dropout: each side has random numbers of its own."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4)
        self.leave = nn.Linear(256, CLASSES)

    def forward(self, x):
        return self.leave(self.layers(x).mean(dim=1))


def transformer():
    return WithLoss(Encoder())


class Block(nn.Module):
    """Convolution, normalisation, activation; twice and around a sum where it is residual."""

    def __init__(self, filters, residual):
        super().__init__()
        self.residual = residual
        self.conv1, self.norm1 = nn.Conv2d(filters, filters, 3, padding=1), nn.BatchNorm2d(filters)
        if residual:
            self.conv2 = nn.Conv2d(filters, filters, 3, padding=1)
            self.norm2 = nn.BatchNorm2d(filters)

    def forward(self, x):
        y = functional.leaky_relu(self.norm1(self.conv1(x)))
        if not self.residual:
            return y
        return functional.leaky_relu(self.norm2(self.conv2(y)) + x)


def changed(inputs, outputs, kernel, stride=1):
    """What leads from one number of filters to another."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=(kernel - stride + 1) // 2),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(),
    )


class UNet(nn.Module):
    """Labels every pixel of three views (planes) of the same event, as CosmicTagger does.

    Every plane passes the same layers; only at the bottom they see each other. A step down adds as
    many filters as there are at the top. The residual network joins what it passes across the U by
    concatenation, the plain one by a sum.
    """

    def __init__(self, filters, residual, depth=6, labels=3):
        super().__init__()
        self.residual = residual
        widths = [filters * (level + 1) for level in range(depth)]
        deepest = 3 * widths[-1]

        def blocks(width):
            return nn.Sequential(Block(width, residual), Block(width, residual))

        steps = list(zip(widths, widths[1:]))
        self.enter = changed(1, filters, 5)
        self.encoders = nn.ModuleList(blocks(width) for width in widths[:-1])
        self.downs = nn.ModuleList(changed(a, b, 2, stride=2) for a, b in steps)
        self.bottom = nn.Sequential(
            changed(deepest, 16 * filters, 1),
            blocks(16 * filters),
            changed(16 * filters, deepest, 1),
        )
        self.ups = nn.ModuleList(nn.Conv2d(b, a, 1) for a, b in steps)
        self.joins = nn.ModuleList(
            changed(2 * width, width, 1) if residual else nn.Identity() for width in widths[:-1]
        )
        self.decoders = nn.ModuleList(blocks(width) for width in widths[:-1])
        self.leave = nn.Conv2d(filters, labels, 1)
        self.mark_loss = lambda loss: loss  # ours must be told which tensor the loss is

    def down(self, x):
        x, across = self.enter(x), []
        for encode, down in zip(self.encoders, self.downs):
            across.append(encode(x))
            x = down(across[-1])
        return x, across

    def up(self, x, across):
        for level in reversed(range(len(across))):
            x = self.ups[level](functional.interpolate(x, scale_factor=2, mode="nearest"))
            x = torch.cat([x, across[level]], 1) if self.residual else x + across[level]
            x = self.decoders[level](self.joins[level](x))
        return self.leave(x)

    def forward(self, images, labels):
        planes = [self.down(plane) for plane in torch.chunk(images, 3, dim=1)]
        bottom = self.bottom(torch.cat([x for x, _ in planes], 1))
        scores = [
            self.up(x, across) for x, (_, across) in zip(torch.chunk(bottom, 3, dim=1), planes)
        ]
        losses = [functional.cross_entropy(s, labels[:, i]) for i, s in enumerate(scores)]
        return scores, self.mark_loss(sum(losses))


MODELS = {
    "cnn": ClassificationModel,
    "mlp": mlp,
    "resnet18": resnet18,
    "resnet18_frozen": resnet18_frozen,
    "transformer": transformer,
    "unet16": lambda: UNet(16, residual=True),
    "unet8": lambda: UNet(8, residual=False),
}


def make(workload, quick=False):
    """The model and one batch, the same in every process."""
    torch.manual_seed(0)
    model = MODELS[workload.model]().train()
    shape = workload.quick_shape if quick else workload.shape
    if workload.model.startswith("unet"):
        labels = torch.randint(3, shape)
    else:
        labels = torch.randint(CLASSES, shape[:1])
    return model, (torch.randn(shape), labels)
