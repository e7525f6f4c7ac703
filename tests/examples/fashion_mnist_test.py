"""examples/cpp/fashion_mnist.cpp: what it writes, prints and refuses, and PyTorch's view of it."""
import gzip
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

import pytest
import torch
from material import draw_trousers
from PIL import Image, ImageOps
from torch import nn

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR", ROOT / "build")) / "bin/fashion_mnist"
CLASSES = "T-shirt Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag".split() + ["Ankle boot"]
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


class ClassificationModel(nn.Module):
    """The tutorial's network, as Python programs have it."""

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

    def forward(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.relu(self.conv2(x)))
        x = torch.flatten(x, start_dim=1)
        return self.log_softmax(self.fc2(self.relu(self.fc1(x))))


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)


def as_the_tutorial_sees(path):
    image = ImageOps.grayscale(Image.open(path).resize((28, 28)))
    if image.getpixel((1, 1)) > 200:
        image = ImageOps.invert(image)
    pixels = torch.tensor(list(image.getdata()), dtype=torch.float32).reshape(1, 1, 28, 28)
    return (pixels / 255 - 0.5) / 0.5


def predictions_in(output):
    """[(class, percent)] of the best three, and the class that is named first."""
    named = re.search(r"^Predicted class: (.+)$", output, re.MULTILINE)[1]
    best = re.findall(r"^  (\S.*?) +([\d.]+)%$", output, re.MULTILINE)
    return named, [(name, float(percent)) for name, percent in best]


def python_model(weights):
    model = ClassificationModel()
    model.load_state_dict(torch.load(weights))
    return model.eval()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short training: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("trained") / "a new folder"
    trousers = draw_trousers(folder.parent / "trousers.png")
    limits = ("--train-limit", 2000, "--epochs", 1, "--batch-size", 4)
    result = run(*limits, "--output", folder, "--image", trousers)
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


def test_writes_weights_and_pictures(trained):
    folder, _ = trained
    pictures = ["confusion_matrix.png", "image_before_after.png", "loss_curve.png"]
    pictures.append("sample_images.png")
    assert sorted(file.name for file in folder.iterdir()) == ["classifier.pth", *pictures]
    for name in pictures:
        assert (folder / name).read_bytes().startswith(PNG_MAGIC)
        Image.open(folder / name).load()


def test_counts_every_test_image(trained):
    output = trained[1]
    accuracy = float(re.search(r"^Eval accuracy: (\d+\.\d\d)%$", output, re.MULTILINE)[1])
    rows = [re.search(rf"^{name} +1000 +([\d.]+)%$", output, re.MULTILINE) for name in CLASSES]
    assert all(rows)
    assert sum(float(row[1]) for row in rows) / 10 == pytest.approx(accuracy, abs=0.01)
    assert accuracy > 55  # 500 updates; guessing gives 10


def test_table_is_aligned(trained):
    lines = trained[1].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("Class"))
    assert len({len(line) for line in lines[first : first + 11]}) == 1


def test_pytorch_predicts_the_same_with_the_saved_weights(trained):
    folder, output = trained
    model = python_model(folder / "classifier.pth")
    with torch.no_grad():
        logarithms = model(as_the_tutorial_sees(folder.parent / "trousers.png"))
    values, indices = logarithms.exp().flatten().topk(3)
    named, best = predictions_in(output)
    assert [name for name, _ in best] == [CLASSES[i] for i in indices]
    assert named == best[0][0]
    assert [percent for _, percent in best] == pytest.approx((100 * values).tolist(), abs=0.02)


def test_pytorch_measures_the_same_accuracy(trained):
    folder, output = trained
    data = pathlib.Path("/usr/share/datasets/fashion-mnist")
    data = pathlib.Path(os.environ.get("TESSERA_FASHION_MNIST") or data)
    pixels = gzip.decompress((data / "t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((data / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:]
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).reshape(-1, 1, 28, 28)
    model = python_model(folder / "classifier.pth")
    with torch.no_grad():
        said = model((images / 255 - 0.5) / 0.5).argmax(dim=1)
    right = (said == torch.frombuffer(bytearray(labels), dtype=torch.uint8)).double().mean()
    accuracy = float(re.search(r"Eval accuracy: ([\d.]+)%", output)[1])
    assert accuracy == pytest.approx(100 * right.item(), abs=0.05)


def test_predict_only_needs_no_data(trained, tmp_path):
    folder, output = trained
    weights = ("--weights", folder / "classifier.pth", "--data", tmp_path / "nowhere")
    image = ("--image", folder.parent / "trousers.png", "--output", tmp_path / "out")
    result = run("--predict-only", *weights, *image)
    assert result.returncode == 0, result.stderr
    assert predictions_in(result.stdout) == predictions_in(output)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["image_before_after.png"]


def test_the_seed_decides_everything_and_device_iterations_nothing(tmp_path):
    weights = []
    for options in [(), ("--device-iterations", 5), ("--seed", 7)]:
        folder = tmp_path / str(len(weights))
        result = run("--train-limit", 320, "--epochs", 2, "--output", folder, *options)
        assert result.returncode == 0, result.stderr
        weights.append(torch.load(folder / "classifier.pth"))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["fc1.weight"], weights[2]["fc1.weight"])


