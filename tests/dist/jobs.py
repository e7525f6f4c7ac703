"""Programs that run as several instances, and what is left of them when they have ended."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import uuid

import torch

BUILD = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR", "build")).resolve()
POPRUN = BUILD / "bin" / "poprun"
PROGRAM = pathlib.Path(__file__).with_name("program.py")
MARK = "TESSERA_TEST_JOB"  # in the environment of all that a job starts
SOON = 15  # seconds from a fault to the end of the job
PATIENCE = 120  # until a job has come to its fault, on a busy machine

ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "TESSERA_INSTANCE_TIMEOUT": "3",
    "TESSERA_NUM_THREADS": "1",
    "POPTORCH_LOG_LEVEL": "ERR",
}


def launcher(name, count=2):
    if name == "poprun":
        number = str(count)
        counts = ["--num-instances", number, "--num-replicas", number]
        return [POPRUN, *counts, "--print-topology", "no"]
    return ["mpirun", "-np", str(count), "--oversubscribe", "--bind-to", "none"]


class Job:
    """A job under a launcher; its output goes into a file."""

    def __init__(self, folder, fault, command):
        self.folder, self.fault = folder, fault
        self.mark = uuid.uuid4().hex
        self.output = folder / "output"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not is_of_launchers(name)},
            **ENVIRONMENT,
            MARK: self.mark,
            "TESSERA_DEVICE_DIR": str(folder / "devices"),
        }
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*map(str, command), sys.executable, "-B", PROGRAM, str(folder), fault],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=folder,
            )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def text(self):
        return self.output.read_text(errors="replace")

    def wait_for(self, condition, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited {seconds} s in vain; {self.text()}"
            time.sleep(0.05)

    def wait_for_text(self, pattern):
        """Of a job that may come to it late, but has not ended without."""
        over = self.process.poll
        self.wait_for(lambda: re.search(pattern, self.text()) or over() is not None, PATIENCE)
        assert re.search(pattern, self.text()), self.text()

    def faulty_process(self):
        """Waits until the instance has met its fault; its number is the last of that line."""
        words = "has met its fault, process "
        self.wait_for_text(words + r"\d+\n")
        return int(self.text().partition(words)[2].split()[0])

    def end(self, seconds=SOON):
        """The exit code, when none of its processes is left and its devices are free."""
        self.wait_for(lambda: self.process.poll() is not None, seconds)
        self.wait_for(lambda: not self.processes() and not self.devices(), 5)
        return self.process.returncode

    def processes(self):
        """Those with our mark in their environment. Zombies have none."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
        return found

    def devices(self):
        """Those that gc-monitor shows as attached."""
        monitor = [BUILD / "bin" / "gc-monitor", "--json"]
        done = subprocess.run(
            monitor, check=True, capture_output=True, text=True, env=self.environment
        )
        return json.loads(done.stdout)["attached_processes"]

    def checkpoint(self):
        return torch.load(self.folder / "checkpoint.pt")

    def results(self):
        return torch.load(self.folder / "results.pt")


def is_of_launchers(name):
    return name.startswith(("OMPI_", "PMIX_", "POPDIST_", "POPTORCH_"))
