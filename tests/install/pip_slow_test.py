"""`pip install` that builds everything itself, for Debian's PyTorch and for pip's."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR", ROOT / "build"))
LINE = ROOT / "examples/python/01_linear.py"
# Which libraries are there once a product has been computed by oneDNN, and how far off it is; then
# the backend that torch.compile() finds by the package's entry point.
PROGRAM = """
import poptorch, torch
from poptorch._build import TORCH_SOURCE

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.ReLU(), torch.nn.Linear(500, 70))
x = torch.randn(200, 300)
expected = model(x).detach()
torch.testing.assert_close(poptorch.inferenceModel(model)(x), expected)
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "libtorch_cpu" in line}
assert TORCH_SOURCE == "pip" and len(loaded) == 1, loaded
compiled = torch.compile(model, backend="tessera")
torch.testing.assert_close(compiled(x), expected)
compiled(x).sum().backward()
assert model[0].weight.grad.abs().sum() > 0
"""


def run(*command, **variables):
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    environment.update({name: str(value) for name, value in variables.items()})
    command = [str(part) for part in command]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_pip_builds_and_installs(tmp_path):
    run("/usr/bin/python3", "-m", "venv", "--system-site-packages", tmp_path / "v")
    run(tmp_path / "v/bin/pip", "install", "--no-build-isolation", "--no-index", ROOT)
    run(tmp_path / "v/bin/python", LINE)


@pytest.fixture(scope="module")
def python_with_pips_torch():
    """TESSERA_PIP_PYTHON, or one in the build folder that pip brings PyTorch to: some GB, once."""
    given = os.environ.get("TESSERA_PIP_PYTHON")
    if given:
        return given
    place = BUILD / "tests/pip-torch"
    if not (place / "complete").is_file():
        run("/usr/bin/python3", "-m", "venv", "--clear", place)
        asked = [place / "bin/pip", "download", "--no-deps", "-d", place / "asked", "tqdm"]
        if subprocess.run(asked, capture_output=True).returncode != 0:
            pytest.skip("pip reaches no index, and TESSERA_PIP_PYTHON names no Python with PyTorch")
        run(place / "bin/pip", "install", "torch", "numpy", "setuptools", "wheel", "tqdm")
        (place / "complete").touch()
    return place / "bin/python"


def test_pip_builds_for_its_own_torch(python_with_pips_torch, tmp_path):
    python = python_with_pips_torch
    # Beside the environment, which stays as it is.
    options = ["--no-build-isolation", "--no-deps", "--target", tmp_path / "site"]
    run(python, "-m", "pip", "install", *options, ROOT)
    module = next((tmp_path / "site/poptorch").glob("poptorch_core*.so"))
    needed = run("readelf", "--dynamic", module)
    assert 0 < needed.index("libdnnl") < needed.index("libtorch_cpu"), needed
    run(python, "-B", LINE, PYTHONPATH=tmp_path / "site")
    run(python, "-B", "-c", PROGRAM, PYTHONPATH=tmp_path / "site")
