"""One measured program in a process of its own: bench/run starts it and tells it when to work.

usage: worker.py SIDE WORKLOAD SECONDS [quick]

SIDE is ours, eager, torchscript_frozen, torchscript_optimized, one of COMPILED_SIDES, or one of
HALF_SIDES, which are ours in half precision, or one of INSTANCE_SIDES, which are started as several
processes of which the first answers. Answers in
lines of JSON: when it has warmed up, the losses of the first steps (of inference: the outputs), the
most memory it has had and, from eager, the operations of a step; then, for each line on its input,
the seconds that a step took over about SECONDS of steps. SIDE compile only answers how long it took
to compile, compile_inductor how long Inductor took for its first step, and arena_ours or arena_half
how large the arena is.
"""
import contextlib
import functools
import json
import os
import pathlib
import re
import sys
import tempfile
import time

import compiled
import flops
import models
import torch
from workloads import COMPILED_SIDES, HALF_SIDES, INSTANCE_SIDES, REPLICAS, WORKLOADS

WARM_UP = 3
LOSS_SCALING = 1024.0  # of half precision


def optimizer_of(workload, module):
    """torch.optim or poptorch.optim: one of the same name and numbers for both sides."""
    if workload.model == "resnet18_frozen":
        return functools.partial(module.AdamW, lr=0.001)
    return functools.partial(module.SGD, lr=0.001, momentum=0.9)


