"""The networks that parity is promised for, with everything random switched off.

Each entry is a function without arguments that makes (model, batch), where batch(seed) makes the
arguments of one call. In training mode a model returns (output, loss).
"""

from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from models import MLP, SeedCNN


class Classifier(nn.Module):
    """A network of torchvision's with its loss."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images, labels):
        scores = self.network(images)
        return scores, F.cross_entropy(scores, labels)


class UNet(nn.Module):
    """Down by max pooling, average pooling and a strided convolution; up by a transposed
    convolution and bilinear up-sampling."""

    def __init__(self):
        super().__init__()

        def block(inputs, outputs, stride=1):
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1, stride=stride),
                nn.BatchNorm2d(outputs),
                nn.LeakyReLU(0.1),
            )

        self.enter = block(1, 8)
        self.down1 = block(8, 16)
        self.down2 = block(16, 16, stride=2)
        self.bottom = block(16, 16)
        self.up2 = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.join2 = block(32, 16)
        self.join1 = block(24, 8)
        self.leave = nn.Conv2d(8, 3, 1)

    def forward(self, images, labels):
        a = self.enter(images)
        b = self.down1(F.max_pool2d(a, 2))
        c = self.bottom(F.avg_pool2d(self.down2(b), 2))
        c = F.interpolate(c, scale_factor=2, mode="bilinear", align_corners=False)
        b = self.join2(torch.cat([self.up2(c), b], 1))
        b = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=True)
        scores = self.leave(self.join1(torch.cat([b, a], 1)))
        return scores, F.cross_entropy(scores, labels)


class Translator(nn.Module):
    """A Transformer encoder over tokens, with padding that does not count."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32, padding_idx=0)
        self.places = nn.Parameter(torch.randn(12, 32) * 0.02)
        layer = nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.norm = nn.LayerNorm(32)
        self.scores = nn.Linear(32, 50)

    def forward(self, tokens, targets):
        x = self.encoder(self.embedding(tokens) + self.places)
        scores = self.scores(self.norm(x))
        return scores, F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=0)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers = kind(10, 24, num_layers=2, batch_first=True)
        self.scores = nn.Linear(24, 5)

    def forward(self, series, labels):
        output, _ = self.layers(series)
        scores = self.scores(output[:, -1])
        return scores, F.cross_entropy(scores, labels)


class Listener(nn.Module):
    """Transcribes series of different lengths, trained with CTC."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 7))

    def forward(self, series, targets, series_lengths, target_lengths):
        scores = self.layers(series).log_softmax(-1)
        loss = F.ctc_loss(scores.transpose(0, 1), targets, series_lengths, target_lengths)
        return scores, loss


def generator(seed):
    return torch.Generator().manual_seed(seed)


def images(seed, size, channels=3, count=4, classes=10):
    g = generator(seed)
    return (
        torch.randn(count, channels, size, size, generator=g),
        torch.randint(classes, (count,), generator=g),
    )


def pixels(seed):
    g = generator(seed)
    return torch.randn(2, 1, 32, 32, generator=g), torch.randint(3, (2, 32, 32), generator=g)


def vectors(seed):
    g = generator(seed)
    return torch.randn(16, 20, generator=g), torch.randint(4, (16,), generator=g)


def sentences(seed):
    g = generator(seed)
    tokens = torch.randint(1, 50, (4, 12), generator=g)
    tokens[:, 9:] = 0
    return tokens, tokens.roll(-1, 1)


def series(seed):
    g = generator(seed)
    return torch.randn(8, 15, 10, generator=g), torch.randint(5, (8,), generator=g)


def speech(seed):
    g = generator(seed)
    return (
        torch.randn(4, 20, 8, generator=g),
        torch.randint(1, 7, (4, 6), generator=g),
        torch.tensor([20, 18, 15, 20]),
        torch.tensor([6, 4, 5, 1]),
    )


def vision_transformer():
    return torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10)


def swin():
    return torchvision.models.SwinTransformer(
        [4, 4], 24, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=10
    )


def convnext():
    from torchvision.models.convnext import CNBlockConfig

    settings = [CNBlockConfig(16, 32, 2), CNBlockConfig(32, None, 2)]
    return torchvision.models.ConvNeXt(settings, stochastic_depth_prob=0.0, num_classes=10)


ZOO = {
    "seed_cnn": (SeedCNN, partial(images, size=28, channels=1, count=16)),
    "mlp": (MLP, vectors),
    "unet": (UNet, pixels),
    "resnet18": (
        lambda: Classifier(torchvision.models.resnet18(num_classes=10)),
        partial(images, size=64, count=8),
    ),
    "mobilenet_v2": (
        lambda: Classifier(torchvision.models.mobilenet_v2(num_classes=10, dropout=0.0)),
        partial(images, size=64, count=8),
    ),
    "vit": (lambda: Classifier(vision_transformer()), partial(images, size=32)),
    "swin": (lambda: Classifier(swin()), partial(images, size=64)),
    "convnext": (lambda: Classifier(convnext()), partial(images, size=64)),
    "transformer": (Translator, sentences),
    "lstm": (lambda: Recurrent(nn.LSTM), series),
    "gru": (lambda: Recurrent(nn.GRU), series),
    "ctc": (Listener, speech),
}


def make(name):
    """A model of the zoo with fixed weights, in training mode, and its batches."""
    model_class, batch = ZOO[name]
    torch.manual_seed(11)
    model = model_class().train()
    return model, batch
