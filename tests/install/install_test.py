"""What `cmake --install` and `pip install` leave behind, tried the way users use it."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR", ROOT / "build"))
# Always the same folder, so that ccache knows the consumer's program again.
PLACE = BUILD / "tests/install"
CONSUMER = """
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(Tessera 0.1 REQUIRED)
add_executable(line 01_linear.cpp)
target_link_libraries(line PRIVATE Tessera::tessera)
"""
DEPLOYED = """
cmake_minimum_required(VERSION 3.25)
project(deployed LANGUAGES CXX)
find_package(Tessera 0.1 REQUIRED COMPONENTS core)
if(TARGET Tessera::tessera OR DEFINED TORCH_LIBRARIES)
  message(FATAL_ERROR "PyTorch was looked for")
endif()
add_executable(run_exported run_exported.cpp)
target_link_libraries(run_exported PRIVATE Tessera::core)
"""


def run(*command, **options):
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    environment.update(options.pop("environment", {}))
    command = [str(part) for part in command]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def packages_in(folder):
    """What a Python with this folder on its path says about poptorch."""
    script = "import poptorch; print(poptorch.__version__, poptorch.poptorch_core.__file__)"
    environment = {"PYTHONPATH": str(folder)}
    return run("/usr/bin/python3", "-B", "-c", script, environment=environment).split()


@pytest.fixture(scope="module")
def prefix():
    shutil.rmtree(PLACE, ignore_errors=True)
    run("cmake", "--install", BUILD, "--prefix", PLACE / "prefix")
    return PLACE / "prefix"


def built(prefix, name, cmake_lists, example):
    """The folder in which an installed Tessera's user has built one of the examples."""
    project = PLACE / name
    project.mkdir()
    (project / "CMakeLists.txt").write_text(cmake_lists)
    shutil.copy(ROOT / "examples/cpp" / example, project)
    options = ["-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"]
    if shutil.which("ccache"):
        options.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    run("cmake", "-S", project, "-B", project / "build", *options)
    run("cmake", "--build", project / "build")
    return project / "build"


def test_a_cpp_project_finds_builds_and_runs(prefix):
    run(built(prefix, "consumer", CONSUMER, "01_linear.cpp") / "line")


def test_a_cpp_project_runs_a_file_without_pytorch(prefix):
    program = built(prefix, "deployed", DEPLOYED, "run_exported.cpp") / "run_exported"
    libraries = run("ldd", program)
    assert "libtorch" not in libraries and "libc10" not in libraries
    seed = ROOT / "tests/readers/seeds/executable/linear"
    assert "y: f32[8,2]" in run(program, seed)


def test_only_headers_of_the_interface_are_installed(prefix):
    headers = {str(file.relative_to(prefix / "include")) for file in prefix.rglob("*.h")}
    assert "tessera/tessera.h" in headers and "tessera/api/model.h" in headers
    assert not any(name.startswith(("tessera/bindings", "tessera/cli")) for name in headers)


def test_the_package_does_not_name_the_checkout(prefix):
    for file in (prefix / "lib/cmake/Tessera").iterdir():
        text = file.read_text().replace(str(PLACE), "")
        assert not [folder for folder in ROOT.iterdir() if f"{folder}/" in text]


def test_the_command_line_is_there(prefix):
    assert run(prefix / "bin/tessera", "--version").startswith("tessera 0.")
    assert "Graphcore device listing" in run(prefix / "bin/gc-info", "-l")
    for program in ("poprun", "gc-monitor", "gc-inventory"):
        assert run(prefix / "bin" / program, "--version").startswith(f"{program} of Tessera 0.")


def test_python_imports_the_installed_packages(prefix):
    (folder,) = prefix.glob("lib/python3*/dist-packages")
    version, module = packages_in(folder)
    assert module.startswith(str(folder))
    assert not list(folder.rglob("__pycache__"))
    assert version.endswith(
        "+" + run(prefix / "bin/tessera", "--version").strip().replace(" ", ".")
    )
    environment = {"PYTHONPATH": str(folder)}
    run("/usr/bin/python3", "-B", ROOT / "examples/python/01_linear.py", environment=environment)


