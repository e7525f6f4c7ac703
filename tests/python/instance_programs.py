"""What the instances of instances_test.py do, which starts this file as several processes.

usage: instance_programs.py FOLDER NAME...

Each name is a part of the program below. What came of each is written to FOLDER/<instances>-<number
of the instance>.pt: values to compare, or why it failed. The test itself trains with the same
functions in one process.
"""

import contextlib
import dataclasses
import os
import sys
import time
import traceback
from typing import Callable

import horovod.torch as hvd
import popdist
import popdist.poptorch
import poptorch
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import MLP, SeedCNN

INSTANCE, INSTANCES = popdist.getInstanceIndex(), popdist.getNumInstances()
FOLDER = sys.argv[1] if len(sys.argv) > 1 else None


# ---- Training ----


def seeded(make, seed=3):
    torch.manual_seed(seed)
    return make()


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.Dropout(0.5), nn.Linear(64, 4))

    def forward(self, x, labels):
        x = self.layers(x)
        return x, F.cross_entropy(x, labels)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(20)
        self.layer = nn.Linear(20, 4)

    def forward(self, x, labels=None):
        x = self.layer(self.norm(x))
        return x if labels is None else (x, F.cross_entropy(x, labels))


def sgd(parameters, **arguments):
    return poptorch.optim.SGD(parameters, **{"lr": 0.1, "momentum": 0.9, **arguments})


def adam(parameters, **arguments):
    return poptorch.optim.AdamW(parameters, **{"lr": 1e-2, "weight_decay": 1e-2, **arguments})


@dataclasses.dataclass
class Training:
    """What is trained and how; how many replicas there are is said elsewhere."""

    model: Callable = MLP
    optimizer: Callable = sgd
    change: Callable = lambda options: options
    iterations: int = 1
    accumulation: int = 1
    steps: int = 3
    half: bool = False
    overlaps: bool = True

    def options(self, replicas):
        made = poptorch.Options().randomSeed(7).showCompilationProgressBar(False)
        made.replicationFactor(replicas).deviceIterations(self.iterations)
        made.Training.gradientAccumulation(self.accumulation)
        made.Distributed.configureProcessId(INSTANCE, INSTANCES)
        self.change(made)
        return made

    def new_model(self):
        model = seeded(self.model)
        return model.half() if self.half else model

    def batch(self, replicas, step):
        """This instance's part of the samples that all instances see in a step."""
        generator = torch.Generator().manual_seed(step)
        micro_batches = self.iterations * self.accumulation
        sizes = (1, 28, 28) if self.model is SeedCNN else (20,)
        count = 3 * micro_batches * replicas * INSTANCES
        x = torch.randn(count, *sizes, generator=generator)
        labels = torch.randint(0, 4, (count,), generator=generator)
        x = x.half() if self.half else x
        return tuple(part_of_instance(values, micro_batches) for values in (x, labels))


def part_of_instance(values, micro_batches):
    """Of values that are ordered by micro-batch and then by replica."""
    return values.unflatten(0, (micro_batches, INSTANCES, -1))[:, INSTANCE].flatten(0, 1)


def reduced_by_sum(options):
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)


def running_mean(options):
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(
        poptorch.MeanReductionStrategy.Running
    )


def scaled_automatically(options):
    options.Training.setAutomaticLossScaling(True)


def all_outputs(options):
    options.outputMode(poptorch.OutputMode.All)


HALF = torch.float16
TRAININGS = {
    "gradient": Training(optimizer=lambda p: torch.optim.SGD(p, lr=2.0**40), steps=1),
    "adam": Training(optimizer=adam, steps=50),
    "no overlap": Training(optimizer=adam, steps=50, overlaps=False),
    "convolutions": Training(SeedCNN),
    "accumulation": Training(accumulation=2, change=all_outputs),
    "running mean": Training(accumulation=3, optimizer=adam, change=running_mean),
    "iterations": Training(iterations=3, accumulation=2, optimizer=adam, change=all_outputs),
    "sum": Training(accumulation=2, change=reduced_by_sum),
    "half": Training(half=True, optimizer=lambda p: sgd(p, accum_type=HALF), accumulation=2),
    "half in float": Training(half=True, optimizer=lambda p: adam(p, accum_type=torch.float32)),
    "loss scaling": Training(half=True, optimizer=lambda p: adam(p, loss_scaling=128.0)),
    "automatic": Training(
        half=True,
        steps=12,
        optimizer=lambda p: sgd(p, loss_scaling=2.0**15, lr=1e-3),
        change=scaled_automatically,
    ),
    "dropout": Training(Dropping),
    "norm of gradients": Training(optimizer=lambda p: sgd(p, max_grad_norm=0.2)),
    "lamb": Training(optimizer=lambda p: poptorch.optim.LAMB(p, lr=1e-2)),
    "batch norm": Training(Normed),
}


