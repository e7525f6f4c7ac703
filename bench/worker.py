"""One measured program in a process of its own: bench/run starts it and tells it when to work.

usage: worker.py ours|eager WORKLOAD SECONDS

Answers in lines of JSON: the losses of three steps, when it has warmed up; then, for each line on
its input, the seconds that a step took over about SECONDS of steps.
"""
import json
import sys
import time

import models
import torch
from workloads import WORKLOADS

WARM_UP = 3


def eager_step(model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        _, loss = model(*batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def our_step(model, batch):
    import poptorch

    options = poptorch.Options().showCompilationProgressBar(False)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    return lambda: training(*batch)[1]


def seconds_per_step(step, count):
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count


def answer(**values):
    print(json.dumps(values), flush=True)


def main():
    side, name, seconds = sys.argv[1:]
    make_step = {"ours": our_step, "eager": eager_step}[side]
    step = make_step(*models.make(WORKLOADS[name]))
    losses = [float(step()) for _ in range(WARM_UP)]
    count = max(1, round(float(seconds) / seconds_per_step(step, WARM_UP)))
    answer(losses=losses)
    for _ in sys.stdin:
        answer(seconds=seconds_per_step(step, count))


if __name__ == "__main__":
    main()
