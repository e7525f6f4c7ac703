"""What the tests of the examples give them: a small data set, a picture, weights."""
import gzip
import os
import pathlib
import re
import subprocess

import torch
import torchvision
from PIL import Image, ImageDraw

ROOT = pathlib.Path(__file__).parents[2]
DATA = pathlib.Path(os.environ.get("TESSERA_FASHION_MNIST") or "/usr/share/datasets/fashion-mnist")


def lay_out_first_images(root, train, test):
    """Make a folder for torchvision with only the first images of Fashion-MNIST."""
    packed = root / "packed"
    packed.mkdir(parents=True)
    for part, count in (("train", train), ("t10k", test)):
        for kind, header, sample in (("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1)):
            name = f"{part}-{kind}-ubyte.gz"
            with gzip.open(DATA / name) as file:
                content = bytearray(file.read(header + count * sample))
            content[4:8] = count.to_bytes(4, "big")
            (packed / name).write_bytes(gzip.compress(bytes(content), 1))
    command = [ROOT / "tools/fashion_mnist_root", root, "--data", packed]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def draw_trousers(path):
    """Dark trousers on white."""
    picture = Image.new("RGB", (280, 420), "white")
    draw = ImageDraw.Draw(picture)
    draw.polygon([(80, 20), (200, 20), (215, 400), (155, 400), (140, 120)], fill=(40, 60, 120))
    draw.polygon([(80, 20), (65, 400), (125, 400), (140, 120), (200, 20)], fill=(40, 60, 120))
    picture.save(path)
    return path


def write_resnet18_weights(torch_home):
    """The file that torchvision looks for before it downloads pretrained weights, with others."""
    url = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.url
    folder = torch_home / "hub/checkpoints"
    folder.mkdir(parents=True)
    torch.manual_seed(42)
    torch.save(torchvision.models.resnet18().state_dict(), folder / url.split("/")[-1])


def losses_of_fine_tuning(folder, images):
    """Runs examples/python/half_precision.py, not a line changed, on the first images of
    Fashion-MNIST; returns the losses of its epochs."""
    lay_out_first_images(folder / "datasets", train=images, test=12)
    write_resnet18_weights(folder / "torch")
    result = subprocess.run(
        ["/usr/bin/python3", "-B", ROOT / "examples/python/half_precision.py"],
        cwd=folder,
        env={**os.environ, "TORCH_HOME": str(folder / "torch")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "Downloading" not in result.stdout + result.stderr
    lines = re.findall(r"^Epoch (\d)/5 - Loss: ([\d.]+)$", result.stdout, re.MULTILINE)
    assert [number for number, _ in lines] == list("12345"), result.stdout
    return [float(loss) for _, loss in lines]