@contextlib.contextmanager
def overlap(overlaps):
    os.environ["TESSERA_OVERLAP"] = "1" if overlaps else "0"
    yield
    del os.environ["TESSERA_OVERLAP"]


def weights_of(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def trained(name, replicas):
    """Weights and losses of this instance after a training."""
    training = TRAININGS[name]
    model = training.new_model()
    with overlap(training.overlaps):
        executor = poptorch.trainingModel(
            model, training.options(replicas), training.optimizer(model.parameters())
        )
        losses = [executor(*training.batch(replicas, step))[1] for step in range(training.steps)]
    executor.destroy()
    return {"weights": weights_of(model), "losses": torch.stack(losses)}


def train_all():
    values = {}
    for replicas in (1, 2, 4):
        for name in TRAININGS if replicas < 4 else ("gradient", "adam"):
            values[name, replicas] = trained(name, replicas)
    return values


# ---- Programs that do more than train ----


def two_models():
    """Two models take turns."""
    trainings = [TRAININGS["adam"], TRAININGS["dropout"]]
    models = [training.new_model() for training in trainings]
    executors = [
        poptorch.trainingModel(model, training.options(2), training.optimizer(model.parameters()))
        for training, model in zip(trainings, models)
    ]
    for step in range(3):
        for training, executor in zip(trainings, executors):
            executor(*training.batch(2, step))
    weights = {i: weights_of(model) for i, model in enumerate(models)}
    for executor in executors:
        executor.destroy()
    return weights


def training_and_inference():
    """Outputs of each instance's own replicas, before, during and after the training."""
    training = TRAININGS["adam"]
    options = training.options(2)
    model = training.new_model()
    learning = poptorch.trainingModel(model, options, training.optimizer(model.parameters()))
    asking = poptorch.inferenceModel(model.eval(), options)
    outputs = []
    for step in range(3):
        outputs.append(asking(training.batch(2, 100)[0]))
        model.train()
        learning(*training.batch(2, step))
        model.eval()
    outputs.append(asking(training.batch(2, 100)[0]))
    learning.destroy()
    asking.destroy()
    return {"outputs": torch.stack(outputs), "weights": weights_of(model)}


TOTAL = 4  # replicas of a training that goes on in another number of instances


def begin():
    """Trains for a while and leaves checkpoints."""
    return go_on_from(None)


def go_on():
    """Goes on with what two instances left."""
    return go_on_from(torch.load(f"{FOLDER}/checkpoint-0.pt"))


def go_on_from(checkpoint):
    training = TRAININGS["adam"]
    replicas = TOTAL // INSTANCES
    model = training.new_model()
    optimizer = training.optimizer(model.parameters())
    if checkpoint:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    executor = poptorch.trainingModel(model, training.options(replicas), optimizer)
    for step in range(3):
        executor(*training.batch(replicas, step))
    if not checkpoint:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, f"{FOLDER}/checkpoint-{INSTANCE}.pt")
        executor.save(f"{FOLDER}/executable-{INSTANCE}.poptorch")
    executor.destroy()
    return weights_of(model)


def other_weights():
    """Instances begin with different weights, and change them later."""
    training = TRAININGS["adam"]
    torch.manual_seed(INSTANCE)
    model = MLP()
    first = weights_of(seeded(MLP, 0))
    executor = poptorch.trainingModel(
        model, training.options(2), training.optimizer(model.parameters())
    )
    executor(*training.batch(2, 0))
    after_one = weights_of(model)
    with torch.no_grad():
        model.layers[0].weight.fill_(INSTANCE + 1)
    executor.copyWeightsToDevice()
    executor(*training.batch(2, 1))
    executor.destroy()
    return {"first": first, "after one": after_one, "after two": weights_of(model)}


