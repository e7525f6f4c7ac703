"""No process, shared memory or hang is left behind by a loader, however its program ends."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import poptorch
import pytest
import torch

import models

HERE = pathlib.Path(__file__).parent

PROGRAM = """
import sys, time
import poptorch, torch
import datasets
loader = poptorch.DataLoader(
    poptorch.Options(),
    datasets.{dataset},
    num_workers={workers},
    mode=poptorch.DataLoaderMode.Async,
    async_options={{"sharing_strategy": poptorch.SharingStrategy.{strategy}}},
)
iterator = iter(loader)
next(iterator)
print("ready", flush=True)
{body}
"""


class Program:
    """A Python program in a session of its own, by which all its processes are known."""

    def __init__(self, *arguments, **environment):
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        self.memory_before = shared_memory()
        self.process = subprocess.Popen(
            [sys.executable, "-B", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
        self.session = self.process.pid

    @classmethod
    def loading(cls, strategy, body, dataset="Numbers(50)", workers=1, **environment):
        text = PROGRAM.format(strategy=strategy, body=body, dataset=dataset, workers=workers)
        made = cls("-c", text, **environment)
        assert _first_line(made.process.stdout) == "ready\n", made.process.communicate()
        return made

    def finish(self):
        """(return code, stdout, stderr); fails where something is left."""
        out, err = self.process.communicate(timeout=60)
        deadline = time.time() + 15
        while processes_of(self.session) or shared_memory() - self.memory_before:
            assert time.time() < deadline, (
                processes_of(self.session),
                shared_memory() - self.memory_before,
            )
            time.sleep(0.05)
        return self.process.returncode, out, err


def _first_line(pipe):
    """Byte by byte: what a buffer took beyond it, communicate() would not see."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(pipe.fileno(), 1)):
        line += byte
    return line.decode()


def shared_memory():
    return set(os.listdir("/dev/shm"))


def processes_of(session):
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found[folder.name] = (folder / "cmdline").read_text().replace("\0", " ")[:200]
        except (OSError, ValueError, IndexError):
            pass  # not a process, or gone meanwhile
    return found


def test_the_check_sees_processes():
    sleeper = Program("-c", "import time; time.sleep(60)")
    assert processes_of(sleeper.session)
    sleeper.process.kill()
    sleeper.finish()


@pytest.mark.spec("3.4 ends")
def test_an_exception_in_the_loop():
    program = Program.loading("ForkServer", "for batch in loader: raise RuntimeError('no more')")
    code, _, err = program.finish()
    assert code == 1 and err.count("Traceback") == 1 and "no more" in err


def test_the_end_of_a_program_that_did_not_terminate():
    code, out, err = Program.loading("Fork", "next(iterator); print('end')").finish()
    assert (code, out, err) == (0, "end\n", "")


def test_the_end_of_a_program_whose_dataset_hangs():
    start = time.time()
    program = Program.loading("Fork", "time.sleep(0.5)", dataset="Stuck(9, at=1)", workers=0)
    code, _, err = program.finish()
    assert (code, err) == (0, "") and time.time() - start < 40


@pytest.mark.spec("3.4 ends")
def test_ctrl_c():
    body = "while True:\n    for batch in loader: time.sleep(0.01)"
    program = Program.loading("ForkServer", body)
    time.sleep(0.3)
    os.killpg(program.session, signal.SIGINT)
    code, _, err = program.finish()
    assert code == -signal.SIGINT and err.count("Traceback") == 1 and "KeyboardInterrupt" in err


@pytest.mark.spec("3.4 ends")
@pytest.mark.parametrize(
    "strategy, how",
    [
        ("Fork", signal.SIGKILL),
        ("ForkServer", signal.SIGKILL),
        ("ForkServer", signal.SIGTERM),
        ("FileSystem", signal.SIGKILL),
    ],
)
def test_a_program_that_is_killed_in_mid_epoch(strategy, how, tmp_path):
    body = "while True:\n    for batch in loader: time.sleep(0.01)"
    program = Program.loading(strategy, body, workers=2, TMPDIR=str(tmp_path))
    time.sleep(0.3)
    program.process.send_signal(how)
    assert program.finish()[0] == -how
    assert os.listdir(tmp_path) == []


@pytest.mark.spec("3.4 ends")
def test_ctrl_c_that_a_program_expects():
    """As in a notebook: the worker gets the signal too, and has nothing to say about it."""
    body = """
for batch in loader: pass
try:
    print(loader._accessor._worker._process.pid, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("received")
"""
    program = Program.loading("ForkServer", body, workers=2)
    os.kill(int(_first_line(program.process.stdout)), signal.SIGINT)
    program.process.send_signal(signal.SIGINT)
    assert program.finish() == (0, "received\n", "")


