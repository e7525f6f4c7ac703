"""Networks that several instances train, beside one process with all their replicas.

Both must have the same bits: weights everywhere, and of outputs, inputs and buffers what belongs to
the replicas of an instance. As a program, with a folder and seeds, this file is one of the
instances, or the one process; it leaves a file for each seed.
"""

import collections
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

FILE = pathlib.Path(__file__).resolve()
if __name__ == "__main__":
    sys.path.insert(0, str(FILE.parent))
sys.path.append(str(FILE.parents[1]))

import launch  # noqa: E402
import popdist  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)

from generator import generate  # noqa: E402
from network import HALVES  # noqa: E402
from referee import nothing_special, ours, part_of_instance  # noqa: E402

BATCH = 100  # networks of one launch
SECONDS = 300  # for all of them


def network_of(seed, instances, half):
    """A training with one or two replicas in each instance; None where nothing comes of a seed."""
    network = generate(seed)
    if network is None or not network.settings.training:
        return None
    chosen = random.Random(seed)
    network = network.with_replicas(instances * chosen.choice([1, 2]))
    return network.with_halves(chosen.choice(list(HALVES))) if network and half else network


# ---- One of the processes ----


def work_through(folder, instances, half, seeds):
    """Leaves a file for each network: its values, or why there are none."""
    instance, count = popdist.getInstanceIndex(), popdist.getNumInstances()
    popdist.init()
    for seed in seeds:
        overlap = {"TESSERA_OVERLAP": str(seed % 2)}
        try:
            came = ours(network_of(seed, instances, half), overlap, instance, count).values
        except Exception as error:
            came = f"{type(error).__name__}: {error}"
        path = file_of(folder, seed, instance, count)
        torch.save(came, f"{path}.part")
        os.rename(f"{path}.part", path)
        if count > 1 and isinstance(came, str):
            sys.exit(came)  # the others cannot go on either


def file_of(folder, seed, instance, instances):
    return pathlib.Path(folder) / f"{seed}-{instance}-of-{instances}.pt"


def files_of(folder, seed, instances):
    """What the processes left; a sentence where one has nothing."""
    came = []
    for instance in range(instances):
        path = file_of(folder, seed, instance, instances)
        came.append(torch.load(path) if path.exists() else "the process died")
    return came


# ---- The comparison ----


def differences(network, alone, parts):
    """Sentences about what differs between one process and each of the instances."""
    wrong = []
    for instance, values in enumerate(parts):
        for name, value in alone.items():
            kind = name.split()[0]
            if kind == "buffer" and instance > 0:
                continue  # of another replica
            if kind in ("input", "output") and values[name].shape != value.shape:
                kept = rounds_kept(network.settings, kind)
                value = part_of_instance(value, kept, instance, len(parts))
            if not torch.equal(
                nothing_special(values[name].flatten()), nothing_special(value.flatten())
            ):
                wrong.append(f"{name} is another one in instance {instance} of {len(parts)}")
    return wrong


def rounds_kept(settings, kind):
    """Of how many micro-batches of each replica there are values."""
    if kind == "output" and settings.output_mode != "All":
        return 1
    return settings.iterations * settings.accumulation


class Survey:
    """Compares networks, and tells a function of those that differ."""

    def __init__(self, instances, half, note):
        self.instances, self.half, self.note = instances, half, note
        self.counts = collections.Counter()

    def look_at(self, seeds):
        networks = {seed: network_of(seed, self.instances, self.half) for seed in seeds}
        waiting = [seed for seed in seeds if networks[seed] is not None]
        self.counts["nothing"] += len(seeds) - len(waiting)
        for first in range(0, len(waiting), BATCH):
            with tempfile.TemporaryDirectory() as folder:
                batch = waiting[first : first + BATCH]
                self.compare(folder, {seed: networks[seed] for seed in batch})

    def arguments(self, folder, seeds):
        return [folder, str(self.instances), str(int(self.half)), *map(str, seeds)]

    def compare(self, folder, networks):
        alone = self.run_alone(folder, list(networks))
        self.counts["refused"] += len(networks) - len(alone)
        waiting = list(alone)
        while waiting:
            said = self.run_together(folder, waiting)
            while waiting:
                seed = waiting.pop(0)
                parts = files_of(folder, seed, self.instances)
                failures = [part for part in parts if isinstance(part, str)]
                self.judge(seed, failures or differences(networks[seed], alone[seed], parts))
                if failures:
                    print(said[-3000:], file=sys.stderr)
                    break  # and begin anew with the next one

    def judge(self, seed, sentences):
        self.counts["failed" if sentences else "same"] += 1
        if sentences:
            self.note(seed, "\n".join(sentences))

    def run_alone(self, folder, seeds):
        """The values of each network that runs in one process with all replicas."""
        command = [sys.executable, "-B", str(FILE), *self.arguments(folder, seeds)]
        subprocess.run(command, env={**os.environ, **launch.ENVIRONMENT}, timeout=SECONDS)
        came = {seed: files_of(folder, seed, 1)[0] for seed in seeds}
        return {seed: values for seed, values in came.items() if isinstance(values, dict)}

    def run_together(self, folder, seeds):
        arguments = self.arguments(folder, seeds)
        process = launch.start(self.instances, FILE, *arguments, **launch.ALL_SAY_WHY)
        return launch.stderr_of(process, SECONDS)


def main(arguments):
    first = arguments.seed if arguments.seed is not None else int(time.time()) % 10**8
    seeds = [arguments.one] if arguments.one is not None else None
    seeds = seeds or list(range(first, first + arguments.count))
    print(f"networks of the seeds {seeds[0]} to {seeds[-1]}", flush=True)
    begin = time.monotonic()
    options = f"--instances {arguments.instances}" + (" --half" if arguments.half else "")

    def note(seed, sentences):
        print(f"=== seed {seed}\n{sentences}\nrepeat with: tests/fuzz/run {options} --one {seed}")

    survey = Survey(arguments.instances, arguments.half, note)
    survey.look_at(seeds)
    print(dict(survey.counts), f"in {time.monotonic() - begin:.0f} s")
    return 1 if survey.counts["failed"] else 0


if __name__ == "__main__":
    folder, instances, half, *seeds = sys.argv[1:]
    work_through(folder, int(instances), half == "1", list(map(int, seeds)))
