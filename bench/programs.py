"""The programs that are measured, each a process of its own with its number of threads."""
import dataclasses
import functools
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

from workloads import INSTANCE_SIDES, INSTANCES

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR") or ROOT / "build")
BENCH = ROOT / "bench"
PYTHON = "/usr/bin/python3"  # Debian's: another python3 that comes first on PATH has no torch


MPIRUN = ["mpirun", "--oversubscribe", "-np", str(INSTANCES)]
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Failed(Exception):
    """Something could not be measured; the sentence says why."""


def say(sentence):
    print(sentence, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a program is started."""

    threads: int
    blas_threads: int
    precise: bool = False  # ours: TESSERA_PRECISION=precise
    autotune: bool = False  # ours: TESSERA_AUTOTUNE=1
    cache: str = ""  # ours: the folder of compiled programs

    def __str__(self):
        words = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return words if self.blas_threads == self.threads else f"{words}, BLAS {self.blas_threads}"

    def environment(self):
        environment = dict(os.environ)
        environment["OMP_NUM_THREADS"] = environment["TESSERA_NUM_THREADS"] = str(self.threads)
        environment["OPENBLAS_NUM_THREADS"] = str(self.blas_threads)
        paths = [str(BUILD / "python"), environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        environment[
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES"
        ] = "1"  # or its first call would be another
        ours = {
            "TESSERA_PRECISION": "precise" if self.precise else "",
            "TESSERA_AUTOTUNE": "1" if self.autotune else "",
            "POPTORCH_CACHE_DIR": self.cache,
        }
        for name, value in ours.items():
            environment.pop(name, None)
            if value:
                environment[name] = value
        return environment


def cpu_name():
    """The processor, and how many of its CPUs there are for us."""
    name = platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
    return f"{name}, {len(os.sched_getaffinity(0))} CPUs"


def commit():
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty"]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return result.stdout.strip() or "unknown"


@functools.lru_cache(maxsize=None)
def torch_version():
    command = [PYTHON, "-c", "import torch; print(torch.__version__)"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise Failed(last_words(result.stderr))
    return result.stdout.strip()


def has_torch_compile():
    return int(torch_version().partition(".")[0]) >= 2


class Measured:
    """One side of a workload and what was measured of it."""

    def __init__(self, side, workload, setting):
        self.side = side
        self.setting = setting
        self.threads = setting.threads
        self.label = f"{workload}, {side}, {setting}"
        self.seconds = []
        self.values = []
        self.flops = None

    def median(self):
        return statistics.median(self.seconds)


class Program(Measured):
    """A process that answers in lines of JSON: see worker.py."""

    def __init__(self, side, workload, setting, seconds, quick, command=None):
        super().__init__(side, workload, setting)
        words = [PYTHON, "-B", BENCH / "worker.py", side, workload, str(seconds)]
        environment = setting.environment()
        if side in INSTANCE_SIDES:
            words = MPIRUN + words
            environment["TESSERA_NUM_THREADS"] = str(max(1, setting.threads // INSTANCES))
            environment["TESSERA_OVERLAP"] = "0" if side == "instances_no_overlap" else "1"
            environment.update(MPI_AS_ROOT)
        self.waited, self.bytes = [], 0
        self.complaints = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command or words + ["quick"] * quick,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            text=True,
        )

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.complaints.seek(0)
            killed = f"it was ended by signal {-status}; is there enough memory?"
            words = killed if status < 0 else last_words(self.complaints.read())
            raise Failed(f"{self.label}: {words}")
        return json.loads(line)

    def warm_up(self):
        answer = self.answer()
        self.values, self.first_seconds = answer["values"], answer["seconds"]
        self.flops = answer.get("flops")
        self.peak_bytes = answer.get("peak_bytes")

    def measure(self):
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it is gone, and its answer says why
        answer = self.answer()
        self.seconds.append(answer["seconds"])
        if "waited" in answer:
            self.waited.append(answer["waited"])
            self.bytes = answer["bytes"]

    def end(self):
        if self.side in INSTANCE_SIDES:  # all of them end when the first is told nothing more
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                pass
            self.process.stdin = None
        self.process.kill()
        self.process.communicate()
        self.complaints.close()


class Epoch(Measured):
    """A whole process, started anew for every turn: see epoch.py."""

    def __init__(self, side, workload, setting, folder, workers, images):
        super().__init__(side, workload, setting)
        self.label += f", {workers} loading"
        words = [PYTHON, "-B", BENCH / "epoch.py", side, folder, workers, images]
        self.command = [str(word) for word in words]

    def measure(self):
        start = time.perf_counter()
        result = subprocess.run(
            self.command, env=self.setting.environment(), capture_output=True, text=True
        )
        seconds = time.perf_counter() - start
        if result.returncode != 0:
            raise Failed(f"{self.label}: {last_words(result.stderr)}")
        self.seconds.append(seconds)
        self.values = [float(result.stdout)]


def last_words(text):
    words = text.strip().splitlines()
    return words[-1] if words else "ended without a word"


def fma_peak():
    """The operations per second that one thread can do; None where that is not known."""
    try:
        result = subprocess.run([BUILD / "bin/fma_peak"], capture_output=True, text=True)
    except OSError:
        say(f"there is no '{BUILD / 'bin/fma_peak'}': no row says its percentage of the peak")
        return None
    return 1e9 * float(result.stdout) if re.match(r"\d", result.stdout) else None
