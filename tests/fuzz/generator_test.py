"""The generator, the referee and the shrinker themselves."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

import campaign
import check
import pytest
import referee
import torch
from campaign import survey, write_digests
from check import examine
from children import Died, in_child
from generator import generate
from network import HALVES, Input, Network, Settings, Step, flat, program, returned_names
from referee import Illegal, Judge, Run, exact, ours
from shrink import shrink

HERE = pathlib.Path(__file__).parent

LINE = Network(
    seed=5,
    inputs=(Input("x1", (4, 6)),),
    steps=(
        Step("linear", ("v1",), ("x1",), "v1 = self.l1(x1)", ("self.l1 = nn.Linear(6, 8)",)),
        Step("unary", ("v2",), ("v1",), "v2 = torch.tanh(v1)"),
        Step("unary", ("v3",), ("v2",), "v3 = v2.clamp(min=0.1)"),
        Step("linear", ("v4",), ("v3",), "v4 = self.l2(v3)", ("self.l2 = nn.Linear(8, 3)",)),
        Step("loss", ("loss",), ("v4",), 'loss = poptorch.identity_loss(v4, reduction="mean")'),
    ),
    loss="loss",
    returned=(["v2"], "v4", "loss"),
    settings=Settings(accumulation=2, optimizer="torch.optim.Adam", numbers=(("lr", 0.05),)),
)


def some_networks(count):
    return [n for n in map(generate, range(count)) if n]


def legal(network):
    try:
        return exact(network) is not None
    except Illegal:
        return False


LEGAL = [n for n in some_networks(8) if legal(n)][:3]


def test_a_seed_always_gives_the_same_network():
    first, second = some_networks(30), some_networks(30)
    assert [program(n) for n in first] == [program(n) for n in second]
    assert len({program(n) for n in first}) == len(first)


def test_networks_are_of_many_kinds():
    networks = some_networks(300)
    kinds = {s.kind for n in networks for s in n.steps}
    assert kinds >= set("conv linear norm pool unary binary reduction view cat product".split())
    assert kinds >= set("inplace buffer index softmax resample pad recurrent attention".split())
    assert {n.settings.training for n in networks} == {True, False}
    assert {n.settings.optimizer.split(".")[-1] for n in networks} >= {"SGD", "Adam", "LAMB"}


@pytest.mark.parametrize("network", [LINE, *LEGAL], ids=lambda n: str(n.seed))
def test_the_printed_program_runs(network, tmp_path):
    path = tmp_path / "small.py"
    path.write_text(program(network))
    answer = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    assert "ours" in answer.stdout


def test_a_right_run_is_right():
    assert examine(LINE) is None


@pytest.mark.parametrize("part", ["output", "parameter"])
@pytest.mark.parametrize("by", [1e-3, 1e-4])
def test_the_referee_finds_a_wrong_number(part, by):
    judge, run = Judge(LINE), ours(LINE)
    assert judge.judge(run) == []
    name = next(n for n in run.values if n.startswith(part))
    values = dict(run.values)
    values[name] = values[name].clone()
    values[name].view(-1)[1] += by
    assert [name in sentence for sentence in judge.judge(Run(values))] == [True]


@pytest.mark.parametrize("halves", HALVES)
def test_parts_in_half_are_right(halves):
    network = LINE.with_halves(halves)
    assert examine(network, []) is None
    model, (batch,) = referee.made(network)
    types = [t.dtype for t in (batch[0], model.l1.weight, model.l2.weight)]
    assert [t == torch.half for t in types] == {
        "all": [True, True, True],
        "inputs": [True, False, False],
        "weights": [False, True, True],
        "some": [True, True, False],
        "sums": [True, True, True],
    }[halves]
    assert "half()" in program(network) and program(LINE, {"halves": halves}) == program(network)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("mode", ["", "All", "Sum"])
def test_replicas_are_right(replicas, mode):
    settings = dataclasses.replace(LINE.settings, iterations=2, output_mode=mode)
    network = dataclasses.replace(LINE, settings=settings).with_replicas(replicas)
    assert examine(network, []) is None
    assert f"replicationFactor({replicas})" in program(network)
    assert program(LINE, {"replicas": "2"}) == program(LINE.with_replicas(2))


@pytest.mark.parametrize("part", ["output", "parameter"])
def test_the_referee_finds_a_wrong_half(part):
    network = dataclasses.replace(LINE, settings=Settings(halves="all"))
    judge, run = Judge(network), ours(network)
    assert judge.judge(run) == []
    name = next(n for n in run.values if n.startswith(part))
    values = {**run.values, name: run.values[name].clone()}
    values[name].view(-1)[1] += 0.03
    assert [name in sentence for sentence in judge.judge(Run(values))] == [True]
    wide = {**run.values, name: run.values[name].float()}
    assert [f"{name} is torch.float32" in s for s in judge.judge(Run(wide))] == [True]


def test_the_referee_finds_wrong_forms():
    judge, run = Judge(LINE), ours(LINE)
    name = next(iter(run.values))
    for wrong in (run.values[name][:1], run.values[name].double(), run.values[name] / 0, None):
        assert judge.judge(Run({**run.values, name: wrong}))
    assert judge.judge(Run({**run.values, "output 9": torch.ones(1)}))


def test_the_referee_knows_jumps():
    """Which of two equal values is the larger, nobody can say."""
    steps = (
        Step("linear", ("v1",), ("x1",), "v1 = self.l1(x1)", ("self.l1 = nn.Linear(6, 8)",)),
        Step("unary", ("v2",), ("v1",), "v2 = (v1 * 3 - v1 - v1 - v1).sign()"),
    )
    network = Network(5, LINE.inputs, steps, "", "v2", Settings(training=False))
    judge = Judge(network)
    wrong = {name: value.float().neg() for name, value in exact(network).values.items()}
    assert not any("output" in sentence for sentence in judge.judge(Run(wrong)))


def test_accumulated_gradients_are_emulated():
    whole = exact(LINE).values["parameter l1.weight"]
    model, (batch,) = referee.made(LINE)
    model = model.double()
    losses = [flat(model(t.double()))[-1] for t in batch[0].chunk(2)]
    (sum(losses) / 2).backward()
    torch.optim.Adam(model.parameters(), lr=0.05).step()
    torch.testing.assert_close(whole, model.l1.weight.detach())


def test_what_pytorch_refuses_is_no_failure():
    steps = (Step("unary", ("v1",), ("x1",), "v1 = x1.reshape(7, 7)"),)
    with pytest.raises(Illegal):
        examine(Network(1, LINE.inputs, steps, "", "v1", Settings(training=False)))


def test_the_shrinker_drops_what_does_not_matter():
    small = shrink(LINE, lambda n: "torch.tanh(" in n.source(), 20)
    assert [s.kind for s in small.steps if s.kind != "loss"] == ["unary"]
    assert small.settings == Settings(training=False)
    assert all(size <= 2 for i in small.inputs for size in i.shape)


def test_a_planted_fault_is_found_and_made_small(monkeypatch):
    """The fault: every clamp gives twice what it should."""
    real = check.ours

    def faulty(network, variables=None):
        run = real(network, variables)
        if "clamp" in network.source():
            for name in run.values:
                if name.startswith("output"):
                    run.values[name] = run.values[name] * 2 + 1
        return run

    monkeypatch.setattr(check, "ours", faulty)

    def fails(network):
        try:
            return (failure := examine(network, [])) is not None and failure.kind == "wrong"
        except Illegal:
            return False

    assert fails(LINE)
    small = shrink(LINE, fails, 30)
    assert "clamp" in small.source() and "tanh" not in small.source()
    assert len(small.steps) <= 2 and len(returned_names(small.returned)) == 1


def die():
    os.kill(os.getpid(), signal.SIGSEGV)


def test_a_child_that_dies_is_an_answer():
    assert in_child(lambda: 7, 10) == 7
    assert in_child(die, 10) == Died("crash: SIGSEGV")
    assert in_child(lambda: time.sleep(60), 0.2) == Died("hang")


def test_a_crash_does_not_end_a_survey():
    report = survey(list(range(6)), look=lambda seed: die() if seed == 3 else "fine")
    assert report.counts == {"fine": 5, "failed": 1}
    [(seed, failure)] = report.failures
    assert (seed, failure.kind) == (3, "crash: SIGSEGV")


def test_the_command_line():
    command = [sys.executable, HERE / "run"]
    answer = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert all(word in answer.stdout for word in ("--count", "--seed", "--one", "--jobs", "--time"))
    shown = subprocess.run(
        [*command, "--one", "3", "--print"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == program(generate(3)).strip()


def test_digests_tell_builds_apart(tmp_path, monkeypatch):
    def digests(name):
        write_digests(tmp_path / name, [3, 4, 5], jobs=1, seconds=None)
        return (tmp_path / name).read_text()

    first = digests("first")
    assert [line.split()[0] for line in first.splitlines()] == ["3", "4", "5"]
    assert digests("again") == first

    def off_by_a_bit(network, variables):
        run = ours(network, variables)
        for name, value in run.values.items():
            if value.is_floating_point():
                run.values[name] = torch.nextafter(value, torch.full_like(value, 9e9))
        return run

    monkeypatch.setattr(campaign, "ours", off_by_a_bit)
    assert digests("other") != first
