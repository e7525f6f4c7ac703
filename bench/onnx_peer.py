"""ONNX Runtime as a peer: Debian has no package of it, npm has one that needs nothing else."""
import os
import pathlib
import shutil
import subprocess

from programs import BENCH, PYTHON, Failed, Program, Setting, last_words

PACKAGE = "onnxruntime-node@1.30.0"


def packages():
    """The folder with the package, which is fetched once; npm's scripts do not run."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "tessera" / PACKAGE.replace("@", "-")
    if (folder / "node_modules/onnxruntime-node/package.json").is_file():
        return folder
    if not shutil.which("npm") or not shutil.which("node"):
        raise Failed("node and npm are not installed")
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries", "0"]
    unfinished = folder.with_suffix(f".{os.getpid()}")
    unfinished.mkdir(parents=True, exist_ok=True)
    try:
        command = ["npm", "install", *options, "--prefix", str(unfinished), PACKAGE]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if result.returncode != 0:
            raise Failed(f"npm cannot fetch {PACKAGE}: {last_words(result.stderr)}")
        unfinished.rename(folder)
    except subprocess.TimeoutExpired:
        raise Failed(f"npm cannot fetch {PACKAGE}: no answer for five minutes") from None
    except OSError:
        if not folder.is_dir():  # else somebody else was quicker
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def start(workload, threads, seconds, quick, folder):
    """The program, with the network written to `folder`."""
    package_folder = packages()
    setting = Setting(threads, threads)
    command = [PYTHON, "-B", BENCH / "export_onnx.py", workload, folder] + ["quick"] * quick
    result = subprocess.run(command, env=setting.environment(), capture_output=True, text=True)
    if result.returncode != 0:
        raise Failed(f"torch.onnx.export: {last_words(result.stderr)}")
    script = [BENCH / "onnx_runtime.cjs", package_folder, folder, threads, seconds]
    command = ["node", *map(str, script)]
    return Program("onnxruntime", workload, setting, seconds, quick, command)
