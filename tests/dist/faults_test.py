"""When one instance fails, all end soon and say why, and nothing is left of them."""

import os
import re
import shutil
import signal
import socket
import subprocess

import pytest
from jobs import PATIENCE, POPRUN, Job, launcher

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="openmpi-bin is not installed")

LAUNCHER = "poprun" if POPRUN.exists() else "mpirun"
BOTH = ["mpirun", "poprun"] if POPRUN.exists() else ["mpirun"]
HOST = re.escape(socket.gethostname())
ONE = rf"instance 1 on {HOST}"


@pytest.fixture
def start(tmp_path):
    jobs = []

    def start_job(fault, name=LAUNCHER):
        jobs.append(Job(tmp_path, fault, launcher(name)))
        return jobs[-1]

    yield start_job
    for job in jobs:
        job.__exit__()


def check_end(job, sentence, code=None, checkpoints=True):
    """The job ends soon, with this sentence in its output; nothing is left of it."""
    ended_with = job.end()
    text = job.text()
    assert re.search(sentence, text), text
    assert ended_with != 0 and code in (None, ended_with), text
    if checkpoints:
        assert job.checkpoint()["model"]["layers.0.weight"].shape == (64, 64)
    assert not (job.folder / "results.pt").exists()


KILLED = {
    "poprun": rf"poprun: instance 1 on host {HOST} was killed by signal 9 \(Killed\)",
    "mpirun": rf"process rank 1 .* on node {HOST} exited on signal 9",
}


@pytest.mark.parametrize("name", BOTH)
def test_an_instance_that_is_killed_ends_the_job(start, name):
    """Workers of its data loader end too."""
    job = start("kill", name)
    victim = job.faulty_process()
    os.kill(victim, signal.SIGKILL)
    check_end(job, KILLED[name], 137)


def test_an_instance_that_is_stopped_is_given_up(start):
    job = start("stop")
    victim = job.faulty_process()
    os.kill(victim, signal.SIGSTOP)
    check_end(job, rf"{ONE} has not answered for \d+ s while instance 0 on {HOST} waits in update")


def test_an_instance_that_does_not_come_is_given_up(start):
    job = start("absent")
    job.faulty_process()
    check_end(job, rf"{ONE} has not come to update \d+ of .* for 3 s, where instance 0 on {HOST}")


def test_an_instance_that_never_joins_is_given_up(start):
    job = start("late")
    job.wait_for_text("has met its fault")
    sentence = rf"after 3 s not all instances have joined this one on {HOST}"
    check_end(job, sentence, checkpoints=False)
    assert "joining the others as instance 0 of 2" in job.text()


@pytest.mark.parametrize(
    "fault, why, code",
    [
        ("loader", "failed: ValueError: this sample is damaged", 1),
        ("exit", "failed: its program ended with exit code 3", 3),
        ("memory", "failed: RuntimeError: .*can't allocate memory", 1),
    ],
)
def test_others_hear_why_an_instance_failed(start, fault, why, code):
    job = start(fault)
    job.wait_for_text(why)
    check_end(job, rf"{ONE} {why}", code)


@pytest.mark.parametrize("name", BOTH)
def test_leaving_in_the_middle_is_no_success(start, name):
    """os._exit(0): nobody can say goodbye."""
    job = start("leave", name)
    job.faulty_process()
    check_end(job, rf"(rank|instance) 1 (.|\n)*(node|host) {HOST}")


@pytest.mark.parametrize(
    "fault, why",
    [
        ("seed", "its randomSeed is 6, not 5"),
        ("options", "its deviceIterations is 2, not 1"),
        ("graph", "it has another model, optimiser, loss or batch size"),
    ],
)
def test_instances_that_differ_do_not_begin(start, fault, why):
    job = start(fault)
    job.wait_for_text("compiles another program")
    check_end(job, rf"{ONE} compiles another program .* than instance 0: {why}", checkpoints=False)


def test_different_numbers_of_batches_are_noticed(start):
    job = start("batches")
    job.faulty_process()
    check_end(job, rf"{ONE} has ended its program while instance 0 on {HOST} waits in update 11")


@pytest.fixture
def full_disk(tmp_path):
    """Room for one checkpoint, and none for two. Without leave to mount, files have a limit."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=140k", "tmpfs", str(tmp_path)]
    is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    yield
    if is_mounted:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_full_disk_leaves_the_last_checkpoint_whole(full_disk, start):
    job = start("disk")
    job.wait_for(lambda: (job.folder / "checkpoint.pt").exists(), PATIENCE)
    # PyTorch 1.13 aborts where it cannot close the file.
    zero = rf"(instance|process rank) 0 .*on (host |node )?{HOST}"
    check_end(job, rf"{zero} (failed: RuntimeError|was killed by signal 6|exited on signal 6)")
    assert re.search("file write failed|No space left", job.text())
    assert job.checkpoint()["step"] < 12


@pytest.mark.parametrize("name", BOTH)
def test_control_c_ends_the_job(start, name):
    job = start("interrupt", name)
    job.faulty_process()
    job.process.send_signal(signal.SIGINT)
    check_end(job, "has met its fault", {"poprun": 130}.get(name))
