"""Measures a workload: starts its programs, lets them take turns, makes rows of the medians."""
import dataclasses
import os
import statistics
import subprocess
import tempfile
from typing import Optional

import onnx_peer
from programs import (
    PYTHON,
    ROOT,
    Epoch,
    Failed,
    Program,
    Setting,
    has_torch_compile,
    last_words,
    say,
)
from workloads import COMPILED_SIDES, LESS_IS_BETTER, OWN_PEER, OWN_SIDES, WORKLOADS

# A peer that is this many times slower than another at first gets no turns: the best one counts.
HOPELESS = 1.5
# Goals beside Inductor: to be ahead, and to compile in a twentieth of its first call.
AHEAD, COMPILES_AHEAD = 1, 20
# Of rows that share a workload.
SUFFIXES = {"stochastic": "_stochastic", "instances_no_overlap": "_no_overlap"}
LOADERS = 20  # processes that load data in the tutorial's program


@dataclasses.dataclass
class Effort:
    """What the user asked for."""

    threads: Optional[list]  # None: those of the workload's rows
    rounds: Optional[int]  # None: the workload's
    seconds: float
    quick: bool = False
    precise: bool = False
    peak: Optional[float] = None  # operations per second of one thread
    shares_pool: bool = False  # the BLAS has PyTorch's threads, none of its own

    def threads_of(self, workload):
        if self.threads:
            return self.threads
        cores = len(os.sched_getaffinity(0))
        return sorted({min(threads, cores) for threads in workload.goals})

    def rounds_of(self, workload):
        return self.rounds or workload.rounds

    def ours(self, threads):
        return Setting(threads, threads, self.precise)


def row_of(name, threads, effort, *, ours, unit, peer=None, peer_name=None, peer_setting=None):
    """A row; what does not apply to it is None."""
    workload = WORKLOADS[name]
    row = {"name": name, "threads": threads, "unit": unit, "ours": ours}
    row.update(peer_name=peer_name, peer=peer, peer_threads=None, peer_setting=None)
    if peer_setting:
        row.update(peer_threads=peer_setting.threads, peer_setting=str(peer_setting))
    less_is_better = workload.kind in LESS_IS_BETTER
    row["ratio"] = row["goal"] = row["reached"] = row["percent_of_peak"] = None
    if peer is not None:
        row["ratio"] = ours / peer if less_is_better else peer / ours
        if not effort.quick:  # on small inputs the goal means nothing
            row["goal"] = workload.goals.get(threads)
    elif workload.kind == "compile" and not effort.quick:
        row["goal"] = workload.goals.get(threads)  # in seconds, of ours alone
        row["reached"] = row["goal"] is not None and ours <= row["goal"]
    if row["goal"] is not None and row["ratio"] is not None:
        ratio, goal = row["ratio"], row["goal"]
        row["reached"] = ratio <= goal if less_is_better else ratio >= goal
    return row


def check_same_values(programs, tolerance):
    """Two programs that compute different things cannot be compared."""
    first = programs[0]
    limit = tolerance * max(abs(value) for value in first.values)
    for program in programs[1:]:
        for a, b in zip(first.values, program.values):
            if not abs(a - b) <= limit:  # nor where one is not a number
                raise Failed(f"{program.label}: computes {b}, but {first.label} computes {a}")


def without_hopeless(programs, seconds_of):
    """The programs that may be the best of their side; ends the others."""
    kept = []
    for program in programs:
        best = min(seconds_of(p) for p in programs if p.side == program.side)
        if seconds_of(program) <= HOPELESS * best:
            kept.append(program)
            continue
        say(f"{program.label}: {duration(seconds_of(program))}, out of the running")
        if isinstance(program, Program):
            program.end()
    return kept


def duration(seconds):
    return f"{1000 * seconds:.4g} ms" if seconds < 1 else f"{seconds:.4g} s"


def eager_settings(threads, fewer, effort):
    """PyTorch may have two pools of threads, its own and the BLAS's, in each other's way."""
    counts = {1, threads} if fewer else {threads}
    shared = effort.shares_pool
    return [Setting(a, b) for a in sorted(counts) for b in sorted({a} if shared else {1, a})]


