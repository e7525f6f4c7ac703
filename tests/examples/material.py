"""What the tests of the examples give them: a small data set, a picture."""
import gzip
import os
import pathlib
import subprocess

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
