"""Virtual IPUs are shared by all processes of a user: exclusive use, waiting, ids, gc-monitor."""

import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import poptorch
import pytest
import torch

PROGRAMS = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR", "build")) / "bin"

X = torch.ones(1, 4)


@pytest.fixture(autouse=True)
def own_devices(tmp_path, monkeypatch):
    """A machine for each test."""
    gc.collect()
    monkeypatch.setenv("TESSERA_DEVICE_DIR", str(tmp_path / "devices"))
    for name in ("TESSERA_NUM_IPUS", "POPTORCH_WAIT_FOR_IPU", "POPTORCH_IPU_MODEL"):
        monkeypatch.delenv(name, raising=False)


def model(options=None, attach=True):
    options = options or poptorch.Options()
    executor = poptorch.inferenceModel(
        torch.nn.Linear(4, 2), options.showCompilationProgressBar(False)
    )
    if attach:
        executor.compile(X)
    return executor


def attached():
    """What gc-monitor says of this moment: IPUs by number."""
    done = subprocess.run(
        [PROGRAMS / "gc-monitor", "--json"], check=True, capture_output=True, text=True
    )
    return {entry["ipu"]: entry for entry in json.loads(done.stdout)["attached_processes"]}


class Program:
    """Another process. It says "ready", and ends when it is told to or killed."""

    def __init__(self, code, **environment):
        start = "import sys, torch, poptorch\nX = torch.ones(1, 4)\n"
        start += (
            "def model(options=None):\n"
            "    options = options or poptorch.Options()\n"
            "    options.showCompilationProgressBar(False)\n"
            "    return poptorch.inferenceModel(torch.nn.Linear(4, 2), options)\n"
        )
        end = "\nprint('ready', flush=True)\nsys.stdin.read()\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", start + textwrap.dedent(code) + end],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    @property
    def pid(self):
        return self.process.pid

    def wait_ready(self):
        line = self.process.stdout.readline()
        assert line == "ready\n", self.process.stderr.read()
        return self


# Models of one process


@pytest.mark.spec("1.4 exclusive use", "1.4 detachFromDevice", "1.4 destroy")
def test_models_of_a_process_do_not_share_a_device():
    first = model(poptorch.Options().useIpuId(1))
    second = model(poptorch.Options().useIpuId(1), attach=False)
    with pytest.raises(poptorch.Error, match=r"Failed to acquire 1 IPU\(s\): device 1 is in use"):
        second.compile(X)
    assert not second.isCompiled() and not second.isAttachedToDevice()
    first.detachFromDevice()
    second.compile(X)
    with pytest.raises(poptorch.Error, match="this process's inference model 'Linear'"):
        first(X)
    second.destroy()
    assert first(X).shape == (1, 2)


@pytest.mark.spec("1.4 exclusive use", "12 acquisition errors")
def test_a_process_that_has_all_devices_is_told_which_models_have_them(monkeypatch):
    monkeypatch.setenv("TESSERA_NUM_IPUS", "2")

    class Own(torch.nn.Linear):
        pass

    first, trainer = model(), poptorch.trainingModel(Own(4, 2))
    second = poptorch.inferenceModel(trainer)
    second(X)
    with pytest.raises(poptorch.Error) as raised:
        model()
    message = raised.value.message
    assert "all 2 IPUs are in use" in message
    assert "IPU 0 by this process's inference model 'Linear'" in message
    assert "IPU 1 by this process's inference model 'Own'" in message
    assert "detachFromDevice()" in message and "TESSERA_NUM_IPUS" in message
    monkeypatch.setenv("TESSERA_NUM_IPUS", "3")
    model()
    assert first.isAttachedToDevice() and second.isAttachedToDevice()


@pytest.mark.spec("1.4 exclusive use")
def test_models_that_are_dropped_give_their_device_back(monkeypatch):
    monkeypatch.setenv("TESSERA_NUM_IPUS", "1")
    gc.disable()
    try:
        for _ in range(3):
            model()  # nobody keeps it

        class WithLoss(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 2)

            def forward(self, x):
                return poptorch.identity_loss(self.layer(x), reduction="mean")

        for _ in range(2):
            executor = poptorch.trainingModel(WithLoss())
            executor(X)
            del executor
        circle = model()
        circle.itself = circle  # only the garbage collector finds it
        del circle
        model()
    finally:
        gc.enable()