def weights_given_to_all():
    """No two instances have the same weights until the first one gives them its own."""
    torch.manual_seed(INSTANCE)
    model = MLP()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01 * (INSTANCE + 1))
    model(torch.randn(4, 20), torch.zeros(4, dtype=torch.long))[1].backward()
    optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=1)
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    state = optimizer.state_dict()
    moments = {i: values["exp_avg"].clone() for i, values in state["state"].items()}
    return {
        "weights": weights_of(model),
        "moments": moments,
        "rate": torch.tensor(state["param_groups"][0]["lr"]),
    }


def cached():
    """With a folder in common one of the instances compiles; the others say that they did not."""
    training = TRAININGS["convolutions"]
    options = training.options(1).enableExecutableCaching(f"{FOLDER}/cache-{INSTANCES}")
    options.showCompilationProgressBar(True)
    model = training.new_model()
    executor = poptorch.trainingModel(model, options, training.optimizer(model.parameters()))
    executor(*training.batch(1, 0))
    executor.destroy()
    return weights_of(model)


def loaded():
    """What a loader gives this instance, in three epochs of 50 samples, in batches of 3 each."""
    options = popdist.poptorch.Options().randomSeed(5)
    shuffled = poptorch.DataLoader(options, torch.arange(50), batch_size=3, shuffle=True)
    plain = poptorch.DataLoader(options, torch.arange(50), batch_size=3)
    rest = poptorch.DataLoader(options, torch.arange(50), batch_size=3, drop_last=False)
    loaders = {"shuffled": shuffled, "plain": plain, "rest": rest}
    return {name: [torch.cat(list(it)).tolist() for _ in range(3)] for name, it in loaders.items()}


# ---- Things done together ----


def numbers():
    """What popdist and Horovod say of the instances."""
    assert popdist.isPopdistEnvSet()
    assert popdist.getNumTotalReplicas() == INSTANCES and popdist.getNumLocalReplicas() == 1
    assert popdist.getReplicaIndexOffset() == INSTANCE == popdist.getLocalInstanceIndex()
    assert (hvd.rank(), hvd.size()) == (INSTANCE, INSTANCES)
    assert (hvd.local_rank(), hvd.local_size()) == (INSTANCE, INSTANCES)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    options = popdist.poptorch.Options()
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (
        INSTANCE,
        INSTANCES,
    )


def ranks():
    return range(INSTANCES)