@pytest.mark.spec("3.4 ends")
def test_a_program_that_leaves_without_a_word(tmp_path):
    body = "import os; os._exit(3)"
    program = Program.loading("ForkServer", body, workers=2, TMPDIR=str(tmp_path))
    assert program.finish() == (3, "", "")
    assert os.listdir(tmp_path) == []


@pytest.mark.spec("3.4 ends", "3.4 failing dataset")
def test_an_exception_in_the_worker():
    program = Program.loading("ForkServer", "for batch in loader: pass", "Failing(9, at=5)")
    code, _, err = program.finish()
    assert code == 1 and "ValueError: there is no sample 5" in err
    assert "datasets.py" in err and "AsynchronousDataAccessor worker failed" in err


@pytest.mark.spec("3.4 ends")
def test_a_worker_that_is_killed_in_mid_epoch():
    body = """
import os, signal
os.kill(loader._accessor._worker._process.pid, signal.SIGKILL)
try:
    for batch in loader: pass
except poptorch.Error as error:
    print(error)
"""
    code, out, err = Program.loading("ForkServer", body, workers=2).finish()
    assert code == 0, err
    assert "ended unexpectedly, with exit code -9" in out


@pytest.mark.spec("3.4 ends")
def test_a_worker_does_not_outlive_its_program_for_a_forked_child():
    body = """
import os
child = os.fork()
if child:
    print(loader._accessor._worker._process.pid, child, flush=True)
time.sleep(100)
"""
    program = Program.loading("Fork", body, workers=0)
    worker, child = _first_line(program.process.stdout).split()
    assert worker in processes_of(program.session)
    program.process.kill()
    deadline = time.time() + 15
    while worker in processes_of(program.session):
        assert time.time() < deadline
        time.sleep(0.05)
    assert child in processes_of(program.session)
    os.kill(int(child), signal.SIGKILL)
    program.finish()


@pytest.mark.spec("3.4 ends")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_a_program_that_ends_while_it_waits_for_the_first_element(how):
    text = f"""
import os, signal, threading
import poptorch, datasets
threading.Timer(1.5, os.kill, (os.getpid(), signal.{how})).start()
poptorch.AsynchronousDataAccessor(datasets.Stuck(9, at=0))
"""
    code, _, err = Program("-c", text).finish()
    assert code == -getattr(signal, how)
    assert err.count("Traceback") == (how == "SIGINT"), err


NO_ROOM = """
import resource
import poptorch, torch
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
data = [torch.zeros(1 << 20)] * 2
try:
    poptorch.AsynchronousDataAccessor(
        data, buffer_size={slots}, sharing_strategy=poptorch.SharingStrategy.{strategy}
    )
except poptorch.Error as error:
    print(error.message)
"""


@pytest.mark.spec("3.4 ends", "3.4 buffer_size")
@pytest.mark.parametrize("strategy", ["Fork", "FileSystem"])
def test_memory_that_is_full(strategy):
    """The limit says what a full disk or shared memory would say."""
    code, out, err = Program("-c", NO_ROOM.format(strategy=strategy, slots=3)).finish()
    assert code == 0, err
    assert "no room for 3 buffers of 4194304 bytes" in out and "smaller buffer_size" in out


FULL = """
import os
import poptorch, torch
import datasets
for workers in (0, 1):
    for strategy in (poptorch.SharingStrategy.Fork, poptorch.SharingStrategy.ForkServer):
        data = [torch.zeros(1 << 18)] * 4
        try:
            loader = poptorch.DataLoader(
                poptorch.Options(), data, num_workers=workers, mode=poptorch.DataLoaderMode.Async,
                async_options={"sharing_strategy": strategy},
            )
            print(len(list(loader)))
            loader.terminate()
        except poptorch.Error as error:
            print("out of shared memory" in str(error))
print(os.listdir("/dev/shm"))
"""


@pytest.mark.spec("3.4 ends")
def test_shared_memory_that_is_full():
    """Our buffers are not in /dev/shm. What PyTorch's workers send is; that it failed is told."""
    room = "mount -t tmpfs -o size=64k none /dev/shm && exec"
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*inside, f"{room} true"], capture_output=True).returncode != 0:
        pytest.skip("this user may have no /dev/shm of its own")
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [*inside, f'{room} "$0" -B -c "$1"', sys.executable, FULL],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["4", "4", "True", "True", "[]"]


