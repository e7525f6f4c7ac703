"""poprun starts programs as several instances, and leaves none of them behind."""

import json
import os
import pathlib
import pty
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
import uuid

import pytest

BUILD = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR", "build")).resolve()
POPRUN = str(BUILD / "bin" / "poprun")
JOB = "TESSERA_TEST_JOB"  # in the environment of all that a test starts
PATIENCE = 60  # seconds for what takes a moment, on a busy machine too
CPUS = sorted(os.sched_getaffinity(0))

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="openmpi-bin is not installed")


@pytest.fixture(autouse=True)
def job(monkeypatch, tmp_path):
    """A clean environment with a mark, and a folder to work in; nothing may be left running."""
    for name in list(os.environ):
        if name.startswith(("POPDIST_", "POPTORCH_", "TESSERA_NUM_THREADS", "OMPI_", "PMIX_")):
            monkeypatch.delenv(name)
    mark = uuid.uuid4().hex
    monkeypatch.setenv(JOB, mark)
    monkeypatch.chdir(tmp_path)
    yield mark
    for process in Background.started:  # of a test that failed
        process.kill()
        process.wait()
    Background.started.clear()
    wait_for(lambda: not left_running(mark))


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def left_running(mark):
    """Processes with the mark in their environment, zombies and this one left out."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{JOB}={mark}".encode() in (folder / "environ").read_bytes()
            if marked and int(folder.name) != os.getpid():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
    return found


def run(*arguments, **settings):
    """What poprun with these arguments says, without its table."""
    command = [POPRUN, "--print-topology", "no", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **settings)


def instances(count):
    return ("--num-instances", count, "--num-replicas", count)


class Background:
    """A poprun that goes on; its output is in files, of which each line is known."""

    started: list[subprocess.Popen] = []

    def __init__(self, *arguments, **settings):
        command = [POPRUN, "--print-topology", "no", *map(str, arguments)]
        self.out, self.err = pathlib.Path("out"), pathlib.Path("err")
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, **settings)
        self.started.append(self.process)

    def wait_for_lines(self, text, count=1):
        """Lines of output with the text, tags cut off."""
        wait_for(lambda: self.out.read_text().count(text) >= count)
        lines = self.out.read_text().splitlines()
        return [untagged(line) for line in lines if text in line]

    def end(self):
        """Exit code, and what it said to stderr."""
        code = self.process.wait(timeout=PATIENCE)
        return code, self.err.read_text()


def untagged(line):
    return re.sub(r"^\[1,\d+\]<std(out|err)>: ?", "", line)


def by_instance(text, stream="stdout"):
    """Lines of each instance, by its number."""
    lines = {}
    for line in text.splitlines():
        tag = re.match(rf"\[1,(\d+)\]<{stream}>: ?", line)
        assert tag, line
        lines.setdefault(int(tag[1]), []).append(line[tag.end() :])
    return lines


def write_program(name, text, executable=True):
    path = pathlib.Path(name)
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)
    return str(path)


ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.mark.spec(
    "8.2 environment",
    "8.2 forwarded variables",
    "8.2 mpirun",
    "8.3 num-replicas",
    "8.3 num-instances",
    "8.3 ipus-per-replica",
)
def test_each_instance_finds_out_who_it_is(monkeypatch):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"a": "b c"}')
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "99")  # of another launcher
    options = ("--num-instances", "2", "--num-replicas", "4", "--ipus-per-replica", "2")
    done = run(*options, sys.executable, "-c", ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    seen = {i: json.loads(lines[0]) for i, lines in by_instance(done.stdout).items()}
    assert sorted(seen) == [0, 1]
    for index, environment in seen.items():
        expected = {
            "POPDIST_NUM_TOTAL_REPLICAS": "4",
            "POPDIST_NUM_IPUS_PER_REPLICA": "2",
            "POPDIST_NUM_LOCAL_REPLICAS": "2",
            "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
            "POPDIST_REPLICA_INDEX_OFFSET": str(2 * index),
            "POPDIST_LOCAL_INSTANCE_INDEX": str(index),
            "TESSERA_NUM_THREADS": str(max(1, len(CPUS) // 2)),
            "POPLAR_ENGINE_OPTIONS": '{"a": "b c"}',
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_RANK": str(index),
        }
        assert {name: environment.get(name) for name in expected} == expected
        assert "TESSERA_OFFLINE" not in environment and "POPTORCH_CACHE_DIR" not in environment


@pytest.mark.spec("8.3 executable-cache-path", "8.3 offline-mode", "8.3 mpi-local-args")
def test_options_reach_the_instances(monkeypatch):
    def environment(*options):
        done = run(*options, sys.executable, "-c", ENVIRONMENT)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(by_instance(done.stdout)[0][0])

    seen = environment(
        *("--executable-cache-path", "/tmp/a b", "--offline-mode=1", "--threads-per-instance", "3"),
        *("--instance-timeout", "7.5", "--mpi-local-args", "-x COLOUR='dark blue' -x SIZE=1"),
    )
    assert seen["POPTORCH_CACHE_DIR"] == "/tmp/a b" and seen["TESSERA_OFFLINE"] == "1"
    assert seen["TESSERA_NUM_THREADS"] == "3" and seen["TESSERA_INSTANCE_TIMEOUT"] == "7.5"
    assert seen["COLOUR"] == "dark blue" and seen["SIZE"] == "1"
    monkeypatch.setenv("TESSERA_NUM_THREADS", "5")
    seen = environment("--executable-cache-path", "")
    assert seen["TESSERA_NUM_THREADS"] == "5" and "POPTORCH_CACHE_DIR" not in seen


def test_arguments_of_the_program_are_its_own():
    words = ["--num-instances", "7", ":", "::", "", "a b", "*", "$HOME", "--help", "-v", "--"]
    words += ["--mca", "x", "-np", "2", "--host", "nowhere", "-x", "A", "it's", 'q"q', "index=1"]
    done = run(sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert by_instance(done.stdout) == {0: [repr(words)]}


def test_output_is_complete_and_in_order():
    script = "i=0; while [ $i -lt 500 ]; do echo $i; echo e$i >&2; i=$((i+1)); done; printf end"
    done = run(*instances(3), "sh", "-c", script)
    assert done.returncode == 0
    expected = [str(i) for i in range(500)]
    assert by_instance(done.stdout) == {i: [*expected, "end"] for i in range(3)}
    errors = by_instance(done.stderr, "stderr")
    assert errors == {i: [f"e{text}" for text in expected] for i in range(3)}


def test_lines_stay_whole_however_they_are_written():
    script = "import sys; print('x' * 20000, *range(5)); print('a', 'b', file=sys.stderr)"
    done = run(*instances(3), sys.executable, "-u", "-c", script)
    line = "x" * 20000 + " 0 1 2 3 4"
    assert by_instance(done.stdout) == {i: [line] for i in range(3)}
    assert by_instance(done.stderr, "stderr") == {i: ["a b"] for i in range(3)}


def test_a_line_is_shown_before_it_is_over():
    poprun = Background(*instances(2), "sh", "-c", "printf 50%%; sleep 100")
    wait_for(lambda: poprun.out.read_text().count("50%") == 2)
    poprun.process.terminate()
    poprun.end()
    assert by_instance(poprun.out.read_text()) == {0: ["50%"], 1: ["50%"]}


def test_the_first_instance_reads_what_poprun_is_given():
    done = run(*instances(2), "sh", "-c", "cat", input="to be read\n")
    assert by_instance(done.stdout) == {0: ["to be read"]}


# How it ends


def sentence(instance, how, others=True):
    host = os.uname().nodename
    rest = "; the other instances are ended" if others else ""
    return f"poprun: instance {instance} on host {host} {how}{rest}\n"


ONE_FAILS = '[ "$POPDIST_LOCAL_INSTANCE_INDEX" = 1 ] || exec sleep 100; sleep 0.3; '


@pytest.mark.spec("8.3 exit code")
@pytest.mark.parametrize(
    "end, code, how",
    [
        ("exit 3", 3, "ended with exit code 3"),
        ("kill -KILL $$", 137, "was killed by signal 9 (Killed)"),
        ("kill -SEGV $$", 139, "was killed by signal 11 (Segmentation fault)"),
    ],
)
def test_the_first_failure_ends_all(end, code, how):
    begin = time.monotonic()
    done = run(*instances(3), "sh", "-c", ONE_FAILS + end)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == sentence(1, how)
    assert time.monotonic() - begin < 20


def test_a_failure_is_known_behind_a_line_that_is_not_over():
    done = run(*instances(2), "sh", "-c", ONE_FAILS + "printf 50%% >&2; exit 3")
    assert done.returncode == 3
    shown, last = done.stderr.splitlines(keepends=True)
    assert by_instance(shown, "stderr") == {1: ["50%"]}
    assert last == sentence(1, "ended with exit code 3")


def test_an_instance_alone_fails():
    done = run("sh", "-c", "exit 4")
    assert (done.returncode, done.stderr) == (
        4,
        sentence(0, "ended with exit code 4", others=False),
    )


TALE = """
import os, signal, subprocess, sys, time
worker = subprocess.Popen(["sleep", "100"])  # as a data loader has them
def end(number, frame):
    print("told", signal.Signals(number).name, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGUSR1, lambda *_: print("heard", flush=True))
