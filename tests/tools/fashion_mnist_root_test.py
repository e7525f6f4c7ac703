"""tools/fashion_mnist_root: torchvision finds what it lays out, and downloads nothing."""
import gzip
import pathlib
import subprocess

import pytest
import torch
import torchvision

ROOT = pathlib.Path(__file__).parents[2]
NAMES = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]


def lay_out(*arguments):
    command = [ROOT / "tools/fashion_mnist_root", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def idx(*sizes):
    """An idx file of bytes that count up from 0."""
    count = torch.tensor(sizes).prod().item()
    header = bytes([0, 0, 8, len(sizes)]) + b"".join(size.to_bytes(4, "big") for size in sizes)
    return header + bytes(i % 10 for i in range(count))


@pytest.fixture
def data(tmp_path):
    """A data set of three training and two test images."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in NAMES:
        count = 3 if name.startswith("train") else 2
        content = idx(count, 28, 28) if "images" in name else idx(count)
        (folder / f"{name}-ubyte.gz").write_bytes(gzip.compress(content))
    return folder


def load(root, **options):
    return torchvision.datasets.FashionMNIST(str(root), **options)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("torchvision wanted to download something")

    monkeypatch.setattr(torchvision.datasets.mnist, "download_and_extract_archive", refuse)


def test_torchvision_takes_debians_files(tmp_path):
    result = lay_out(tmp_path / "a" / "new folder")
    assert (result.returncode, result.stderr) == (0, "")
    train = load(tmp_path / "a/new folder", download=True)
    test = load(tmp_path / "a/new folder", download=True, train=False)
    assert train.data.shape == (60000, 28, 28) and test.data.shape == (10000, 28, 28)
    assert train.targets.bincount().tolist() == [6000] * 10
    assert test.targets.bincount().tolist() == [1000] * 10


def test_a_second_run_writes_nothing(data, tmp_path):
    lay_out(tmp_path / "root", "--data", data)
    files = sorted((tmp_path / "root/FashionMNIST/raw").iterdir())
    before = [file.stat().st_mtime_ns for file in files]
    assert [file.name for file in files] == sorted(f"{name}-ubyte" for name in NAMES)
    result = lay_out(tmp_path / "root", "--data", data)
    assert result.returncode == 0 and "0 files written, 4 there already" in result.stdout
    assert [file.stat().st_mtime_ns for file in files] == before
    assert len(load(tmp_path / "root", download=True)) == 3


def test_a_file_that_was_cut_off_is_written_again(data, tmp_path):
    lay_out(tmp_path / "root", "--data", data)
    file = tmp_path / "root/FashionMNIST/raw/t10k-images-idx3-ubyte"
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    assert "1 files written" in lay_out(tmp_path / "root", "--data", data).stdout
    assert file.read_bytes() == whole


def test_the_environment_names_the_data(data, tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_FASHION_MNIST", str(data))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert lay_out("~/.torch/datasets").returncode == 0
    assert len(load(tmp_path / "home/.torch/datasets", train=False)) == 2


def test_help_only_explains(tmp_path):
    result = lay_out("--help")
    assert result.returncode == 0 and result.stdout.startswith("usage: fashion_mnist_root")
    assert lay_out().returncode == 2


def assert_refused(result, *words):
    assert result.returncode == 1 and result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


def test_missing_data_names_the_package(tmp_path):
    result = lay_out(tmp_path / "root", "--data", tmp_path / "nowhere")
    assert_refused(result, "nowhere/train-images", "dataset-fashion-mnist", "--data")


@pytest.mark.parametrize(
    "content, words",
    [
        (b"no gzip", "cannot be read"),
        (gzip.compress(idx(3, 28, 28))[:40], "cannot be read"),
        (gzip.compress(b"short"), "no whole idx file"),
        (gzip.compress(idx(3, 28, 28)[:-1]), "no whole idx file"),
        (gzip.compress(idx(3)), "no whole idx file"),
    ],
)
def test_a_damaged_file_leaves_nothing_behind(data, tmp_path, content, words):
    (data / "train-images-idx3-ubyte.gz").write_bytes(content)
    assert_refused(lay_out(tmp_path / "root", "--data", data), "train-images", words)
    assert list((tmp_path / "root/FashionMNIST/raw").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error(data, tmp_path):
    (tmp_path / "file").write_text("")
    assert_refused(lay_out(tmp_path / "file", "--data", data), "cannot write to", "file")
