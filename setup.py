"""Builds the Python packages with CMake, for pip.

Builds in build-pip/. With TESSERA_BUILD_DIR=<folder>, in that CMake folder, which may be one that
is built already.
"""
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).parent.resolve()
SCRATCH = ROOT / "build-pip"
# The launcher, and programs that show who uses which virtual IPU. They need nothing of Python.
PROGRAMS = ["poprun", "gc-monitor", "gc-info", "gc-inventory"]


def version():
    """The one in CMakeLists.txt."""
    text = (ROOT / "CMakeLists.txt").read_text()
    ours = re.search(r"project\(tessera VERSION (\S+)", text)[1]
    packages = re.search(r'set\(TESSERA_POPTORCH_VERSION "(.+)"\)', text)[1]
    return packages.replace("${PROJECT_VERSION}", ours)


def build_jobs():
    script = f"source '{ROOT}/tools/setup.sh' && compile_jobs"
    return subprocess.run(["bash", "-c", script], check=True, stdout=subprocess.PIPE).stdout.strip()


class Torch:
    """The PyTorch that this Python has: what is built for it runs with no other."""

    ASK = "import torch; print(torch.__version__, torch.__file__, torch._C._GLIBCXX_USE_CXX11_ABI)"

    def __init__(self):
        command = [sys.executable, "-c", self.ASK]
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if found.returncode != 0:
            sys.exit(
                f"{sys.executable} has no PyTorch to build for; pip's --no-build-isolation shows it"
            )
        version, file, new_abi = found.stdout.split()
        self.version = version
        self.release = ".".join(version.split(".")[:2])
        self.root = pathlib.Path(file).parent
        # In Debian's folder are links to libraries that carry their version in their names.
        library = self.root / "lib" / "libtorch_cpu.so"
        in_wheel = library.is_file() and library.resolve().name == library.name
        self.source = "pip" if in_wheel else "Debian"
        if new_abi != "True":
            sys.exit(
                f"PyTorch {version} was built with the C++ interface of before 2015, and Debian's "
                "libraries were not: take PyTorch 2.7 or later"
            )


TORCH = Torch()


class CMakeBuild(build_ext):
    """Takes the extension module, and what CMake wrote beside it, from a CMake folder."""

    def build_extension(self, extension):
        # A folder for each Python and PyTorch: CMake keeps what it found.
        own = f"{sysconfig.get_config_var('SOABI')}-torch-{TORCH.version}-{TORCH.source}"
        folder = pathlib.Path(os.environ.get("TESSERA_BUILD_DIR") or SCRATCH / own).resolve()
        if not (folder / "CMakeCache.txt").is_file() or folder.parent == SCRATCH:
            options = ["-DCMAKE_BUILD_TYPE=Release", "-DTESSERA_TESTS=OFF"]
            options.append(f"-DPython_EXECUTABLE={sys.executable}")
            if TORCH.source == "pip":
                options.append(f"-DTESSERA_TORCH_ROOT={TORCH.root}")
            self.run_or_exit(["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, *options])
        jobs = ["--parallel", build_jobs()]
        targets = ["poptorch_core", "tessera_instances", *PROGRAMS]
        self.run_or_exit(["cmake", "--build", folder, "--target", *targets, *jobs])
        for program in PROGRAMS:
            shutil.copy(folder / "bin" / program, SCRATCH / "bin")
        module = pathlib.Path(self.get_ext_fullpath(extension.name))
        module.parent.mkdir(parents=True, exist_ok=True)
        built = folder / "python" / module.parent.name
        for file in (module.name, "_build.py"):
            if not (built / file).is_file():
                sys.exit(f"'{built}' has no {file}: it was built for another Python")
        said = runpy.run_path(str(built / "_build.py"))
        if (said["TORCH"], said["TORCH_SOURCE"]) != (TORCH.release, TORCH.source):
            sys.exit(
                f"'{folder}' was built for PyTorch {said['TORCH']} from {said['TORCH_SOURCE']}, "
                f"and {sys.executable} has {TORCH.version} from {TORCH.source}"
            )
        for file in (module.name, "_build.py"):
            shutil.copy(built / file, module.parent)
        # Opened where there are several instances; there is none where MPI was not installed.
        mpi = folder / "lib" / "libtessera_mpi.so"
        if mpi.is_file():
            shutil.copy(mpi, module.parent)

    @staticmethod
    def run_or_exit(command):
        try:
            subprocess.run(command, check=True)
        except FileNotFoundError:
            sys.exit(f"{command[0]} is not installed: see tools/packages.txt, section [build]")
        except subprocess.CalledProcessError:
            sys.exit(f"'{' '.join(map(str, command))}' failed; its output stands above")


# setuptools would write into build/, which is CMake's, and beside the sources; and it would keep
# files of earlier builds.
(SCRATCH / "bin").mkdir(parents=True, exist_ok=True)
shutil.rmtree(SCRATCH / "lib", ignore_errors=True)
setup(
    version=version(),
    # Debian's PyTorch asks for packages that Debian has in other versions: pip would replace it.
    # Whether it is the right one, importing finds out.
    install_requires=[f"torch == {TORCH.release}.*", "tqdm"] if TORCH.source == "pip" else ["tqdm"],
    # horovod is a part of a name that Horovod itself may have too: it has no __init__.py.
    packages=[*find_packages("python"), "horovod"],
    package_dir={"": "python"},
    package_data={"": ["*.pyi", "py.typed"]},
    ext_modules=[Extension("poptorch.poptorch_core", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    data_files=[("bin", [f"{SCRATCH.name}/bin/{program}" for program in PROGRAMS])],
    options={
        "build": {"build_base": str(SCRATCH), "build_lib": str(SCRATCH / "lib")},
        "egg_info": {"egg_base": str(SCRATCH)},
        "bdist_wheel": {"bdist_dir": str(SCRATCH / "wheel")},
    },
)
