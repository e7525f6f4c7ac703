"""./demo, ./test and tools/setup.sh: what they install, and what they say when they cannot."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
LIST = "# comment\n[build]\ng++   # why\ncmake # why\n\n[test]\nblack # why\n"


@pytest.fixture
def machine(tmp_path):
    """A checkout with a short list, on a machine whose package tools only pretend.

    Returns a function that calls require_packages there: which packages are installed, whether
    the user is root, and which of the tools exist.
    """
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/setup.sh").write_text((ROOT / "tools/setup.sh").read_text())
    (tmp_path / "tools/packages.txt").write_text(LIST)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("awk", "basename", "bash", "cat", "dirname", "env", "grep"):
        (tools / name).symlink_to(f"/usr/bin/{name}")

    def call(sections, installed=(), root=True, commands=("dpkg-query", "apt-get"), apt="exit 0"):
        bodies = {
            "dpkg-query": "".join(f'echo "installed {name}"\n' for name in installed),
            "apt-get": f'echo "apt-get $*"\n{apt}\n',
            "sudo": 'echo "sudo"\n"$@"\n',
            "id": f"echo {0 if root else 1000}\n",
        }
        for name in (*commands, "id"):
            (tools / name).write_text("#!/bin/bash\n" + bodies[name])
            (tools / name).chmod(0o755)
        return subprocess.run(
            ["/bin/bash", "-c", f"source tools/setup.sh && require_packages {sections}"],
            cwd=tmp_path,
            env={"PATH": str(tools)},
            capture_output=True,
            text=True,
        )

    return call


def installs_of(result):
    calls = [line.split() for line in result.stdout.splitlines() if " install " in line]
    return [call[call.index("--no-install-recommends") + 1 :] for call in calls]


def test_nothing_missing_needs_nothing(machine):
    result = machine("build", installed=("g++", "cmake"), root=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_only_what_is_missing_is_installed(machine):
    result = machine("build test", installed=("g++",))
    assert result.returncode == 0
    assert "==> installing: cmake black" in result.stdout
    assert installs_of(result) == [["cmake", "black"]]
    assert result.stdout.index("update") < result.stdout.index(" install ")


def test_a_section_that_was_not_asked_for_stays_out(machine):
    assert installs_of(machine("build")) == [["g++", "cmake"]]


def test_a_user_installs_with_sudo(machine):
    result = machine("build", root=False, commands=("dpkg-query", "apt-get", "sudo"))
    assert result.returncode == 0
    assert result.stdout.count("sudo") == 2


def test_a_user_without_sudo_is_told_what_to_install(machine):
    result = machine("build", root=False)
    assert result.returncode == 1
    assert "needs root or sudo: g++ cmake" in result.stderr
    assert installs_of(result) == []


def test_another_system_is_told_where_the_list_is(machine):
    result = machine("build", commands=())
    assert result.returncode == 1
    assert "not a Debian system" in result.stderr and "tools/packages.txt" in result.stderr


def test_an_install_that_fails_is_an_error(machine):
    result = machine("build", apt="exit 100")
    assert result.returncode == 1
    assert "could not install these packages: g++ cmake" in result.stderr


def run(command, *arguments, **options):
    return subprocess.run(
        [ROOT / command, *arguments], capture_output=True, text=True, timeout=60, **options
    )


@pytest.mark.parametrize("command", ["demo", "test", "tools/check"])
def test_help_only_explains(command, tmp_path):
    result = run(command, "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith("usage: ")
    assert "==>" not in result.stdout


@pytest.mark.parametrize("command", ["test", "tools/check"])
def test_an_unknown_option_is_refused(command):
    result = run(command, "--quick")
    assert result.returncode == 1
    assert "there is no option '--quick'" in result.stderr


def test_contradictions_are_refused():
    result = run("test", "--only-cpp", "--only-python")
    assert result.returncode == 1
    assert "exclude each other" in result.stderr


def test_every_package_has_a_reason():
    for line in (ROOT / "tools/packages.txt").read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, reason = line.partition("#")
            assert re.fullmatch(r"\S+( \[[0-9 ]+\])? *", name) and reason.strip(), line


def test_compilers_fit_into_memory():
    script = f"source {ROOT}/tools/setup.sh && compile_jobs"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert 1 <= int(result.stdout) <= os.cpu_count()


@pytest.fixture
def build(tmp_path):
    """Returns a function that builds with a ninja that only prints these lines, then ends so."""
    (tmp_path / "ninja").write_text('#!/bin/sh\nprintf "$LINES_OF_NINJA"\nexit $STATUS\n')
    (tmp_path / "ninja").chmod(0o755)
    script = f"source {ROOT}/tools/setup.sh && configure() {{ :; }} && build release program"

    def call(*lines, status=0, terminal=False):
        # script(1) gives the command a terminal.
        command = ["script", "-qec"] if terminal else ["bash", "-c"]
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SHELL": "/bin/bash",
            "LINES_OF_NINJA": "".join(line.replace("%", "%%") + "\\n" for line in lines),
            "STATUS": str(status),
        }
        result = subprocess.run(
            [*command, script, "/dev/null"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return result.returncode, result.stdout.decode().replace("\r\n", "\n")

    return call


STEPS = [f"[{i:3}% {i}/100] Building CXX object {i}.o" for i in range(1, 101)]


def test_a_build_in_a_log_shows_each_tenth(build):
    status, output = build("ninja: Entering directory `build'", *STEPS)
    lines = [f"    {i:3} % ({i} of 100)" for i in range(10, 101, 10)]
    assert status == 0
    assert output.splitlines() == ["==> building (release)", *lines]


def test_a_build_on_a_terminal_is_one_line(build):
    status, output = build(*STEPS, terminal=True)
    assert status == 0
    assert output.count("\n") == 2
    assert output.count("\r    ") == 100
    assert output.endswith("\r    100 % (100 of 100)\n")


def test_a_build_with_nothing_to_do_says_nothing_more(build):
    assert build("ninja: no work to do.") == (0, "==> building (release)\n")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_build_that_fails_shows_the_compilers_words(build, terminal):
    words = ["FAILED: a.o", "a.cpp:1:1: error: expected ';'", "ninja: build stopped"]
    status, output = build(*STEPS[:20], *words, status=1, terminal=terminal)
    assert status == 1
    assert output.splitlines()[-4:-1] == words
    assert output.endswith("building (release) failed\n")


def test_sizes_never_fail(tmp_path):
    assert run("tools/sizes.py").returncode == 0
    assert run("tools/sizes.py", tmp_path).returncode == 0
