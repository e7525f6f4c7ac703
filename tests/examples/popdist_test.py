"""The programs for several instances: two of them learn what one process learns, and stay equal."""
import os
import pathlib
import re
import subprocess

import launch
import pytest
import torch
from material import lay_out_first_images

pytestmark = launch.needs_mpi
ROOT = pathlib.Path(__file__).parents[2]
BINARIES = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR", ROOT / "build")) / "bin"
POPRUN = [BINARIES / "poprun", "--num-instances=2", "--num-replicas=4"]
EPOCHS = 4
UPDATES = 100  # of an epoch


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The first images of Fashion-MNIST: for torchvision, and as files in the folder `packed`."""
    folder = tmp_path_factory.mktemp("data")
    lay_out_first_images(folder, train=16 * UPDATES, test=320)
    return folder


@pytest.fixture(scope="module", params=["Python", "C++"])
def program(request, data):
    """A program's command, with the data it reads."""
    if request.param == "C++":
        command = [BINARIES / "fashion_mnist_popdist", "--data", data / "packed"]
    else:
        script = ROOT / "examples/python/fashion_mnist_popdist.py"
        command = ["/usr/bin/python3", "-B", script, "--data", data]
    return command + ["--lr", "0.005", "--epochs", str(EPOCHS)]


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def output_of(*command):
    ran = run(*command)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def alone(program, tmp_path_factory):
    """What one process with four replicas prints, and its folder."""
    folder = tmp_path_factory.mktemp("alone")
    return output_of(*program, "--replicas", 4, "--output", folder), folder


@pytest.fixture(scope="module")
def together(program, tmp_path_factory):
    """What two instances with two replicas each print, and their folder."""
    folder = tmp_path_factory.mktemp("together") / "a new folder"
    return output_of(*POPRUN, *program, "--output", folder), folder


def accuracy_in(output):
    return float(re.search(r"Eval accuracy: (\d+\.\d\d)% of 320 images$", output, re.MULTILINE)[1])


def losses_in(output):
    lines = re.findall(rf"Epoch (\d)/{EPOCHS}: loss ([\d.]+)$", output, re.MULTILINE)
    assert [int(epoch) for epoch, _ in lines] == list(range(1, EPOCHS + 1)), output
    return [float(loss) for _, loss in lines]


@pytest.mark.spec("8.1 typical program")
def test_instances_learn_what_one_process_learns(alone, together):
    assert accuracy_in(together[0]) > 60  # guessing gives 10
    assert accuracy_in(together[0]) == pytest.approx(accuracy_in(alone[0]), abs=6)
    assert losses_in(together[0]) == pytest.approx(losses_in(alone[0]), rel=0.1)


@pytest.mark.spec("8.1 typical program")
def test_only_the_first_instance_speaks(together):
    lines = together[0].splitlines()
    assert len(lines) == EPOCHS + 2
    assert all(line.startswith("[1,0]<stdout>:") for line in lines), lines
    assert lines[0].endswith("Instances: 2, replicas of each: 2, images per replica and update: 4")


@pytest.mark.spec("8.1 weights")
def test_checkpoints_are_whole_and_equal(together):
    steps = [UPDATES * epoch for epoch in range(1, EPOCHS + 1)]
    names = sorted(f"model-{step}-{instance}.ckpt" for step in steps for instance in (0, 1))
    assert sorted(file.name for file in together[1].iterdir()) == names
    for step in steps:
        first, second = (torch.load(together[1] / f"model-{step}-{i}.ckpt") for i in (0, 1))
        first, second = first.get("state_dict", first), second.get("state_dict", second)
        assert len(first) == 10
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_images_that_cannot_be_shared_out(program):
    for command in (program, POPRUN + program):
        ran = run(*command, "--batch-size", 6, "--replicas", 4)
        assert ran.returncode != 0
        assert "--batch-size must be a multiple of the 4 replicas, not 6." in ran.stderr


def test_help_names_every_option(program):
    text = output_of(*program, "--help")
    for name in "data output epochs batch-size lr replicas".split():
        assert f"--{name} " in text
