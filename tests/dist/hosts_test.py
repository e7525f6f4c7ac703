"""Instances on several hosts: network namespaces of this machine with names of their own."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import time

import pytest
import torch
from jobs import PATIENCE, POPRUN, Job, launcher

NETWORK = "10.77.0.0/24"

# In place of ssh: agent [options] HOST COMMAND...
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do
  [ "$1" = -o ] && shift
  shift
done
host=$1
shift
if [ ! -e "/run/netns/{prefix}$host" ]; then
  echo "ssh: Could not resolve hostname $host: Name or service not known" >&2
  exit 255
fi
exec {enter} "$host" sh -c "$*"
"""
# enter HOST COMMAND ARGUMENTS...
ENTER = """#!/bin/sh
host=$1
shift
exec ip netns exec "{prefix}$host" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$host" "$@"
"""


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


def why_not():
    """Why this machine cannot play several hosts."""
    for program in ("mpirun", "ip", "unshare"):
        if not shutil.which(program):
            return f"{program} is not installed"
    name = f"tessera-try-{os.getpid()}"
    made = ip("netns", "add", name)
    ip("netns", "delete", name)
    return made.stderr.strip() and f"no network namespaces: {made.stderr.strip()}"


REASON = why_not()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON or "")


class Hosts:
    """h0 and h1 with a cable between them."""

    def __init__(self, folder):
        self.prefix = f"tessera-{os.getpid()}-"
        self.agent, self.enter = folder / "agent", folder / "enter"
        self.agent.write_text(AGENT.format(prefix=self.prefix, enter=self.enter))
        self.enter.write_text(ENTER.format(prefix=self.prefix))
        for script in (self.agent, self.enter):
            script.chmod(0o755)

    def space(self, host):
        return f"{self.prefix}h{host}"

    def make(self):
        for host in (0, 1):
            assert ip("netns", "add", self.space(host)).returncode == 0
        end = ["type", "veth", "peer", "name", "cable", "netns", self.space(1)]
        made = ip("-n", self.space(0), "link", "add", "cable", *end)
        assert made.returncode == 0, made.stderr
        for host in (0, 1):
            space = self.space(host)
            ip("-n", space, "address", "add", f"10.77.0.{host + 1}/24", "dev", "cable")
            for link in ("lo", "cable"):
                ip("-n", space, "link", "set", link, "up")
            # mpirun and its helpers speak by TCP, which waits a quarter of an hour by itself.
            retries = "echo 4 > /proc/sys/net/ipv4/tcp_retries2"
            subprocess.run(["ip", "netns", "exec", space, "sh", "-c", retries], check=True)

    def remove(self):
        for host in (0, 1):
            ip("netns", "delete", self.space(host))

    def cut(self):
        assert ip("-n", self.space(0), "link", "set", "cable", "down").returncode == 0

    def command(self, name, hosts="h0,h1"):
        """A launcher on h0."""
        mpi = ["--mca", "plm_rsh_agent", str(self.agent), "--mca", "btl", "tcp,self"]
        mpi += ["--mca", "btl_tcp_if_include", NETWORK, "--mca", "oob_tcp_if_include", NETWORK]
        if name == "poprun":
            options = ["--host", hosts, "--mpi-global-args", shlex.join(mpi)]
        else:
            options = ["--host", hosts, *mpi]
        return [self.enter, "h0", *launcher(name), *options]


@pytest.fixture
def hosts(tmp_path):
    made = Hosts(tmp_path)
    try:
        made.make()
        yield made
    finally:
        made.remove()


LAUNCHERS = ["mpirun", "poprun"] if POPRUN.exists() else ["mpirun"]


def results(folder, command):
    folder.mkdir()
    with Job(folder, "none", command) as job:
        code = job.end(PATIENCE)
        assert code == 0, job.text()
        return job.results()


@pytest.mark.parametrize("name", LAUNCHERS)
def test_two_hosts_train_as_one_does(hosts, tmp_path, name):
    far = results(tmp_path / "far", hosts.command(name))
    near = results(tmp_path / "near", launcher(name))
    assert len(far["losses"]) == 20 and all(map(torch.equal, far["losses"], near["losses"]))
    for parameter, value in near["model"].items():
        assert torch.equal(value, far["model"][parameter])


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_cut_cable_ends_the_job(hosts, tmp_path, name):
    with Job(tmp_path, "cable", hosts.command(name)) as job:
        job.faulty_process()
        hosts.cut()
        start = time.monotonic()
        sentence = r"instance 1 on h1 has not answered for \d+ s while instance 0 on h0 waits in"
        job.wait_for(lambda: re.search(sentence, job.text()), 8)  # of which 3 are the time-out
        assert time.monotonic() - start > 1
        assert job.end(30) != 0
        assert job.checkpoint()["step"] >= 4


@pytest.mark.skipif(not POPRUN.exists(), reason="poprun is not built")
def test_a_host_that_is_not_there_is_named(hosts, tmp_path):
    with Job(tmp_path, "none", hosts.command("poprun", "h0,h7")) as job:
        assert job.end(PATIENCE) != 0
        assert "poprun: no connection to h7" in job.text()
    assert not pathlib.Path(tmp_path / "checkpoint.pt").exists()
