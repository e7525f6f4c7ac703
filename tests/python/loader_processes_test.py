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
    def loading(cls, strategy, body, dataset="Numbers(50)", workers=1):
        text = PROGRAM.format(strategy=strategy, body=body, dataset=dataset, workers=workers)
        made = cls("-c", text)
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


def test_ctrl_c():
    body = "while True:\n    for batch in loader: time.sleep(0.01)"
    program = Program.loading("ForkServer", body)
    time.sleep(0.3)
    os.killpg(program.session, signal.SIGINT)
    code, _, err = program.finish()
    assert code == -signal.SIGINT and err.count("Traceback") == 1 and "KeyboardInterrupt" in err


@pytest.mark.parametrize("strategy", ["Fork", "ForkServer"])
def test_a_program_that_is_killed(strategy):
    program = Program.loading(strategy, "time.sleep(100)")
    program.process.kill()
    assert program.finish()[0] == -signal.SIGKILL


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


def test_a_script_without_a_guard_whose_class_is_needed(tmp_path):
    out, err = run_script(tmp_path, "use(Own())")
    assert out == "body\n" + ELEMENTS
    assert "`if __name__" in err and "as with SharingStrategy.Fork" in err


def test_a_script_with_a_guard(tmp_path):
    out, err = run_script(tmp_path, 'if __name__ == "__main__": use(Own())')
    assert (out, err) == ("body\nbody\n" + ELEMENTS, "")  # imported once


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