def reductions():
    """allreduce() and its variants."""
    mine = torch.tensor([1.0, 2.0]) * (INSTANCE + 1)
    total = sum(i + 1 for i in ranks())
    assert torch.equal(hvd.allreduce(mine), torch.tensor([1.0, 2.0]) * total / INSTANCES)
    assert hvd.allreduce(mine, average=False).tolist() == [total, 2 * total]
    assert hvd.allreduce(mine, op=hvd.Sum, name="named").tolist() == [total, 2 * total]
    assert hvd.allreduce(mine, op=hvd.Min).tolist() == [1, 2]
    assert hvd.allreduce(mine, op=hvd.Max).tolist() == [INSTANCES, 2 * INSTANCES]
    factorial = torch.tensor([i + 1 for i in ranks()]).prod().item()
    assert hvd.allreduce(mine, op=hvd.Product).tolist() == [factorial, 2**INSTANCES * factorial]
    scaled = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0)
    assert scaled.tolist() == [6 * total, 12 * total]
    assert torch.equal(mine, torch.tensor([1.0, 2.0]) * (INSTANCE + 1))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        got = hvd.allreduce(torch.full((2, 3), INSTANCE + 1, dtype=dtype), op=hvd.Sum)
        assert got.dtype == dtype and got.tolist() == [[total] * 3] * 2
        got = hvd.allreduce(torch.tensor(INSTANCE + 1, dtype=dtype))
        assert got.dtype == dtype and got.item() == total // INSTANCES
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        got = hvd.allreduce(torch.full((3,), INSTANCE + 1.0, dtype=dtype), op=hvd.Sum)
        assert got.dtype == dtype and got.tolist() == [total] * 3
    got = hvd.allreduce(torch.tensor([INSTANCE == 0, False, True]), op=hvd.Sum)
    assert got.dtype == torch.bool and got.tolist() == [True, False, True]
    got = hvd.allreduce(torch.tensor([1 / 3]), compression=hvd.Compression.fp16)
    assert got.dtype == torch.float32 and got.item() == torch.tensor(1 / 3).half().item()
    large = torch.randn(700_000, generator=torch.Generator().manual_seed(INSTANCE))
    parts = [torch.randn(700_000, generator=torch.Generator().manual_seed(i)) for i in ranks()]
    wanted = parts[0].clone()
    for part in parts[1:]:
        wanted += part
    assert torch.equal(hvd.allreduce(large, op=hvd.Sum), wanted)  # in the order of instances
    turned = torch.arange(6.0).reshape(2, 3).t() + INSTANCE
    assert torch.equal(hvd.allreduce(turned, op=hvd.Min), torch.arange(6.0).reshape(2, 3).t())
    assert hvd.allreduce(torch.zeros(0)).shape == (0,)
    grouped = hvd.grouped_allreduce([mine, mine.int()], op=hvd.Sum)
    assert [values.tolist() for values in grouped] == [[total, 2 * total]] * 2
    assert hvd.allreduce_(mine, op=hvd.Sum) is mine and mine.tolist() == [total, 2 * total]
    handle = hvd.allreduce_async(torch.tensor(1.0), op=hvd.Sum)
    assert hvd.poll(handle) and hvd.synchronize(handle).item() == INSTANCES
    parameter = nn.Parameter(torch.ones(2))
    assert not hvd.allreduce(parameter).requires_grad


def gathered():
    """allgather(), broadcast() and those of objects."""
    got = hvd.allgather(torch.full((INSTANCE, 2), float(INSTANCE)))  # none of the first
    assert got.tolist() == [[i, i] for i in ranks() for _ in range(i)]
    assert hvd.allgather(torch.tensor(INSTANCE)).tolist() == list(ranks())
    assert hvd.allgather(torch.zeros(0, 3)).shape == (0, 3)
    assert hvd.allgather_object({"rank": INSTANCE}) == [{"rank": i} for i in ranks()]
    mine = torch.tensor([INSTANCE, 7], dtype=torch.int32)
    assert hvd.broadcast(mine, root_rank=1).tolist() == [1, 7]
    assert mine.tolist() == [INSTANCE, 7]
    assert hvd.broadcast_(mine, INSTANCES - 1) is mine and mine.tolist() == [INSTANCES - 1, 7]
    assert hvd.broadcast_object(["from", INSTANCE], root_rank=1) == ["from", 1]
    hvd.barrier()
    assert hvd.join() == INSTANCES - 1
    try:
        hvd.allgather(torch.zeros(1, 2 + INSTANCE))
        raise AssertionError("sizes that differ were taken")
    except ValueError as error:
        assert "must have the same type and, but for dimension 0, the same sizes" in str(error)


def in_popdists_words():
    mine = torch.tensor([INSTANCE + 1.0])
    total = sum(i + 1 for i in ranks())
    popdist.barrier()
    assert popdist.allReduce(mine).item() == total
    assert popdist.allReduce(mine, op="average").item() == total / INSTANCES
    assert popdist.allReduce(mine, op="max").item() == INSTANCES
    assert popdist.allGather(mine).tolist() == [i + 1.0 for i in ranks()]
    assert popdist.broadcast(mine, root=INSTANCES - 1).item() == INSTANCES


def some_instances():
    """Collectives of a function that only some instances call are theirs alone."""
    some = {1, INSTANCES - 1}

    def together(factor, *, more):
        first = popdist.allReduce(torch.tensor(INSTANCE)).item()
        words = hvd.allgather_object(INSTANCE)
        assert hvd.broadcast(torch.tensor(INSTANCE), root_rank=1).item() == 1
        popdist.barrier()
        return factor * first + more, words

    wanted = (2 * sum(some) + 1, sorted(some)) if INSTANCE in some else None
    assert popdist.execute_on_instances(some, together, 2, more=1) == wanted
    assert popdist.execute_on_instances(set(ranks()), together, 1, more=0) == (
        sum(ranks()),
        list(ranks()),
    )
    assert popdist.execute_on_instances({0}, lambda: INSTANCE) == (0 if INSTANCE == 0 else None)
    assert hvd.allreduce(torch.tensor(1), op=hvd.Sum).item() == INSTANCES


