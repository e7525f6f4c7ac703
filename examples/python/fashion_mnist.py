"""Trains the classifier of the PopTorch tutorial on Fashion-MNIST, evaluates it and uses it.

The data set is Debian's package dataset-fashion-mnist. Writes sample_images.png, classifier.pth,
confusion_matrix.png and, with --image, image_before_after.png.
"""

import argparse
import gzip
import os
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import poptorch  # noqa: E402
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
from tqdm import tqdm  # noqa: E402

CLASSES = (
    "T-shirt",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


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
        self.log_softmax = nn.LogSoftmax(dim=1)
        self.loss = nn.NLLLoss()

    def forward(self, x, labels=None):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.relu(self.conv2(x)))
        x = torch.flatten(x, start_dim=1)
        x = self.relu(self.fc1(x))
        x = self.log_softmax(self.fc2(x))
        if self.training:
            return x, self.loss(x, labels)
        return x


def read_idx(path, magic, header):
    """The bytes of a gzip'd idx file after its header, and the header's sizes."""
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        sys.exit(
            f"'{path}' is missing; install Debian's package dataset-fashion-mnist, or name the "
            "folder with --data or TESSERA_FASHION_MNIST"
        )
    except (OSError, EOFError) as error:
        sys.exit(f"'{path}' cannot be read: {error}")
    sizes = np.frombuffer(content[: 4 * header], dtype=">u4")
    if len(sizes) != header or sizes[0] != magic:
        sys.exit(f"'{path}' is no idx file of the kind that was expected ({magic})")
    values = np.frombuffer(content, dtype=np.uint8, offset=4 * header)
    if values.size != np.prod(sizes[1:].astype(np.int64)):
        sys.exit(f"'{path}' is truncated or has extra bytes")
    return values, sizes[1:].astype(np.int64)


def normalised(pixels):
    return (torch.from_numpy(pixels.astype(np.float32)) / 255 - 0.5) / 0.5


def load(folder, prefix, limit=None):
    pixels, sizes = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", 0x803, 4)
    labels, counts = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", 0x801, 2)
    if sizes[0] != counts[0]:
        sys.exit(f"'{folder}' has {sizes[0]} {prefix} images but {counts[0]} labels")
    images = normalised(pixels).reshape(-1, 1, *sizes[1:])
    return torch.utils.data.TensorDataset(
        images[:limit], torch.from_numpy(labels.astype(np.int64))[:limit]
    )


def draw_samples(dataset, path):
    plt.figure(figsize=(15, 10))
    for i in range(15):
        image, label = dataset[i]
        ax = plt.subplot(3, 5, i + 1)
        ax.set_title(CLASSES[int(label)])
        ax.axis("off")
        plt.imshow((image[0] / 2 + 0.5).numpy())
    plt.savefig(path)
    plt.close()


def train(model, options, dataset, args):
    loader = poptorch.DataLoader(options, dataset, batch_size=args.batch_size, shuffle=True)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    training_model = poptorch.trainingModel(model, options=options, optimizer=optimizer)
    for _ in tqdm(range(args.epochs), desc="epochs"):
        bar = tqdm(loader, desc="batches", leave=False)
        for data, labels in bar:
            _, loss = training_model(data, labels)
            bar.set_postfix(loss=f"{loss.mean().item():.3f}", refresh=False)
    training_model.detachFromDevice()


def evaluate(model, dataset, output):
    options = poptorch.Options()
    inference_model = poptorch.inferenceModel(model, options)
    predictions, labels = [], []
    for data, label in poptorch.DataLoader(options, dataset, batch_size=40):
        predictions += inference_model(data).max(dim=1).indices.tolist()
        labels += label.tolist()
    inference_model.detachFromDevice()

    from sklearn.metrics import ConfusionMatrixDisplay, accuracy_score, confusion_matrix

    accuracy = 100 * accuracy_score(labels, predictions)
    print(f"Eval accuracy: {accuracy:.2f}%")
    matrix = confusion_matrix(labels, predictions)
    for name, row, right in zip(CLASSES, matrix, matrix.diagonal()):
        print(f"  {name:<11} {100 * right / max(row.sum(), 1):6.2f}%")
    display = ConfusionMatrixDisplay(matrix, display_labels=CLASSES)
    display.plot(xticks_rotation="vertical")
    display.figure_.set_size_inches(9, 9)
    display.figure_.tight_layout()
    display.figure_.savefig(output / "confusion_matrix.png")
    return accuracy


def predict(weights, picture, output):
    from PIL import Image, ImageOps

    try:
        original = Image.open(picture)
        image = ImageOps.grayscale(original.resize((28, 28)))
    except OSError as error:
        sys.exit(f"'{picture}' cannot be read as a picture: {error}")
    if image.getpixel((1, 1)) > 200:  # the data set has black backgrounds
        image = ImageOps.invert(image)
    _, ax = plt.subplots(1, 2)
    ax[0].imshow(original)
    ax[0].set_title("Original image")
    ax[1].imshow(image.convert("RGBA"))
    ax[1].set_title("Transformed image")
    plt.savefig(output / "image_before_after.png")
    plt.close()

    model = ClassificationModel()
    model.load_state_dict(torch.load(weights))
    model.eval()
    result = poptorch.inferenceModel(model)(normalised(np.asarray(image)).reshape(1, 1, 28, 28))
    print("Predicted class:", CLASSES[int(result.argmax())])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        type=pathlib.Path,
        default=os.environ.get("TESSERA_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"),
        help="folder of the four idx.gz files",
    )
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--device-iterations", type=int, default=1)
    parser.add_argument("--train-limit", type=int, help="use only so many training images")
    parser.add_argument("--image", type=pathlib.Path, help="a PNG or JPEG picture to classify")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)

    options = poptorch.Options().randomSeed(42).deviceIterations(args.device_iterations)
    train_set = load(args.data, "train", args.train_limit)
    test_set = load(args.data, "t10k")
    draw_samples(train_set, args.output / "sample_images.png")

    model = ClassificationModel()
    model.train()
    train(model, options, train_set, args)
    weights = args.output / "classifier.pth"
    torch.save(model.state_dict(), weights)
    model.eval()
    accuracy = evaluate(model, test_set, args.output)
    if args.image:
        predict(weights, args.image, args.output)
    assert accuracy > 50, "training did not work: guessing gives 10 %"


if __name__ == "__main__":
    main()
