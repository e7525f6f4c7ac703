"""Starts programs as several instances on this machine, as poprun does."""
import os
import pathlib
import shutil
import subprocess

import pytest

needs_mpi = pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no MPI")

ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # More instances than cores: none may spin while it has nothing to do.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "TESSERA_NUM_THREADS": "1",
}

# Whoever fails says why; otherwise mpirun ends all with the first that fails.
ALL_SAY_WHY = {"OMPI_MCA_orte_abort_on_non_zero_status": "0"}


def popdist_variables(instance, instances, replicas):
    """What the launcher says to an instance that has so many replicas."""
    return {
        "POPDIST_NUM_TOTAL_REPLICAS": instances * replicas,
        "POPDIST_NUM_LOCAL_REPLICAS": replicas,
        "POPDIST_REPLICA_INDEX_OFFSET": instance * replicas,
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": 1,
        "POPDIST_NUM_IPUS_PER_REPLICA": 1,
        "POPDIST_LOCAL_INSTANCE_INDEX": instance,
    }


def start(instances, program, *arguments, replicas=1, **environment):
    """A Popen of a Python program as so many instances; lines of its output name the instance."""
    python = ["/usr/bin/python3", "-B", str(program), *map(str, arguments)]
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "--tag-output"]
    for instance in range(instances):
        command += [":"] * (instance > 0) + ["-np", "1"]
        for name, value in popdist_variables(instance, instances, replicas).items():
            command += ["-x", f"{name}={value}"]
        command += python
    return subprocess.Popen(
        command,
        env={**os.environ, **ENVIRONMENT, **environment},
        cwd=pathlib.Path(program).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stderr_of(process, seconds=300):
    """What a program has said when it has ended; it is ended where that takes too long."""
    try:
        return process.communicate(timeout=seconds)[1]
    finally:
        process.kill()