@pytest.mark.spec("3.4 buffer_size")
def test_more_memory_than_the_machine_has():
    """Asking for it would let the kernel end some program, perhaps not ours."""
    text = NO_ROOM.replace("(1 << 20, 1 << 20)", "(-1, -1)").format(strategy="Fork", slots=1 << 24)
    code, out, err = Program("-c", text).finish()
    assert code == 0, err
    assert "no room for 16777216 buffers" in out and "SharingStrategy.FileSystem" in out


SCRIPT = """
import poptorch, torch
class Own(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return torch.tensor(index)
def use(dataset):
    print([element.item() for element in poptorch.AsynchronousDataAccessor(dataset)])
print("body")
"""
ELEMENTS = "[0, 1, 2, 3]\n"


def run_script(tmp_path, text):
    (tmp_path / "script.py").write_text(SCRIPT + text)
    code, out, err = Program(tmp_path / "script.py").finish()
    assert code == 0, err
    return out, err


def test_a_script_without_a_guard(tmp_path):
    out, err = run_script(tmp_path, "use([torch.tensor(i) for i in range(4)])")
    assert (out, err) == ("body\n" + ELEMENTS, "")  # nothing of the script was needed


@pytest.mark.spec("3.4 main guard")
def test_a_script_without_a_guard_whose_class_is_needed(tmp_path):
    out, err = run_script(tmp_path, "use(Own())")
    assert out == "body\n" + ELEMENTS
    assert "`if __name__" in err and "as with SharingStrategy.Fork" in err


@pytest.mark.spec("3.4 main guard")
def test_a_script_with_a_guard(tmp_path):
    out, err = run_script(tmp_path, 'if __name__ == "__main__": use(Own())')
    assert (out, err) == ("body\nbody\n" + ELEMENTS, "")  # imported once


@pytest.mark.spec("3.4 main guard")
def test_a_program_without_a_file():
    """As in a notebook: its classes cannot be imported anywhere else."""
    more = "use(Own())\nown = Own()\nown.key = lambda: 0\nuse(own)"
    code, out, err = Program("-c", SCRIPT + more).finish()
    assert code == 0 and out == "body\n" + ELEMENTS + ELEMENTS
    assert "`if __name__" in err and "cannot be pickled" in err


def test_a_guard_in_the_wrong_place(tmp_path):
    out, err = run_script(tmp_path, 'use(Own())\nif __name__ == "__main__": print("end")')
    assert out.endswith(ELEMENTS + "end\n")
    assert "ended while it imported the main program" in err


FORK_SERVER = """
import multiprocessing
import torch, poptorch, datasets
if __name__ == "__main__":
    multiprocessing.set_start_method("forkserver")
    data = datasets.Numbers(4)
    print(len(list(torch.utils.data.DataLoader(data, num_workers=1))))  # starts the server
    loader = poptorch.DataLoader(
        poptorch.Options(), data, num_workers=1, mode=poptorch.DataLoaderMode.Async,
        async_options={"sharing_strategy": poptorch.SharingStrategy.Fork},
    )
    print(len(list(loader)))
"""


def test_workers_of_a_forked_loader_have_a_fork_server_of_their_own(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(FORK_SERVER)
    code, out, err = Program(str(script)).finish()
    assert (code, out) == (0, "4\n4\n"), err


def in_a_child(work):
    """True when `work()` is true in a forked child."""
    child = os.fork()
    if child == 0:
        signal.alarm(40)  # a child that hangs dies of it
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def test_forking_after_the_threads_have_started(monkeypatch):
    monkeypatch.setenv("TESSERA_NUM_THREADS", "3")
    torch.manual_seed(0)
    model = models.BatchNormCNN()
    options = poptorch.Options()
    training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
    x, labels = models.batch("BatchNormCNN")
    for _ in range(3):
        training(x, labels)
    data = torch.utils.data.TensorDataset(x, labels)
    for arguments in (
        dict(num_workers=2),
        dict(
            num_workers=2,
            mode=poptorch.DataLoaderMode.Async,
            async_options={"sharing_strategy": poptorch.SharingStrategy.Fork},
        ),
    ):
        for batch in poptorch.DataLoader(options, data, batch_size=16, **arguments):
            training(*batch)
    inference = poptorch.inferenceModel(model.eval(), options)
    expected = inference(x)
    assert in_a_child(lambda: torch.equal(inference(x), expected))
    assert in_a_child(lambda: torch.equal(poptorch.inferenceModel(model, options)(x), expected))
    assert in_a_child(lambda: bool(training(x, labels)[1] > 0))
    assert in_a_child(lambda: inference.destroy() is None and training.destroy() is None)
    assert torch.equal(inference(x), expected)