@pytest.mark.spec("2.2 connectionType when", "2.2 connectionType")
@pytest.mark.parametrize("kind", ["Always", "OnDemand", "Never"])
def test_when_the_device_is_taken(kind, monkeypatch):
    """Always: busy devices are found before compiling. OnDemand: after it."""
    monkeypatch.setenv("TESSERA_NUM_IPUS", "1")
    monkeypatch.setenv("POPTORCH_LOG_LEVEL", "OFF")
    holder = model()
    options = poptorch.Options().connectionType(getattr(poptorch.ConnectionType, kind))
    other = model(options, attach=False)
    if kind == "Never":
        other.compile(X)
        assert other.isCompiled() and not other.isAttachedToDevice()
        return
    with pytest.raises(poptorch.Error, match="Failed to acquire"):
        other.compile(X)
    # Compiled, the program need only be attached.
    assert other.isCompiled() == (kind == "OnDemand")
    assert not other.isAttachedToDevice()
    holder.detachFromDevice()
    assert other(X).shape == (1, 2) and other.isAttachedToDevice()


def test_a_compilation_that_fails_keeps_no_device(monkeypatch):
    monkeypatch.setenv("TESSERA_DISABLE_PASSES", "nonsense")
    executor = model(attach=False)
    with pytest.raises(Exception, match="nonsense"):
        executor.compile(X)
    assert attached() == {}


@pytest.mark.spec("1.6 no device op")
def test_what_computes_nothing_needs_no_device(monkeypatch):
    class Constant(torch.nn.Module):
        def forward(self):
            return torch.ones(2)

    monkeypatch.setenv("TESSERA_NUM_IPUS", "0")
    assert torch.equal(poptorch.inferenceModel(Constant())(), torch.ones(2))


# Numbers of IPUs


class Blocks(torch.nn.Module):
    def __init__(self, *ipus):
        super().__init__()
        self.ipus = ipus

    def forward(self, x):
        for i, ipu in enumerate(self.ipus):
            with poptorch.Block(f"block{i}", ipu_id=ipu):
                x = x + 1
        return x


def ipus_taken(*ipus, strategy=None, auto_round=False, model_instead=False):
    options = poptorch.Options().deviceIterations(8).showCompilationProgressBar(False)
    options.autoRoundNumIPUs(auto_round)
    if strategy is not None:
        options.setExecutionStrategy(strategy)
    if model_instead:
        options.useIpuModel(True)
    executor = poptorch.inferenceModel(Blocks(*ipus), options)
    executor.compile(torch.ones(8, 2))
    taken = sorted(attached())
    executor.destroy()
    return taken


@pytest.mark.spec("2.7 IPUs of a replica", "2.7 power of two", "2.2 autoRoundNumIPUs")
def test_blocks_say_how_many_ipus_a_model_takes():
    assert ipus_taken() == [0]
    assert ipus_taken(0, 1) == [0, 1]
    assert ipus_taken(0, 1, 2, 3) == [0, 1, 2, 3]
    assert ipus_taken(3) == [0, 1, 2, 3]  # up to the highest
    with pytest.raises(poptorch.Error, match="uses 3 IPUs.*4 must be reserved.*autoRoundNumIPUs"):
        ipus_taken(0, 1, 2)
    assert ipus_taken(0, 1, 2, auto_round=True) == [0, 1, 2, 3]
    assert ipus_taken(0, 1, 2, model_instead=True) == []
    assert ipus_taken(None, None) == [0]
    stages = poptorch.ShardedExecution("block0", poptorch.Stage("block1").ipu(3))
    assert ipus_taken(None, None, strategy=stages) == [0, 1, 2, 3]
    phases = poptorch.ParallelPhasedExecution("block0", "block1")
    assert ipus_taken(None, None, strategy=phases) == [0, 1]
    phases = poptorch.SerialPhasedExecution("block0", "block1")
    assert ipus_taken(None, None, strategy=phases) == [0]


@pytest.mark.spec("2.7 at most 64 IPUs")
def test_more_ipus_than_a_process_can_have(monkeypatch):
    monkeypatch.setenv("TESSERA_NUM_IPUS", "128")
    with pytest.raises(poptorch.Error, match="64 at most"):
        ipus_taken(64)


@pytest.mark.spec("2.2 useIpuId", "2.2 useIpuId groups")
def test_every_group_has_its_id():
    for id, ipus in {0: [0], 15: [15], 16: [0, 1], 23: [14, 15], 27: [12, 13, 14, 15]}.items():
        executor = model(poptorch.Options().useIpuId(id))
        assert sorted(attached()) == ipus
        assert {entry["device_id"] for entry in attached().values()} == {id}
        executor.destroy()
    everything = model(poptorch.Options().useIpuId(30))
    assert len(attached()) == 16
    with pytest.raises(poptorch.Error, match="Failed to acquire 1"):
        model()
    del everything


