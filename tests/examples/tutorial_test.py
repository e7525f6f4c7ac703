"""The tutorials in Python, from start to end on a part of Fashion-MNIST, not a line changed."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import torch
from material import draw_trousers, lay_out_first_images
from PIL import Image

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/python"
PYTHON = ["/usr/bin/python3", "-B"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with the data set where the programs look for it."""
    folder = tmp_path_factory.mktemp("home")
    lay_out_first_images(folder / ".torch/datasets", train=1600, test=320)
    (folder / "datasets").symlink_to(folder / ".torch/datasets")
    return folder


def run(home, folder, *command):
    """Runs a program in a new folder of the home, where it finds a picture of trousers."""
    environment = {**os.environ, "HOME": str(home), "MPLCONFIGDIR": str(home / "matplotlib")}
    (home / folder / "images").mkdir(parents=True)
    draw_trousers(home / folder / "images/trousers.jpg")
    if command[-1].suffix == ".ipynb":  # a notebook runs where it lies
        command = (*command[:-1], shutil.copy(command[-1], home / folder))
    result = subprocess.run(
        [*PYTHON, *command], cwd=home / folder, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "Downloading" not in result.stdout
    return home / folder, result.stdout


@pytest.fixture(scope="module")
def script(home):
    return run(home, "script", EXAMPLES / "fashion_mnist.py")


@pytest.fixture(scope="module")
def notebook(home):
    """The folder where the notebook ran, and all that its cells printed."""
    convert = ("-m", "nbconvert", "--to", "notebook", "--execute", "--output", "executed")
    folder, _ = run(home, "notebook", *convert, EXAMPLES / "fashion_mnist.ipynb")
    cells = json.loads((folder / "executed.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    printed = [output for output in outputs if output.get("name") == "stdout"]
    return folder, "".join("".join(output["text"]) for output in printed)


@pytest.fixture(params=["script", "notebook"])
def ran(request):
    return request.getfixturevalue(request.param)


def accuracy_in(output):
    return float(re.search(r"^Eval accuracy: (\d+\.\d\d)%$", output, re.MULTILINE)[1])


def test_it_learns(ran):
    assert accuracy_in(ran[1]) > 50  # 500 updates; guessing gives 10


def test_it_leaves_pictures(ran):
    for name in ("sample_images.png", "confusion_matrix.png", "image_before_after.png"):
        Image.open(ran[0] / name).load()


def test_wrapped_and_plain_model_agree_about_the_picture(ran):
    ipu, cpu = re.findall(r"^[IC]PU predicted class: (.+)$", ran[1], re.MULTILINE)
    assert ipu == cpu == "Trouser"


def test_script_and_notebook_train_the_same_weights(script, notebook):
    first, second = (torch.load(ran[0] / "classifier.pth") for ran in (script, notebook))
    assert list(first) == list(second)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_ported_program_learns(home):
    _, output = run(home, "porting", EXAMPLES / "fashion_mnist_porting.py")
    assert accuracy_in(output) > 50