# ---- What goes wrong ----


def assert_refused(result, *words):
    """One sentence on stderr, with these words in it."""
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert str(word) in result.stderr


def idx_files(folder, magic=0x803, missing_bytes=0):
    """A tiny data set of 20 black images; the training images may be damaged."""
    folder.mkdir()
    for split in ("train", "t10k"):
        pixels = struct.pack(">4I", 0x803, 20, 28, 28) + bytes(20 * 28 * 28)
        if split == "train":
            pixels = struct.pack(">I", magic) + pixels[4 : len(pixels) - missing_bytes]
        (folder / f"{split}-images-idx3-ubyte").write_bytes(pixels)
        labels = struct.pack(">2I", 0x801, 20) + bytes(range(10)) * 2
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(labels)
    return folder


def test_missing_data(tmp_path):
    missing = tmp_path / "missing"
    assert_refused(run("--data", missing, "--output", tmp_path), missing, "--data")


def test_truncated_data(tmp_path):
    data = idx_files(tmp_path / "data", missing_bytes=100)
    assert_refused(run("--data", data, "--output", tmp_path), "train-images-idx3-ubyte")


def test_wrong_magic(tmp_path):
    data = idx_files(tmp_path / "data", magic=0x12345678)
    assert_refused(run("--data", data, "--output", tmp_path), "0x12345678")


def test_too_few_images_for_a_call(tmp_path):
    result = run("--data", idx_files(tmp_path / "data"), "--output", tmp_path, "--batch-size", 21)
    assert_refused(result, "21", "20", "--batch-size")


def test_picture_that_is_none(tmp_path):
    text = tmp_path / "text.png"
    text.write_text("no picture")
    assert_refused(run("--image", text, "--output", tmp_path), text)


def test_missing_picture(tmp_path):
    missing = tmp_path / "missing.png"
    assert_refused(run("--image", missing, "--output", tmp_path), missing)


def test_output_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file/below", "/proc/nothing"):
        assert_refused(run("--output", folder), folder, "--output")


def test_output_that_is_in_the_way(tmp_path):
    (tmp_path / "sample_images.png").mkdir()
    assert_refused(run("--output", tmp_path), tmp_path / "sample_images.png")
    assert [file.name for file in tmp_path.iterdir()] == ["sample_images.png"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    assert_refused(run("--output", tmp_path), tmp_path / "sample_images.png")


@pytest.mark.parametrize("content", [None, b"", b"no weights"])
def test_weights_that_are_none(tmp_path, content):
    weights = tmp_path / "weights.pth"
    if content is not None:
        weights.write_bytes(content)
    image = draw_trousers(tmp_path / "trousers.png")
    result = run("--predict-only", "--weights", weights, "--image", image, "--output", tmp_path)
    assert_refused(result, weights)


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["--epochs", "0"], "--epochs"),
        (["--epochs", "many"], "--epochs"),
        (["--seed", "-1"], "--seed"),
        (["--nothing"], "--nothing"),
        (["--predict-only"], "--image"),
        (["--predict-only", "--image", "a.png"], "--weights"),
        (["--weights", "a.pth"], "--predict-only"),
    ],
)
def test_wrong_usage(arguments, word):
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert word in result.stderr


def test_help_names_every_option():
    result = run("--help")
    assert result.returncode == 0
    for name in "data output epochs batch-size device-iterations train-limit seed image".split():
        assert f"--{name} " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_interrupt_ends_promptly_and_leaves_whole_files(tmp_path):
    program = [PROGRAM, "--output", tmp_path, "--device-iterations", "3750", "--epochs", "1000"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "sample_images.png").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)  # into the compilation or the training
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    stdout, stderr = process.communicate(timeout=60)
    assert time.monotonic() - start < 5
    assert process.returncode == -signal.SIGINT
    assert stdout == ""
    assert stderr.endswith("Interrupted.\n")
    assert [file.name for file in tmp_path.iterdir()] == ["sample_images.png"]