# Several processes


@pytest.mark.spec("1.4 exclusive use", "12 acquisition errors")
def test_another_process_sees_who_has_the_device_and_gets_it_after_a_kill():
    with Program("m = model(poptorch.Options().useIpuId(0))\nm(X)") as other:
        other.wait_ready()
        entry = attached()[0]
        assert entry["pid"] == other.pid and "python" in entry["command"]
        assert entry["device_id"] == 0 and entry["clock_mhz"] == 1330
        with pytest.raises(poptorch.Error) as raised:
            model(poptorch.Options().useIpuId(0))
        message = raised.value.message
        assert f"IPU 0 by process {other.pid} of {entry['user']} ('" in message
        assert "POPTORCH_WAIT_FOR_IPU=1" in message
        assert sorted(attached()) == [0]  # trying left nothing behind
        assert poptorch.ipuHardwareIsAvailable(16)  # busy or not
        other.process.send_signal(signal.SIGKILL)
        other.process.wait()
        start = time.monotonic()
        while attached():
            assert time.monotonic() - start < 1
        model(poptorch.Options().useIpuId(0))


@pytest.mark.spec("1.4 exclusive use")
def test_workers_that_outlive_their_parent_do_not_keep_its_device():
    code = """
        import os, subprocess, time
        m = model()
        m(X)
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        started = subprocess.Popen(["sleep", "60"], close_fds=False)
        print(child, started.pid, flush=True)
    """
    with Program(code) as other:
        children = list(map(int, other.process.stdout.readline().split()))
        other.wait_ready()
        assert attached()[0]["pid"] == other.pid
        other.process.kill()
        other.process.wait()
        try:
            for child in children:
                os.kill(child, 0)  # is there
            assert attached() == {}
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)


@pytest.mark.spec("1.4 exclusive use")
def test_a_forked_child_takes_a_device_of_its_own():
    executor = model()
    expected = executor(X)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            same = torch.equal(executor(X), expected)
            os.write(writing, b"same" if same else b"other")
            time.sleep(60)
        finally:
            os._exit(1)
    try:
        assert os.read(reading, 10) == b"same"
        assert [entry["pid"] for _, entry in sorted(attached().items())] == [os.getpid(), child]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert sorted(attached()) == [0]  # ours is still there
    assert torch.equal(executor(X), expected)


@pytest.mark.spec("7 POPTORCH_WAIT_FOR_IPU")
def test_a_process_waits_for_the_device_of_another(monkeypatch):
    monkeypatch.setenv("TESSERA_NUM_IPUS", "1")
    holder = model()
    with Program("m = model()\nm(X)", POPTORCH_WAIT_FOR_IPU="1") as other:
        waiting = other.process.stderr.readline()
        assert "waiting for 1 IPU(s)" in waiting and f"process {os.getpid()} " in waiting
        time.sleep(0.3)
        assert attached()[0]["pid"] == os.getpid()
        holder.detachFromDevice()
        start = time.monotonic()
        other.wait_ready()
        assert time.monotonic() - start < 5
        assert attached()[0]["pid"] == other.pid
        with pytest.raises(poptorch.Error, match=f"process {other.pid} "):
            holder(X)


@pytest.mark.spec("7 POPTORCH_WAIT_FOR_IPU")
def test_ctrl_c_ends_waiting(monkeypatch):
    monkeypatch.setenv("TESSERA_NUM_IPUS", "1")
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")
    holder = model()
    pressed = []

    def press():
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.4, press).start()
    with pytest.raises(KeyboardInterrupt):
        model()
    assert time.monotonic() - pressed[0] < 1
    assert holder(X).shape == (1, 2)


@pytest.mark.spec("7 POPTORCH_WAIT_FOR_IPU")
def test_another_thread_may_give_back_what_is_waited_for(monkeypatch):
    monkeypatch.setenv("TESSERA_NUM_IPUS", "1")
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")
    holder = model()
    threading.Timer(0.3, holder.detachFromDevice).start()
    assert model()(X).shape == (1, 2)


# Folders


def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TESSERA_DEVICE_DIR", str(tmp_path / "file"))
    with pytest.raises(ValueError, match="TESSERA_DEVICE_DIR must be a folder .*is no folder"):
        model()
