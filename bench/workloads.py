"""What is measured, and the goal of each row. Needs no torch.

A ratio is how many times as fast as the peer; for memory it is ours by eager PyTorch's, where less
is better. The peer of half precision is our own float32, and a ratio is the time, or the arena, of
half by float32's: less is better too. So it is of replicas and of instances, whose peer is one of
the whole batch with all threads. The goals are what the parts of a step add up to when each
runs near what the hardware gives: docs/performance.md says more.
"""
import dataclasses
from typing import Mapping, Optional

# Both sides round differently; the losses of the first steps still agree to about 1e-6.
EXACT = 1e-3
# Winograd's transforms round to 1e-5 of the largest value, and normalisation by batch statistics,
# which here are those of few values in the deepest layers, passes that on to every layer behind.
NORMALISED = 1e-2
# Halves have three to four digits.
HALF = 5e-2


@dataclasses.dataclass(frozen=True)
class Workload:
    description: str
    model: str
    shape: tuple  # of the input
    quick_shape: tuple  # of the input with --quick
    goals: Mapping[int, Optional[float]]  # by number of threads: the rows that are measured
    # inference, compile, cached, memory, epoch, half, half_memory, replicas or instances
    kind: str = "training"
    rounds: int = 9
    tolerance: float = EXACT  # of losses and outputs, relative to the largest
    # Large networks gain from every thread: eager PyTorch at fewer is not worth the time.
    fewer_threads: bool = True
    # Whether torch.compile() with our backend is a peer too: all peers are in memory at once.
    backend: bool = True
    autotune: bool = False  # kernels are chosen by the clock


def _cnn(batch, goals):
    description = f"CNN of examples/python/fashion_mnist.py, training, batch {batch}"
    return Workload(description, "cnn", (batch, 1, 28, 28), (batch, 1, 28, 28), goals)


_RESNET = ("resnet18", (12, 3, 224, 224), (4, 3, 64, 64))
_UNET16 = ("unet16", (1, 3, 320, 512), (1, 3, 64, 96))
_UNET8 = ("unet8", (2, 3, 640, 1024), (2, 3, 64, 96))
_TRANSFORMER = ("transformer", (8, 128, 256), (2, 16, 256))
_CNN16 = ("cnn", (16, 1, 28, 28), (16, 1, 28, 28))

# How half precision rounds: to nearest, and by chance.
HALF_SIDES = ("half", "stochastic")
HALF_TIME, HALF_MEMORY = 1.15, 0.6  # goals
# Whether gradients travel between instances while others are still computed, or after all of them.
INSTANCE_SIDES = ("instances", "instances_no_overlap")
# Kinds of which less is better.
LESS_IS_BETTER = ("memory", "half", "half_memory", "replicas", "instances")
# Other ways of ours, by the kind whose peer we are ourselves.
OWN_SIDES = {"half": HALF_SIDES, "replicas": ("replicas",), "instances": INSTANCE_SIDES}
OWN_PEER = {"half": "float32", "replicas": "one replica", "instances": "one instance"}
REPLICAS = 2
INSTANCES = 2


def _half(name, network, rounds=5, kind="half"):
    what = "time of a step" if kind == "half" else "arena"
    goal = HALF_TIME if kind == "half" else HALF_MEMORY
    return Workload(
        f"{name} in half precision: the {what} by float32's",
        *network,
        {2: goal},
        kind=kind,
        rounds=rounds,
        tolerance=HALF,
    )


def _replicas(name, network, tolerance, goal):
    return Workload(
        f"{name} by {REPLICAS} replicas, each with a part of the batch: the time by one replica's",
        *network,
        {2: goal},
        kind="replicas",
        rounds=5,
        tolerance=tolerance,
    )


def _instances(name, network, tolerance, goal):
    return Workload(
        f"{name} by {INSTANCES} instances with a thread and a part of the batch each: the time by "
        "that of one with all threads",
        *network,
        {INSTANCES: goal},
        kind="instances",
        rounds=5,
        tolerance=tolerance,
    )


# Ways of torch.compile(), see compiled.py. Of Inductor's the faster one counts.
COMPILED_SIDES = ("inductor_default", "inductor_tuned", "backend")

