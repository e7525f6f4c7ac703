"""What is measured: training with SGD and momentum on one batch, over and over. Needs no torch."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Workload:
    description: str
    model: str
    images: tuple
    classes: int


def _cnn(batch):
    description = f"CNN of examples/python/fashion_mnist.py, training, batch {batch}"
    return Workload(description, "cnn", (batch, 1, 28, 28), 10)


WORKLOADS = {
    "cnn_b1": _cnn(1),
    "cnn_b16": _cnn(16),
    "cnn_b64": _cnn(64),
    "resnet18_b8": Workload(
        "torchvision's ResNet-18, training, batch 8 of 64x64 images",
        "resnet18",
        (8, 3, 64, 64),
        1000,
    ),
}
