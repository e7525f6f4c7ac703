"""The BLAS of the measured programs. Debian's PyTorch takes whichever is installed, and where that
is the reference BLAS its matrix products are some twenty times slower than with OpenBLAS. A peer at
its best has OpenBLAS, so it is fetched once, beside the system, for all sides alike.
"""
import os
import pathlib
import subprocess
import tempfile

from programs import last_words, say

PACKAGE = "libopenblas0-pthread"


def installed(root=pathlib.Path("/usr/lib")):
    """The folder of the system's BLAS: 'blas' is the reference; None where Debian's is not used."""
    found = sorted(root.glob("*/libblas.so.3"))
    return found[0].resolve().parent.name if found else None


def shares_pool(name):
    """Whether it computes with OpenMP's threads, as PyTorch does, and not with some of its own."""
    return bool(name) and "openmp" in name


def fetch(folder):
    """Unpacks the package there; returns why it cannot be done, or None."""
    try:
        with tempfile.TemporaryDirectory() as download:
            how = {"cwd": download, "capture_output": True, "text": True, "timeout": 300}
            result = subprocess.run(["apt-get", "-q", "download", PACKAGE], **how)
            for package in pathlib.Path(download).glob("*.deb"):
                result = subprocess.run(["dpkg-deb", "-x", package, folder], **how)
        return last_words(result.stderr) if result.returncode != 0 else None
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def prepare():
    """Makes the programs use OpenBLAS where they can; returns the name of the BLAS they have."""
    name = installed()
    if name != "blas":
        return name
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "tessera" / PACKAGE
    found = list(folder.glob("usr/lib/*/openblas-pthread"))
    if not found:
        reason = fetch(folder)
        found = list(folder.glob("usr/lib/*/openblas-pthread"))
        if not found:
            say(
                "PyTorch has only the reference BLAS here, so that the ratios of what multiplies "
                f"matrices flatter us: install {PACKAGE} ({reason})"
            )
            return "reference"
    paths = [str(found[0]), os.environ.get("LD_LIBRARY_PATH")]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
    return "openblas-pthread"