print("pid", os.getpid(), os.getppid(), flush=True)
while True:
    time.sleep(0.05)
"""


def test_a_program_that_is_killed_leaves_nothing_behind(job):
    poprun = Background(*instances(3), sys.executable, "-c", TALE)
    pids = poprun.wait_for_lines("pid", 3)
    os.kill(int(pids[0].split()[1]), signal.SIGKILL)
    code, said = poprun.end()
    assert code == 137
    assert re.fullmatch(
        r"poprun: instance \d on host \S+ was killed by signal 9 \(Killed\);"
        r" the other instances are ended\n",
        said,
    )
    assert len(poprun.wait_for_lines("told SIGTERM")) == 2
    wait_for(lambda: not left_running(job))


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_poprun_is_told_to_end(job, number, code):
    poprun = Background(*instances(2), sys.executable, "-c", TALE, stdin=subprocess.DEVNULL)
    poprun.wait_for_lines("pid", 2)
    poprun.process.send_signal(signal.SIGUSR1)
    poprun.wait_for_lines("heard", 2)
    poprun.process.send_signal(number)
    assert poprun.end() == (code, "")
    assert len(poprun.wait_for_lines("told SIGTERM")) == 2
    assert not left_running(job)


def test_a_program_that_will_not_end_is_killed(job):
    script = 'trap "" TERM INT HUP; echo ready; while :; do sleep 100; done'
    poprun = Background(*instances(2), "sh", "-c", script)
    poprun.wait_for_lines("ready", 2)
    poprun.process.terminate()
    assert poprun.end() == (143, "")
    wait_for(lambda: not left_running(job))


def test_control_c_at_a_terminal_ends_the_job(job):
    script = "echo ready; sleep 100"
    child, terminal = pty.fork()
    if child == 0:
        os.execv(POPRUN, [POPRUN, *map(str, instances(2)), "sh", "-c", script])
    seen = b""
    while seen.count(b"ready") < 2:
        seen += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    try:
        while text := os.read(terminal, 1000):  # somebody must read what it says
            seen += text
    except OSError:  # the terminal is gone
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    os.close(terminal)
    assert b"---" not in seen  # none of mpirun's long texts
    wait_for(lambda: not left_running(job))


@pytest.mark.parametrize("victim", ["poprun", "mpirun", "supervisor"])
def test_whoever_is_killed_nobody_is_left(job, victim):
    poprun = Background(*instances(2), sys.executable, "-c", TALE)
    pids = poprun.wait_for_lines("pid", 2)
    supervisor = int(pids[0].split()[2])
    status = pathlib.Path(f"/proc/{supervisor}/status").read_text()
    mpirun = int(re.search(r"PPid:\s*(\d+)", status)[1])
    victims = {"poprun": poprun.process.pid, "mpirun": mpirun, "supervisor": supervisor}
    os.kill(victims[victim], signal.SIGKILL)
    code, said = poprun.end()
    assert code == (-9 if victim == "poprun" else 137)
    if victim == "mpirun":
        assert said == "poprun: mpirun was killed by signal 9 (Killed)\n"
    wait_for(lambda: not left_running(job))


def test_processes_that_a_program_leaves_are_ended(job):
    done = run("sh", "-c", "sleep 100 & echo $!")
    assert done.returncode == 0
    wait_for(lambda: not left_running(job))


MPI = """
import ctypes, os, sys
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
if os.environ["POPDIST_LOCAL_INSTANCE_INDEX"] == "1":
    os.kill(os.getpid(), 9) if sys.argv[1] == "dies" else None