def peers_of(name, threads, effort, folder):
    """Starts the peers at one number of threads, and warms them up."""
    workload = WORKLOADS[name]
    programs = []
    try:
        settings = eager_settings(threads, workload.fewer_threads, effort)
        sides = [("eager", setting) for setting in settings]
        if workload.kind == "inference":
            same = Setting(threads, threads)
            sides += [("torchscript_frozen", same), ("torchscript_optimized", same)]
        if has_torch_compile():
            settings = eager_settings(threads, False, effort)
            compiled = [side for side in COMPILED_SIDES if workload.backend or side != "backend"]
            sides += [(side, setting) for side in compiled for setting in settings]
        for side, setting in sides:
            programs.append(Program(side, name, setting, effort.seconds, effort.quick))
            try:
                programs[-1].warm_up()
            except Failed as failure:
                if family(side) != "torchscript":
                    raise
                say(
                    f"not measured: {failure}"
                )  # there are two ways, and not every PyTorch has both
                end_all([programs.pop()])
        if workload.kind == "inference":
            try:
                program = onnx_peer.start(name, threads, effort.seconds, effort.quick, folder)
                programs.append(program)
                program.warm_up()
            except Failed as failure:
                say(f"ONNX Runtime is not measured: {failure}")
        return without_hopeless(programs, lambda program: program.first_seconds)
    except BaseException:
        end_all(programs)
        raise


def end_all(programs):
    for program in programs:
        program.end()


def measure_steps(name, effort):
    workload = WORKLOADS[name]
    rows = []
    for threads in effort.threads_of(workload):
        with tempfile.TemporaryDirectory() as folder:
            programs = peers_of(name, threads, effort, folder)
            try:
                setting = effort.ours(threads)
                ours = Program("ours", name, setting, effort.seconds, effort.quick)
                programs.append(ours)
                ours.warm_up()
                check_same_values(programs, workload.tolerance)
                for _ in range(effort.rounds_of(workload)):
                    for program in programs:
                        program.measure()
            finally:
                end_all(programs)
        for program in programs:
            say(f"{program.label}: {duration(program.median())} per step")
        rows += rows_of_steps(name, programs, effort)
    return rows


def family(side):
    return side.partition("_")[0]


def rows_of_steps(name, programs, effort):
    """Ours beside the best program of each peer; the goal is the first row's."""
    (ours,) = (program for program in programs if program.side == "ours")
    peers = [program for program in programs if program is not ours]
    flops = next((program.flops for program in programs if program.flops), None)
    names = {family(program.side) for program in peers}
    known = ("onnxruntime", "torchscript", "eager", "inductor", "backend")
    order = [peer for peer in known if peer in names]
    rows = []
    for peer_name in order:
        best = min((p for p in peers if family(p.side) == peer_name), key=lambda p: p.median())
        row = row_of(
            name,
            ours.threads,
            effort,
            ours=ours.median(),
            unit="seconds per step",
            peer=best.median(),
            peer_name=peer_name,
            peer_setting=best.setting,
        )
        row["flops"] = flops
        if flops and effort.peak:
            row["percent_of_peak"] = 100 * flops / ours.median() / (effort.peak * ours.threads)
        if peer_name == "inductor":
            set_goal(row, AHEAD, effort)
        elif WORKLOADS[name].kind == "inference" and peer_name != "onnxruntime":
            row["goal"] = row["reached"] = None
        elif peer_name == "backend":  # ours too, without the whole step
            row["goal"] = row["reached"] = None
        rows.append(row)
    return rows


def set_goal(row, goal, effort):
    """Of a ratio that should be large."""
    row["goal"] = None if effort.quick else goal
    row["reached"] = None if effort.quick else row["ratio"] >= goal


def seconds_of_one(side, name, setting, effort):
    program = Program(side, name, setting, 0, effort.quick)
    try:
        return program.answer()["seconds"]
    finally:
        program.end()


def measure_compile(name, effort):
    rows = []
    for threads in effort.threads_of(WORKLOADS[name]):
        setting = effort.ours(threads)
        seconds = [
            seconds_of_one("compile", name, setting, effort)
            for _ in range(effort.rounds_of(WORKLOADS[name]))
        ]
        ours = {"ours": statistics.median(seconds), "unit": "seconds"}
        rows.append(row_of(name, threads, effort, **ours))
        if not has_torch_compile():
            continue
        peer = seconds_of_one("compile_inductor", name, Setting(threads, threads), effort)
        named = {"peer_name": "inductor", "peer_setting": Setting(threads, threads)}
        rows.append(row_of(name, threads, effort, **ours, peer=peer, **named))
        set_goal(rows[-1], COMPILES_AHEAD, effort)
    return rows


def measure_cached(name, effort):
    """Starting from a cache that has the program, beside starting without one."""
    workload = WORKLOADS[name]
    rows = []
    for threads in effort.threads_of(workload):
        plain = dataclasses.replace(effort.ours(threads), autotune=workload.autotune)
        compiled, found = [], []
        with tempfile.TemporaryDirectory() as folder:
            cached = dataclasses.replace(plain, cache=folder)
            seconds_of_one("compile", name, cached, effort)  # which fills it
            for _ in range(effort.rounds_of(workload)):
                compiled.append(seconds_of_one("compile", name, plain, effort))
                found.append(seconds_of_one("compile", name, cached, effort))
        row = row_of(
            name,
            threads,
            effort,
            ours=statistics.median(found),
            unit="seconds",
            peer=statistics.median(compiled),
            peer_name="compiling",
            peer_setting=plain,
        )
        rows.append(row)
    return rows