INSTANCES = """
import horovod.torch as hvd, popdist.poptorch
hvd.init()
assert popdist.poptorch.Options().Distributed.numProcesses == hvd.size() == 1
for module in (hvd, popdist.poptorch):
    print(module.__file__)
"""


def test_popdist_and_the_words_of_horovod_are_installed(prefix):
    (folder,) = prefix.glob("lib/python3*/dist-packages")
    environment = {"PYTHONPATH": str(folder)}
    files = run("/usr/bin/python3", "-B", "-c", INSTANCES, environment=environment).split()
    assert files == [f"{folder}/horovod/torch.py", f"{folder}/popdist/poptorch.py"]
    assert (folder / "popdist/py.typed").is_file()
    # Nothing that Horovod has too: it may be installed into the same folder, before or after.
    assert [file.name for file in (folder / "horovod").iterdir()] == ["torch.py"]


TWO_INSTANCES = """
import horovod.torch as hvd, torch
hvd.init()
print(hvd.allgather(torch.tensor([hvd.rank()])).tolist())
"""


def test_what_is_installed_runs_as_several_instances(prefix, tmp_path):
    """The library that speaks MPI is found wherever the packages are."""
    (folder,) = prefix.glob("lib/python3*/dist-packages")
    assert (prefix / "lib/tessera/libtessera_mpi.so").is_file()
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = {"PYTHONPATH": str(folder), **as_root}
    command = ["mpirun", "--oversubscribe", "-np", "2", "/usr/bin/python3", "-B", "-c"]
    said = run(*command, TWO_INSTANCES, environment=environment, cwd=tmp_path)
    assert said.split("\n")[:2] == ["[0, 1]"] * 2


def test_the_backend_of_torch_compile_is_found(prefix):
    (folder,) = prefix.glob("lib/python3*/dist-packages")
    script = """
from importlib.metadata import entry_points
(backend,) = entry_points(group="torch_dynamo_backends", name="tessera")
print(backend.value)
"""
    found = run("/usr/bin/python3", "-B", "-c", script, environment={"PYTHONPATH": str(folder)})
    assert found.strip() == "poptorch._compile_backend:tessera"


def test_pip_installs_into_a_virtual_environment(tmp_path):
    run("/usr/bin/python3", "-m", "venv", "--system-site-packages", tmp_path / "v")
    pip = (tmp_path / "v/bin/pip", "--disable-pip-version-check")
    # The module that is built already; the slow test builds its own.
    environment = {"TESSERA_BUILD_DIR": str(BUILD)}
    run(*pip, "install", "--no-build-isolation", "--no-index", ROOT, environment=environment)
    listed = json.loads(run(*pip, "list", "--format", "json"))
    (version,) = [package["version"] for package in listed if package["name"] == "poptorch"]
    script = "import poptorch; print(poptorch.__version__, poptorch.__file__)"
    said, file = run(tmp_path / "v/bin/python", "-c", script, cwd=tmp_path).split()
    assert said == version
    assert file.startswith(str(tmp_path / "v"))
    run(tmp_path / "v/bin/python", ROOT / "examples/python/01_linear.py")
    files = run(tmp_path / "v/bin/python", "-c", INSTANCES, cwd=tmp_path).split()
    assert all(file.startswith(str(tmp_path / "v")) for file in files)
    assert "gc-monitor" in run(tmp_path / "v/bin/gc-monitor")
    assert "hello" in run(tmp_path / "v/bin/poprun", "echo", "hello")
    assert (pathlib.Path(file).parent / "libtessera_mpi.so").is_file()


def test_pip_leaves_the_checkout_as_it_was():
    if not (ROOT / ".git").exists():
        pytest.skip("a copy of the tree, without git's record of what belongs to it")
    status = run("git", "status", "--porcelain", "--untracked-files", cwd=ROOT)
    assert not [line for line in status.splitlines() if "egg-info" in line or ".so" in line]
