"""Many networks, in processes that may die, and what came of them."""

import collections
import dataclasses
import hashlib
import functools
import os
import random
import sys
import time

import torch

torch.set_num_threads(1)

from check import BASE, Failure, examine  # noqa: E402
from children import Child, Died, in_child  # noqa: E402
from generator import generate  # noqa: E402
from network import HALVES, program  # noqa: E402
from referee import Illegal, ours  # noqa: E402
from shrink import shrink  # noqa: E402

TIME_LIMIT = 60.0  # for one network
BATCH = 200  # networks of one process


@dataclasses.dataclass
class Report:
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failures: list = dataclasses.field(default_factory=list)  # (seed, Failure)


def generate_in_half(seed):
    """The network of a seed, with some of it in half precision."""
    network = generate(seed)
    return network and network.with_halves(random.Random(seed).choice(list(HALVES)))


def generate_with_replicas(seed):
    """The network of a seed, with several replicas."""
    network = generate(seed)
    return network and network.with_replicas(random.Random(seed).choice([2, 3, 4]))


def look(seed, chosen=None, generate=generate):
    """A Failure, or a word: fine, illegal, nothing."""
    network = generate(seed)
    if network is None:
        return "nothing"
    try:
        return examine(network, chosen) or "fine"
    except Illegal:
        return "illegal"


def digest(seed, generate=generate):
    """A word for all bits that come of a network, or for why there are none."""
    network = generate(seed)
    if network is None:
        return "nothing"
    try:
        values = ours(network, BASE).values
    except Exception as error:
        return type(error).__name__
    bits = hashlib.sha256()
    for name, value in values.items():
        bits.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        bits.update(value.contiguous().numpy().tobytes())
    return bits.hexdigest()[:16]


def work_through(seeds, send, look):
    for seed in seeds:
        send(("begin", seed))
        send(("end", seed, look(seed)))


class Worker:
    """A process with seeds of its own; begun anew after one that kills it."""

    def __init__(self, seeds, look):
        self.seeds, self.current, self.look = collections.deque(seeds), None, look
        self.begin()

    def begin(self):
        seeds = list(self.seeds)
        self.child = Child(lambda send: work_through(seeds, send, self.look))

    def poll(self, seconds, note):
        """Handles what came; False when all is done."""
        items = self.child.received(seconds)
        for item in items or ():
            if item[0] == "begin":
                self.current = item[1]
            else:
                note(item[1], item[2])
                self.seeds.popleft()
                self.current = None
        hangs = items == [] and time.monotonic() - self.child.heard > TIME_LIMIT
        if items is not None and not hangs:
            return True
        if hangs:
            self.child.kill()
        died = self.child.ended()
        if not self.seeds:
            return False
        culprit = self.seeds.popleft()
        how = "hang" if hangs else died.how if died else "crash: no answer"
        note(culprit, Failure(how, f"the process of seed {culprit} died: {how}"))
        if self.seeds:
            self.begin()
        return bool(self.seeds)


def survey(seeds, jobs=1, seconds=None, note=lambda seed, answer: None, look=look):
    """Looks at the networks of all seeds."""
    report, end = Report(), time.monotonic() + (seconds or 1e9)

    def take(seed, answer):
        failed = isinstance(answer, Failure)
        report.counts["failed" if failed else answer] += 1
        if failed:
            report.failures.append((seed, answer))
        note(seed, answer)

    waiting = collections.deque(seeds[i : i + BATCH] for i in range(0, len(seeds), BATCH))
    workers = []
    while (waiting or workers) and time.monotonic() < end:
        while waiting and len(workers) < jobs:
            workers.append(Worker(waiting.popleft(), look))
        workers = [w for w in workers if w.poll(0.5 / len(workers), take)]
    for worker in workers:
        worker.child.kill()
        worker.child.ended()
    return report


def failure_of(network, chosen):
    """How a network fails, in a process of its own; None where it does not."""

    def attempt():
        try:
            return examine(network, chosen)
        except Illegal:
            return None

    answer = in_child(attempt, TIME_LIMIT)
    return Failure(answer.how, answer.how) if isinstance(answer, Died) else answer


def smallest(network, failure, seconds):
    """The smallest network that fails as this one does."""
    chosen = [dict(failure.variant)] if failure.variant else []
    if failure.kind.startswith(("crash", "hang")):
        chosen = None

    def fails(candidate):
        found = failure_of(candidate, chosen)
        return found is not None and found.kind == failure.kind

    return shrink(network, fails, seconds)


def describe(seed, failure, seconds, generate=generate):
    """What a person needs to mend it."""
    here = os.path.relpath(sys.argv[0]) if sys.argv[0].endswith("run") else "tests/fuzz/run"
    lines = [f"=== seed {seed}: {failure.kind}", failure.message[:1500]]
    if failure.variant:
        lines.append(f"with {dict(failure.variant)}")
    option = {generate_in_half: " --half", generate_with_replicas: " --replicas"}.get(generate, "")
    lines.append(f"repeat with: {here} --one {seed}{option}")
    if seconds > 0:
        lines += [
            "as a small program:",
            "",
            program(smallest(generate(seed), failure, seconds), failure.variant),
        ]
    return "\n".join(lines)


def write_digests(path, seeds, jobs, seconds, generate=generate):
    """A line for each network, in the order of their seeds: two builds compare by `diff`."""
    lines = {}

    def note(seed, answer):
        lines[seed] = answer.kind if isinstance(answer, Failure) else answer

    report = survey(seeds, jobs, seconds, note, functools.partial(digest, generate=generate))
    with open(path, "w") as file:
        file.writelines(f"{seed} {lines[seed]}\n" for seed in sorted(lines))
    print(f"{path}: {len(lines)} networks, {len(report.failures)} of them died")
    return 1 if report.failures else 0


def main(arguments):
    first = arguments.seed if arguments.seed is not None else int(time.time()) % 10**8
    seeds = [arguments.one] if arguments.one is not None else None
    seeds = seeds or list(range(first, first + arguments.count))
    make = generate_in_half if arguments.half else generate
    make = generate_with_replicas if arguments.replicas else make
    if arguments.print:
        for seed in seeds:
            network = make(seed)
            print(program(network) if network else f"# nothing comes of seed {seed}")
        return 0
    print(f"networks of the seeds {seeds[0]} to {seeds[-1]}", flush=True)
    if arguments.digests:
        return write_digests(arguments.digests, seeds, arguments.jobs, arguments.time, make)
    kinds, begin = collections.Counter(), time.monotonic()

    def note(seed, answer):
        if isinstance(answer, Failure):
            kinds[answer.kind] += 1
            seconds = arguments.shrink if kinds[answer.kind] <= 3 else 0
            print(describe(seed, answer, seconds, make), flush=True)

    looking = functools.partial(look, generate=make)
    report = survey(seeds, arguments.jobs, arguments.time, note, looking)
    took = time.monotonic() - begin
    print(dict(report.counts), f"in {took:.0f} s")
    for kind, count in kinds.most_common():
        print(f"{count:5d} {kind}")
    return 1 if report.failures else 0