WORKLOADS = {
    "cnn_b1": _cnn(1, {1: 12}),
    "cnn_b16": _cnn(16, {1: 5, 2: 8}),
    "cnn_b64": _cnn(64, {2: 8}),
    "mlp_b64": Workload(
        "MLP 784-512-512-10, training, batch 64", "mlp", (64, 784), (64, 784), {2: 2}
    ),
    "resnet18_b12": Workload(
        "torchvision's ResNet-18, training, batch 12 of 224x224",
        *_RESNET,
        {2: 1.9},
        rounds=5,
        tolerance=NORMALISED,
        fewer_threads=False,
    ),
    "resnet18_frozen_b12": Workload(
        "the same, frozen but for a new last layer, AdamW",
        "resnet18_frozen",
        *_RESNET[1:],
        {2: 2.2},
        rounds=5,
        tolerance=NORMALISED,
        fewer_threads=False,
    ),
    "resnet18_infer_b12": Workload(
        "ResNet-18, inference, batch 12, against ONNX Runtime, TorchScript and eager",
        *_RESNET,
        {2: 1.3},
        kind="inference",
        rounds=5,
        fewer_threads=False,
    ),
    "unet16": Workload(
        "U-Net, 16 filters, residual, depth 6, three planes of 320x512, training, batch 1",
        *_UNET16,
        {2: 2},
        rounds=3,
        tolerance=NORMALISED,
        fewer_threads=False,
    ),
    "unet8": Workload(
        "U-Net, 8 filters, plain, depth 6, three planes of 640x1024, training, batch 2",
        *_UNET8,
        {2: 2.5},
        rounds=3,
        tolerance=NORMALISED,
        fewer_threads=False,
        backend=False,
    ),
    "transformer": Workload(
        "nn.TransformerEncoder, 4 layers of 256, 8 heads, 128 tokens, training, batch 8",
        *_TRANSFORMER,
        {2: 1.5},
    ),
    "fashion_mnist_epoch": Workload(
        "one epoch of the tutorial's program with its data loading, whole process",
        "cnn",
        (60000,),
        (320,),
        {2: 3},
        kind="epoch",
        rounds=2,
        tolerance=0.05,  # the two loaders shuffle differently
    ),
    "cnn_compile": Workload(
        "wrapping and compiling the CNN's training, batch 16",
        "cnn",
        (16, 1, 28, 28),
        (16, 1, 28, 28),
        {2: 0.3},
        kind="compile",
        rounds=3,
    ),
    "resnet18_compile": Workload(
        "wrapping and compiling ResNet-18's training",
        *_RESNET,
        {2: 2},
        kind="compile",
        rounds=3,
    ),
    "unet16_compile": Workload(
        "wrapping and compiling the U-Net's training",
        *_UNET16,
        {2: 3},
        kind="compile",
        rounds=3,
    ),
    "resnet18_cached": Workload(
        "wrapping ResNet-18 with an executable cache that has its training, beside compiling it",
        *_RESNET,
        {2: 3},
        kind="cached",
        rounds=5,
    ),
    "resnet18_tuned_cached": Workload(
        "the same for a program that is autotuned",
        *_RESNET,
        {2: 3},
        kind="cached",
        rounds=3,
        autotune=True,
    ),
    "resnet18_memory": Workload(
        "peak resident memory of resnet18_b12", *_RESNET, {2: 0.8}, kind="memory", rounds=1
    ),
    "unet16_memory": Workload(
        "peak resident memory of unet16", *_UNET16, {2: 0.8}, kind="memory", rounds=1
    ),
    "cnn_half": _half("cnn_b16", _CNN16, rounds=9),
    "resnet18_half": _half("resnet18_b12", _RESNET),
    "unet16_half": _half("unet16", _UNET16, rounds=3),
    "unet8_half": _half("unet8", _UNET8, rounds=3),
    "transformer_half": _half("transformer", _TRANSFORMER, rounds=9),
    "resnet18_half_memory": _half("resnet18_b12", _RESNET, kind="half_memory"),
    "unet16_half_memory": _half("unet16", _UNET16, kind="half_memory"),
    "cnn_replicas": _replicas("cnn_b16", _CNN16, EXACT, 1.1),
    # Batch norm sees a part of the batch.
    "resnet18_replicas": _replicas("resnet18_b12", _RESNET, 0.5, 1.1),
    "cnn_instances": _instances("cnn_b16", _CNN16, EXACT, None),
    "resnet18_instances": _instances("resnet18_b12", _RESNET, 0.5, None),
}
