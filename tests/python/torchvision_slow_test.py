"""One training step of torchvision's networks for classification, segmentation and video, without
trained weights, batch 2 and small images: no further from float64 than ten times what eager PyTorch
is, or than eager PyTorch from weights that are moved by ten roundings. `exactness.py` says why.

    python3 -m pytest tests/python/torchvision_slow_test.py -k resnet18
"""

from unittest import mock

import poptorch
import pytest
import torch
import torch.nn.functional as F
import torchvision
from exactness import Exactness, our_step
from torchvision.models import list_models
from torchvision.ops import StochasticDepth

BATCH, CLASSES = 2, 10
MOST_WEIGHTS = 90e6  # six copies of each, most of them in float64

# Why the others of torchvision.models are not here.
LEFT_OUT = {
    "quantized_": "trains no quantized weights",
    "rcnn": "shapes depend on what is detected",
    "retinanet": "shapes depend on what is detected",
    "fcos": "shapes depend on what is detected",
    "ssd": "shapes depend on what is detected",
    "raft": "images of 128 at least and twelve rounds of refinement: no classifier",
}

# Images are 64 wide where nothing else is said: with the usual five halvings 2x2 are left, enough
# for a batch norm to have a variance that is more than a sign.
SIZES = {
    "inception_v3": 75,
    "maxvit": 224,
    "vit_b_16": 32,
    "vit_l_16": 32,
    "vit_h_14": 28,
    "s3d": 224,
}
FRAMES = {"s3d": 16}


def value_for(table, name, usual):
    return next((value for part, value in table.items() if name.startswith(part)), usual)


def reason_to_leave_out(name):
    return next((reason for part, reason in LEFT_OUT.items() if part in name), None)


SEGMENTATION = set(list_models(torchvision.models.segmentation))
VIDEO = set(list_models(torchvision.models.video))


class WithLoss(torch.nn.Module):
    """A network with the mean of its heads' losses."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images, labels):
        scores = self.network(images)
        if isinstance(scores, dict):
            scores = list(scores.values())
        elif isinstance(scores, torch.Tensor):
            scores = [scores]
        losses = [F.cross_entropy(s, labels) for s in scores if s is not None]
        loss = poptorch.identity_loss(sum(losses) / len(losses), reduction="sum")
        return [*(s for s in scores if s is not None), loss]


def small_mvit(name):
    """Its builder knows one size only."""
    from torchvision.models.video import mvit

    build = mvit._mvit
    small = {"spatial_size": (64, 64), "temporal_size": 4}
    with mock.patch.object(mvit, "_mvit", lambda **given: build(**{**given, **small})):
        return torchvision.models.get_model(name, weights=None, num_classes=CLASSES)


def prepared(model):
    """Without chance, and with no weights at zero, which would hide what lies behind them."""
    for module in model.modules():
        if isinstance(module, (torch.nn.modules.dropout._DropoutNd, StochasticDepth)):
            module.p = 0.0
    for p in model.parameters():
        if p.dim() > 1 and p.abs().max() < 1e-4:
            torch.nn.init.normal_(p, std=0.1)
    return model.train()


def network(name):
    size = value_for(SIZES, name, 64)
    if name.startswith("mvit"):
        return small_mvit(name)
    given = {"weights": None, "num_classes": CLASSES}
    if name in SEGMENTATION:
        given["weights_backbone"] = None
        if name != "lraspp_mobilenet_v3_large":
            given["aux_loss"] = True
    if name.startswith("vit"):
        given["image_size"] = size
    if name == "inception_v3":
        given |= {"aux_logits": False, "init_weights": False}
    if name == "googlenet":
        given["init_weights"] = False
    return torchvision.models.get_model(name, **given)


def batch(name):
    size = value_for(SIZES, name, 64)
    frames = (value_for(FRAMES, name, 4),) if name in VIDEO else ()
    images = torch.randn(BATCH, 3, *frames, size, size)
    labels = (BATCH, size, size) if name in SEGMENTATION else (BATCH,)
    return images, torch.randint(CLASSES, labels)


def weights_of(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", list_models())
def test_a_training_step_is_as_close_to_float64_as_eager(monkeypatch, name):
    monkeypatch.delenv("TESSERA_PRECISION", raising=False)
    reason = reason_to_leave_out(name)
    if reason:
        pytest.skip(reason)
    torch.manual_seed(17)
    model = prepared(WithLoss(network(name)))
    if weights_of(model) > MOST_WEIGHTS:
        pytest.skip(f"{weights_of(model) / 1e6:.0f} million weights; its smaller kin are here")
    inputs = batch(name)
    exactness = Exactness(model, inputs, moves=2)
    ratio, where = exactness.ratio(exactness.errors(our_step(model, inputs)))
    assert ratio <= 1, f"{where} is {ratio:.1f} times as far from float64 as it may be"