if sys.argv[1] == "dies":
    import time
    time.sleep(100)
mpi.MPI_Finalize()
print("done")
"""


def test_programs_may_use_mpi(monkeypatch):
    monkeypatch.setenv("OMPI_MCA_btl", "^tcp")  # which may warn about the network of this machine
    probe = [sys.executable, "-c", "import ctypes; ctypes.CDLL('libmpi.so.40')"]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        pytest.skip("libmpi.so.40 is not installed")
    done = run(*instances(2), sys.executable, "-c", MPI, "ends")
    assert (done.returncode, done.stderr) == (0, "")
    assert by_instance(done.stdout) == {0: ["done"], 1: ["done"]}
    done = run(*instances(2), sys.executable, "-c", MPI, "dies")
    assert (done.returncode, done.stdout) == (137, "")
    assert done.stderr == sentence(1, "was killed by signal 9 (Killed)")


# What is shown


@pytest.mark.spec("8.3 only-output-from-instance")
def test_other_instances_are_silent_until_they_fail():
    script = "echo out; echo err >&2"
    done = run(*instances(2), "--only-output-from-instance", "1", "sh", "-c", script)
    assert by_instance(done.stdout) == {1: ["out"]}
    assert by_instance(done.stderr, "stderr") == {1: ["err"]}
    script = ONE_FAILS + "i=0; while [ $i -lt 100 ]; do echo e$i >&2; i=$((i+1)); done; exit 6"
    done = run(*instances(2), "--only-output-from-instance=0", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (6, "")
    *lines, last = done.stderr.splitlines(keepends=True)
    assert last == sentence(1, "ended with exit code 6")
    assert by_instance("".join(lines), "stderr") == {1: [f"e{i}" for i in range(60, 100)]}


@pytest.mark.spec("8.3 print-topology")
def test_the_topology_is_on_stderr():
    command = [POPRUN, "--num-instances", "2", "--num-replicas", "4", "echo", "hello"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert by_instance(done.stdout) == {0: ["hello"], 1: ["hello"]}
    lines = done.stderr.splitlines()
    assert [lines[i][0] for i in range(6)] == ["┌", "│", "├", "│", "│", "└"]
    assert lines[1].split() == "│ host │ instance │ replicas │ IPUs │ threads │ cores │".split()
    assert lines[3].split()[1:8] == [os.uname().nodename, "│", "0", "│", "0..1", "│", "2"]


@pytest.mark.spec("8.3 vv", "8.3 vipu-server", "8.3 vipu-partition", "8.3 numa-aware")
def test_verbosity():
    options = ("--vipu-server-host=h", "--vipu-partition", "p", "--numa-aware", "1")
    assert run(*options, "true").stderr == ""
    note, command = run("-v", *options, "true").stderr.splitlines()
    assert note.startswith(
        "poprun: no effect here: --vipu-server-host, --vipu-partition, --numa-aware (there is no"
    )
    assert command.startswith("mpirun --tag-output --bind-to none ")
    for flag in ("-vv", "--vv"):
        said = run(flag, "sh", "-c", "exit 3").stderr
        assert said.startswith("mpirun ") and sentence(0, "ended with exit code 3", False) in said


def test_a_dry_run_can_be_pasted():
    words = (*instances(2), "--dry-run", "sh", "-c", 'echo "it\'s $POPDIST_REPLICA_INDEX_OFFSET"')
    shown = run(*words)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "#   POPDIST_REPLICA_INDEX_OFFSET=1\n" in shown.stdout
    done = subprocess.run(["sh", "-c", shown.stdout], capture_output=True, text=True)
    assert by_instance(done.stdout) == {0: ["it's 0"], 1: ["it's 1"]}
    command = shlex.split(shown.stdout.splitlines()[-1])
    assert command[0] == "mpirun"


@pytest.mark.spec("8.3 help", "8.3 version")
def test_help_and_version():
    assert re.fullmatch(r"poprun of Tessera \d+\.\d+\.\d+\n", run("--version").stdout)
    said = run("--help")
    assert said.returncode == 0 and said.stderr == ""
    assert said.stdout.startswith("usage: poprun [options] program")
    for flag in ("--num-replicas N", "-H, --host LIST", "--vipu-partition NAME"):
        assert flag in said.stdout
    assert run("--num-instances", "2", "--help", "python3").stdout == said.stdout


# Mistakes


@pytest.mark.spec("8.3 num-replicas", "8.3 host")
@pytest.mark.parametrize(
    "arguments, message",
    [
        ("", "there is no program to start; `poprun --help` says how"),
        ("--num-replica 2 true", "there is no option --num-replica; `poprun --help` lists them"),
        ("--num-replicas", "--num-replicas needs a value: N"),
        (
            "--num-instances two true",
            "--num-instances must be a whole number from 1 to 65536, got 'two'",
        ),
        (
            "--num-instances 2 --num-replicas 3 true",
            "--num-replicas 3 cannot be divided evenly over 2 instances; take a multiple of 2",
        ),
        (
            "--num-instances 2 true",
            "--num-replicas 1 cannot be divided evenly over 2 instances; take a multiple of 2",
        ),
        (
            "--host a,b --num-instances 1 true",
            "--num-instances 1 leaves some of the 2 hosts without work; take 2 or more, or name"
            " fewer hosts",
        ),
        ("--host a,,b true", "'' is no name of a host; write a,b or host[0-2,4]"),
        (
            "--host a,a true",
            "the host a is named twice; name it once, with more --num-instances",
        ),
        ("--print-topology maybe", None),
        ("--print-topology=maybe true", "--print-topology must be yes or no, got 'maybe'"),
        (
            "--only-output-from-instance 1 true",
            "--only-output-from-instance 1 is none of 1 instances, which are counted from 0",
        ),
        (
            "--instance-timeout soon true",
            "--instance-timeout must be a number of seconds above 0, got 'soon'",
        ),
        ("""--mpi-global-args "'" true""", "a quote is not closed in '"),
        ("--dry-run=yes true", "--dry-run takes no value, got 'yes'"),
        (
            "--as-instance 1",
            "--as-instance is for poprun itself; `poprun --help` says how to start a program",
        ),
    ],
)
def test_a_mistake_is_one_sentence(arguments, message):
    words = shlex.split(arguments)
    done = subprocess.run([POPRUN, *words], capture_output=True, text=True, timeout=PATIENCE)
    if message is None:  # yes need not be said, so the word is the program
        assert done.returncode == 127
        return
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"poprun: {message}\n")


def test_a_program_that_cannot_be_run_is_known_at_once():
    def complaint(program):
        done = run(*instances(2), program)
        return done.returncode, done.stderr

    write_program("train.py", "print(1)\n", executable=False)
    write_program("tool", "#!/bin/sh\n", executable=False)
    write_program("here", "#!/bin/sh\n")
    assert complaint("./none") == (127, "poprun: there is no program './none'\n")
    assert complaint("none.py") == (127, "poprun: there is no program 'none.py' on PATH\n")
    assert complaint("here") == (
        127,
        "poprun: there is no program 'here' on PATH; for the file here write ./here\n",
    )
    assert complaint("./train.py") == (
        126,
        "poprun: './train.py' is not executable; write `poprun ... python3 ./train.py`\n",
    )
    assert complaint("./tool") == (
        126,
        "poprun: './tool' is not executable; `chmod +x ./tool` makes it so\n",
    )
    write_program("lost", "#!/no/interpreter\n")
    code, said = complaint("./lost")
    assert code == 127 and said.count("\n") == 1
    assert "could not start './lost': No such file or directory; the other" in said


@pytest.mark.spec("8.3 import-config", "8.3 export-config", "8.3 overwrite-config")
def test_options_may_be_in_a_file():
    options = (*instances(2), "--mpi-local-args", "-x A=1", "--export-config", "o.json")
    assert run(*options).returncode == 0  # a program is not needed for it
    assert json.loads(pathlib.Path("o.json").read_text()) == {
        "print-topology": False,
        "num-instances": 2,
        "num-replicas": 2,
        "mpi-local-args": ["-x A=1"],
    }
    script = "echo $A $POPDIST_NUM_TOTAL_REPLICAS"
    done = run("--import-config", "o.json", "--num-replicas", "4", "sh", "-c", script)
    assert by_instance(done.stdout) == {0: ["1 4"], 1: ["1 4"]}
    done = run("--export-config=o.json", "true")
    assert (done.returncode, done.stderr) == (
        2,
        "poprun: 'o.json' (--export-config) is there already; --overwrite-config yes replaces it\n",
    )
    assert run("--export-config=o.json", "--overwrite-config", "yes", "true").returncode == 0
    assert json.loads(pathlib.Path("o.json").read_text()) == {"print-topology": False}
    pathlib.Path("o.json").write_text('{"num-replica": 1}')
    done = run("--import-config=o.json", "true")
    assert done.returncode == 2 and "'num-replica' in 'o.json' is no option" in done.stderr


# Machines


@pytest.mark.spec("8.3 allow-run-as-root", "8.3 mpi-global-args")
def test_more_instances_than_cores():
    count = 2 * len(CPUS) + 1
    script = "import os; print(*sorted(os.sched_getaffinity(0)))"
    options = ("--allow-run-as-root", "1", "--mpi-global-args=--tag-output --allow-run-as-root")
    done = run(*instances(count), *options, sys.executable, "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    cores = [by_instance(done.stdout)[i][0] for i in range(count)]
    assert len(set(cores)) == len(CPUS) and all(" " not in core for core in cores)


@pytest.mark.skipif(len(CPUS) < 2, reason="one core cannot be shared out")
def test_instances_have_cores_of_their_own():
    script = "import os; print(*sorted(os.sched_getaffinity(0)))"

    def cores(*options):
        done = run(*instances(2), *options, sys.executable, "-c", script)
        assert (done.returncode, done.stderr) == (0, "")
        seen = by_instance(done.stdout)
        return [set(map(int, seen[i][0].split())) for i in range(2)]

    first, second = cores()
    assert not first & second and first | second == set(CPUS)
    assert cores("--mpi-global-args", "--bind-to none") == [set(CPUS), set(CPUS)]


def ssh_stand_in(text):
    """Options that let mpirun run a script in place of ssh."""
    agent = os.path.abspath(write_program("stand-in", f"#!/bin/bash\n{text}\n"))
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    is_new = int(re.search(r"Open MPI\) (\d+)", version)[1]) >= 5
    # Two of the old daemons on one machine may crash when both share its topology.
    name = "--prtemca plm_ssh_agent" if is_new else "--mca rtc ^hwloc --mca plm_rsh_agent"
    return f"--mpi-global-args={name} {agent}"


RUN_HERE = """
while [[ $1 == -* ]]; do [[ $1 == -o ]] && shift; shift; done
echo "$1" >>hosts-that-were-asked
shift
exec sh -c "$*"
"""


@pytest.mark.spec("8.3 host")
def test_several_hosts():
    options = ("--host", "alpha,beta[1-1]", "--num-instances", "3", "--num-replicas", "6")
    script = "echo $POPDIST_LOCAL_INSTANCE_INDEX $POPDIST_REPLICA_INDEX_OFFSET; sleep 0.2; "
    fails = '[ "$POPDIST_REPLICA_INDEX_OFFSET" != 4 ] || exit 5; sleep 100'
    agent = ssh_stand_in(RUN_HERE)
    done = run(*options, agent, "sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert by_instance(done.stdout) == {0: ["0 0"], 1: ["1 2"], 2: ["0 4"]}
    assert sorted(pathlib.Path("hosts-that-were-asked").read_text().split()) == ["alpha", "beta1"]
    done = run(*options, agent, "sh", "-c", script + fails)
    assert done.returncode == 5
    last = done.stderr.splitlines()[-1]
    assert last.startswith("poprun: instance 2 on host beta1 ended with exit code 5")


@pytest.mark.spec("8.3 host")
def test_a_host_that_cannot_be_reached():
    agent = ssh_stand_in("echo 'ssh: connect to host beta port 22: No route to host' >&2; exit 255")
    done = run("--host", "beta", agent, "true")
    assert done.returncode not in (0, 2)
    *others, last = done.stderr.splitlines()
    assert last.startswith("poprun: no connection to beta; `ssh HOST` must work without a password")
    assert others == ["ssh: connect to host beta port 22: No route to host"]


def path_without_mpirun():
    """A folder with the few programs that a test needs."""
    folder = pathlib.Path("few").resolve()
    folder.mkdir()
    for name in ("sh", "sleep", "env"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def test_without_mpirun_one_instance_runs(monkeypatch):
    monkeypatch.setenv("PATH", str(path_without_mpirun()))
    script = "echo $POPDIST_NUM_TOTAL_REPLICAS $TESSERA_NUM_THREADS"
    done = run("--num-replicas", "2", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"2 {len(CPUS)}\n"
    done = run("sh", "-c", "kill -9 $$")
    assert (done.returncode, done.stderr) == (
        137,
        sentence(0, "was killed by signal 9 (Killed)", others=False),
    )
    done = run(*instances(2), "sh", "-c", "true")
    assert (done.returncode, done.stderr) == (
        1,
        "poprun: 2 instances need mpirun, which is not installed; install the package"
        " openmpi-bin\n",
    )


def test_without_mpirun_signals_are_passed_on(monkeypatch, job):
    folder = path_without_mpirun()
    monkeypatch.setenv("PATH", str(folder))
    poprun = Background(sys.executable, "-c", TALE.replace("sleep", str(folder / "sleep"), 1))
    poprun.wait_for_lines("pid")
    poprun.process.terminate()
    assert poprun.end() == (0, "")  # what the program made of it
    assert poprun.wait_for_lines("told SIGTERM")
    wait_for(lambda: not left_running(job))


def test_an_mpirun_of_others(monkeypatch):
    folder = path_without_mpirun()
    other = folder / "mpirun"
    other.write_text("#!/bin/sh\necho 'HYDRA build details:'\n")
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))
    done = run("sh", "-c", "true")
    assert (done.returncode, done.stderr) == (
        1,
        "poprun: the mpirun on PATH is not Open MPI's; install the package openmpi-bin, or put its"
        " folder first on PATH\n",
    )