def eager_step(workload, model, batch):
    optimizer = optimizer_of(workload, torch.optim)(model.parameters())

    def step():
        optimizer.zero_grad(set_to_none=True)
        _, loss = model(*batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def our_training(workload, model, side="ours"):
    import poptorch

    if hasattr(model, "mark_loss"):
        model.mark_loss = functools.partial(poptorch.identity_loss, reduction="sum")
    options = poptorch.Options().showCompilationProgressBar(False)
    numbers = {}
    if side in HALF_SIDES:
        numbers = dict(loss_scaling=LOSS_SCALING, velocity_accum_type=torch.half)
        options.randomSeed(1).Precision.enableStochasticRounding(side == "stochastic")
    if side == "replicas":
        options.replicationFactor(REPLICAS)
    optimizer = optimizer_of(workload, poptorch.optim)(model.parameters(), **numbers)
    return poptorch.trainingModel(model, options, optimizer)


def our_step(workload, model, batch, side="ours"):
    training = our_training(workload, model, side)
    if side == "replicas":
        return lambda: training(*batch)[1].mean()
    return lambda: training(*batch)[1]


def instance_step(workload, model, batch):
    """A step with this instance's part of the batch."""
    import popdist

    popdist.init()
    index, count = popdist.getInstanceIndex(), popdist.getNumInstances()
    part = [tensor.chunk(count)[index] for tensor in batch]
    training = our_training(workload, model)
    return lambda: training(*part)[1]


def in_half(model, batch):
    images, labels = batch
    return model.half(), (images.half(), labels)


def half_step(side, workload, model, batch):
    model, batch = in_half(model, batch)
    training = our_training(workload, model, side)
    return lambda: training(*batch)[1]


def inference_step(side, model, images):
    if side == "ours":
        import poptorch

        options = poptorch.Options().showCompilationProgressBar(False)
        inference = poptorch.inferenceModel(model, options)
    elif side in COMPILED_SIDES:
        return compiled.inference_step(side, model, images)
    elif side == "eager":
        inference = model
    else:
        inference = torch.jit.trace(model, images)
        if side == "torchscript_frozen":
            inference = torch.jit.freeze(inference)
        else:
            inference = torch.jit.optimize_for_inference(inference)
    return lambda: inference(images)


def make_step(side, workload, quick):
    model, batch = models.make(workload, quick)
    if workload.kind == "inference":
        torch.set_grad_enabled(False)
        return inference_step(side, model.model.eval(), batch[0])
    if side in HALF_SIDES:
        return half_step(side, workload, model, batch)
    if side == "replicas":
        return our_step(workload, model, batch, side)
    if side in INSTANCE_SIDES:
        return instance_step(workload, model, batch)
    if side in COMPILED_SIDES:
        optimizer = optimizer_of(workload, torch.optim)(model.parameters())
        return compiled.training_step(side, model, batch, optimizer)
    return {"ours": our_step, "eager": eager_step}[side](workload, model, batch)


def seconds_per_step(step, count):
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count


def peak_bytes():
    """The most memory that was resident at once."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


def answer(**values):
    print(json.dumps(values), flush=True)


def compile_once(workload, quick):
    model, batch = models.make(workload, quick)
    import poptorch  # noqa: F401  not part of compiling

    start = time.perf_counter()
    our_training(workload, model).compile(*batch)
    answer(seconds=time.perf_counter() - start)


def arena(side, workload, quick):
    """As the log says it when the program is compiled."""
    os.environ["POPTORCH_LOG_LEVEL"] = "INFO"
    model, batch = models.make(workload, quick)
    if side in HALF_SIDES:
        model, batch = in_half(model, batch)
    with tempfile.TemporaryFile("w+") as log:
        complaints = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            our_training(workload, model, side).compile(*batch)
        finally:
            os.dup2(complaints, 2)
        log.seek(0)
        size, unit = re.search(r"arena ([0-9.]+) (B|KB|MB|GB)", log.read()).groups()
    answer(bytes=round(float(size) * 1024 ** ["B", "KB", "MB", "GB"].index(unit)))


def work_as_instance(step, seconds):
    """The first instance answers and says when to work; all do as many steps."""
    import popdist
    from poptorch import poptorch_core

    def agreed(number):
        return popdist.broadcast(torch.tensor(number, dtype=torch.float64)).item()

    speaks = popdist.getInstanceIndex() == 0
    values = [popdist.allReduce(step(), "average").item() for _ in range(WARM_UP)]
    length = agreed(seconds_per_step(step, WARM_UP))
    if speaks:
        answer(values=values, peak_bytes=peak_bytes(), seconds=length)
    count = max(1, round(seconds / length))
    while agreed(float(bool(speaks and sys.stdin.readline()))):
        before = poptorch_core.instances_counters()
        taken = seconds_per_step(step, count)
        after = poptorch_core.instances_counters()
        waited = (after["waited_seconds"] - before["waited_seconds"]) / (taken * count)
        if speaks:
            answer(seconds=taken, waited=waited, bytes=(after["bytes"] - before["bytes"]) / count)


def first_step_of_inductor(workload, quick):
    """It compiles when it is called."""
    start = time.perf_counter()
    make_step("inductor_default", workload, quick)()
    answer(seconds=time.perf_counter() - start)


def main():
    side, name, seconds = sys.argv[1:4]
    workload, quick = WORKLOADS[name], "quick" in sys.argv[4:]
    if side == "compile":
        return compile_once(workload, quick)
    if side == "compile_inductor":
        return first_step_of_inductor(workload, quick)
    if side.startswith("arena_"):
        return arena(side.partition("_")[2], workload, quick)
    step = make_step(side, workload, quick)
    if side in INSTANCE_SIDES:
        return work_as_instance(step, float(seconds))
    counted = flops.Flops() if side == "eager" else contextlib.nullcontext()
    with counted:
        first = step()
    values = [first] + [step() for _ in range(WARM_UP - 1)]
    if workload.kind == "inference":
        values = first.flatten().tolist()
    length = seconds_per_step(step, 1)
    if length < 0.1:  # too short to be believed
        length = seconds_per_step(step, WARM_UP)
    answer(
        values=[float(value) for value in values],
        peak_bytes=peak_bytes(),
        flops=getattr(counted, "count", None),
        seconds=length,
    )
    count = max(1, round(float(seconds) / length))
    for _ in sys.stdin:
        answer(seconds=seconds_per_step(step, count))


if __name__ == "__main__":
    main()