def measure_memory(name, effort):
    """One process after the other: they must not be short of memory."""
    rows = []
    for threads in effort.threads_of(WORKLOADS[name]):
        peaks = {}
        for side, setting in (("eager", Setting(threads, threads)), ("ours", effort.ours(threads))):
            program = Program(side, name, setting, 0, effort.quick)
            try:
                program.warm_up()
            finally:
                program.end()
            peaks[side] = program.peak_bytes
        row = row_of(
            name,
            threads,
            effort,
            ours=peaks["ours"],
            unit="bytes",
            peer=peaks["eager"],
            peer_name="eager",
            peer_setting=Setting(threads, threads),
        )
        rows.append(row)
    return rows


def measure_own(name, effort):
    """Ours and other ways of ours take turns; a row for each of these."""
    workload = WORKLOADS[name]
    rows = []
    for threads in effort.threads_of(workload):
        setting, programs = effort.ours(threads), []
        try:
            for side in ("ours", *OWN_SIDES[workload.kind]):
                programs.append(Program(side, name, setting, effort.seconds, effort.quick))
                programs[-1].warm_up()
            check_same_values(programs, workload.tolerance)
            for _ in range(effort.rounds_of(workload)):
                for program in programs:
                    program.measure()
        finally:
            end_all(programs)
        for program in programs:
            say(f"{program.label}: {duration(program.median())} per step{waiting_of(program)}")
        rows += rows_of_own(name, programs, effort)
    return rows


def waiting_of(program):
    """What instances wait for each other, in words."""
    if not program.waited:
        return ""
    share = statistics.median(program.waited)
    return f", {share:.0%} of it waiting for gradients, {program.bytes / 1e6:.1f} MB sent"


def rows_of_own(name, programs, effort):
    plain = programs[0]
    rows = []
    for program in programs[1:]:
        row = row_of(
            name,
            program.threads,
            effort,
            ours=program.median(),
            unit="seconds per step",
            peer=plain.median(),
            peer_name=OWN_PEER[WORKLOADS[name].kind],
            peer_setting=plain.setting,
        )
        row["name"] += SUFFIXES.get(program.side, "")
        if program.waited:
            row["waiting"] = statistics.median(program.waited)
            row["bytes_sent"] = program.bytes
        rows.append(row)
    return rows


def arena_of(side, name, setting, effort):
    program = Program(f"arena_{side}", name, setting, 0, effort.quick)
    try:
        return program.answer()["bytes"]
    finally:
        program.end()


def measure_half_memory(name, effort):
    rows = []
    for threads in effort.threads_of(WORKLOADS[name]):
        setting = effort.ours(threads)
        row = row_of(
            name,
            threads,
            effort,
            ours=arena_of("half", name, setting, effort),
            unit="bytes",
            peer=arena_of("ours", name, setting, effort),
            peer_name="float32",
            peer_setting=setting,
        )
        rows.append(row)
    return rows


def measure_epoch(name, effort):
    workload = WORKLOADS[name]
    (images,) = workload.quick_shape if effort.quick else workload.shape
    loaders = 2 if effort.quick else LOADERS
    rows = []
    for threads in effort.threads_of(workload):
        with tempfile.TemporaryDirectory() as folder:
            command = [PYTHON, ROOT / "tools/fashion_mnist_root", folder]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode != 0:
                raise Failed(last_words(result.stderr))
            ours = Epoch("ours", name, effort.ours(threads), folder, loaders, images)
            peers = [
                Epoch("eager", name, setting, folder, count, images)
                for setting in eager_settings(threads, workload.fewer_threads, effort)
                for count in sorted({threads, loaders})
            ]
            for turn in range(effort.rounds_of(workload)):
                for program in [ours, *peers]:
                    program.measure()
                if turn == 0:
                    check_same_values([ours, *peers], workload.tolerance)
                    peers = without_hopeless(peers, Epoch.median)
        for program in [ours, *peers]:
            say(f"{program.label}: {program.median():.4g} s")
        best = min(peers, key=Epoch.median)
        row = row_of(
            name,
            threads,
            effort,
            ours=ours.median(),
            unit="seconds",
            peer=best.median(),
            peer_name="eager",
            peer_setting=best.setting,
        )
        rows.append(row)
    return rows


MEASURE = {
    "training": measure_steps,
    "inference": measure_steps,
    "compile": measure_compile,
    "cached": measure_cached,
    "memory": measure_memory,
    "epoch": measure_epoch,
    "half": measure_own,
    "half_memory": measure_half_memory,
    "replicas": measure_own,
    "instances": measure_own,
}


def measure(name, effort):
    """The rows of one workload."""
    return MEASURE[WORKLOADS[name].kind](name, effort)
