"""./demo, ./test and tools/setup.sh: what they install, and what they say when they cannot."""
import os
import pathlib
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
            assert len(name.split()) == 1 and reason.strip(), line


def test_compilers_fit_into_memory():
    script = f"source {ROOT}/tools/setup.sh && compile_jobs"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert 1 <= int(result.stdout) <= os.cpu_count()


def test_sizes_never_fail(tmp_path):
    assert run("tools/sizes.py").returncode == 0
    assert run("tools/sizes.py", tmp_path).returncode == 0