def disagreements():
    """What each instance is told where one of them has something else."""
    last = INSTANCE == INSTANCES - 1
    plain = TRAININGS["adam"]
    attempts = {
        "randomSeed": lambda options: options.randomSeed(8 if last else 7),
        "replicationFactor": lambda options: options.replicationFactor(2 if last else 1),
        "deviceIterations": lambda options: options.deviceIterations(2 if last else 1),
        "gradientAccumulation": lambda options: options.Training.gradientAccumulation(1 + last),
    }
    told = {name: complaint(plain, change=change) for name, change in attempts.items()}
    told["model"] = complaint(TRAININGS["dropout"] if last else plain)
    told["optimiser"] = complaint(TRAININGS["norm of gradients"] if last else plain)
    told["batch size"] = complaint(plain, rows=24 if last else 12)
    hvd.barrier()  # nothing is broken
    return told


def complaint(training, rows=12, change=lambda options: options):
    options = training.options(1)
    change(options)
    model = training.new_model()
    executor = poptorch.trainingModel(model, options, training.optimizer(model.parameters()))
    try:
        executor.compile(torch.ones(rows, 20), torch.zeros(rows, dtype=torch.long))
    except poptorch.Error as error:
        return str(error)
    return "nothing"


# ---- Programs that end badly ----


def other_rate():
    """The second instance changes its learning rate."""
    training = TRAININGS["adam"]
    model = training.new_model()
    executor = poptorch.trainingModel(model, training.options(1), adam(model.parameters()))
    executor(*training.batch(1, 0))
    rate = 0.5 if INSTANCE == 1 else 0.25
    hvd.barrier()
    executor.setOptimizer(adam(model.parameters(), lr=rate))
    executor(*training.batch(1, 1))


def other_number_of_batches():
    """The second instance has one batch less, and then goes on to something else."""
    training = TRAININGS["adam"]
    model = training.new_model()
    executor = poptorch.trainingModel(model, training.options(1), adam(model.parameters()))
    for step in range(3 - INSTANCE):
        executor(*training.batch(1, step))
    hvd.allreduce(torch.ones(1), name="accuracy")


def other_shapes():
    hvd.allreduce(torch.ones(2 + INSTANCE), name="accuracy")


def other_writes():
    """The second instance alone changes a weight."""
    training = TRAININGS["adam"]
    model = training.new_model()
    executor = poptorch.trainingModel(model, training.options(1), adam(model.parameters()))
    executor(*training.batch(1, 0))
    if INSTANCE == 1:
        with torch.no_grad():
            model.layers[0].weight.fill_(1)
        executor.copyWeightsToDevice()
    executor(*training.batch(1, 1))


def early_end():
    """The second instance ends well, before the first one is done."""
    if INSTANCE == 0:
        hvd.allreduce(torch.ones(1), name="accuracy")


def failure():
    """The second instance fails while the first one waits for it."""
    training = TRAININGS["adam"]
    model = training.new_model()
    executor = poptorch.trainingModel(model, training.options(1), adam(model.parameters()))
    executor(*training.batch(1, 0))
    if INSTANCE == 1:
        raise ValueError("a label is missing")
    executor(*training.batch(1, 1))


def main():
    popdist.init()
    hvd.init()
    came = {}
    for name in sys.argv[2:]:
        begin = time.monotonic()
        try:
            came[name] = {"values": globals()[name]()}
        except BaseException as error:
            came[name] = {"error": traceback.format_exc(), "told": str(error)}
        came[name]["seconds"] = time.monotonic() - begin
    path = f"{FOLDER}/{INSTANCES}-{INSTANCE}.pt"
    torch.save(came, path + ".part")
    os.rename(path + ".part", path)
    if any("error" in one for one in came.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
