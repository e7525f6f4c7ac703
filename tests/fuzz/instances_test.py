"""Random networks have the same bits in two processes as in one with all replicas."""

import pathlib
import re
import subprocess
import sys
import time

import instances
import launch
import network
import pytest
import torch

RUN = pathlib.Path(__file__).with_name("run")


@launch.needs_mpi
@pytest.mark.parametrize("options", [(), ("--half",)])
def test_instances_have_the_bits_of_one_process(options):
    first = int(time.time()) % 10**8
    words = ("--instances", "2", "--seed", str(first), "--count", "40", *options)
    result = subprocess.run([sys.executable, "-B", RUN, *words], capture_output=True, text=True)
    assert result.returncode == 0, (result.stdout + result.stderr)[-20000:]
    assert int(re.search(r"'same': (\d+)", result.stdout)[1]) > 5, result.stdout


def test_what_differs_is_told():
    settings = network.Settings(replicas=2, accumulation=2)
    nothing = network.Network(0, (), (), "", "y", settings)
    alone = {
        "output 0 (y) of call 0": torch.tensor([1, 2]),
        "input x after call 0": torch.arange(4),
        "buffer b": torch.tensor([1]),
        "parameter w": torch.tensor([1.0, float("nan")]),
    }
    first = {**alone, "output 0 (y) of call 0": torch.tensor([1])}
    first["input x after call 0"] = torch.tensor([0, 2])
    second = {**alone, "output 0 (y) of call 0": torch.tensor([2])}
    second["input x after call 0"] = torch.tensor([1, 3])
    second["buffer b"] = torch.tensor([7])
    assert instances.differences(nothing, alone, [first, second]) == []
    second["parameter w"] = torch.tensor([2.0, 3.0])
    second["input x after call 0"] = torch.tensor([2, 3])
    told = instances.differences(nothing, alone, [first, second])
    assert [sentence.split(" is ")[0] for sentence in told] == [
        "input x after call 0",
        "parameter w",
    ]
