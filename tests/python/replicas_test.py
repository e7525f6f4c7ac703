"""Several replicas of a program: what each reads and gives, and how they train together."""

import copy
import json
import math
import os
import pickle
import signal
import threading
import time

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import MLP, BatchNormCNN
from output_mode_test import MODES, Several, expected, kept

SGD = poptorch.optim.SGD
Mean, Sum = poptorch.ReductionType.Mean, poptorch.ReductionType.Sum
Running, Post = poptorch.MeanReductionStrategy.Running, poptorch.MeanReductionStrategy.Post


def options(replicas, iterations=1, accumulation=1):
    opts = poptorch.Options().replicationFactor(replicas).deviceIterations(iterations)
    opts.Training.gradientAccumulation(accumulation)
    opts.autoRoundNumIPUs(replicas & (replicas - 1) != 0)
    return opts.randomSeed(7).showCompilationProgressBar(False)


def samples(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(count, 20, generator=generator),
        torch.randint(0, 4, (count,), generator=generator),
    )


def mlp(seed=3):
    torch.manual_seed(seed)
    return MLP()


def trained(opts, batches, make=lambda p: torch.optim.SGD(p, lr=0.1), model=None):
    """The weights after some calls."""
    model = mlp() if model is None else model
    executor = poptorch.trainingModel(model, opts, make(model.parameters()))
    for batch in batches:
        executor(*batch)
    executor.copyWeightsToHost()
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    executor.destroy()
    return weights


def assert_equal_bits(a, b):
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


def assert_near(a, b, tolerance=2e-5):
    for name, value in a.items():
        error = (value - b[name]).abs().max().item()
        assert error <= tolerance * max(1e-3, b[name].abs().max().item()), (name, error)


@pytest.mark.spec("2.2 replicationFactor", "12 replicas", "4.3 replicas")
@pytest.mark.parametrize("reduction", [Mean, Sum], ids=str)
@pytest.mark.parametrize("replicas", [1, 2, 4, 8])
def test_a_step_is_the_mean_gradient_of_all_replicas(replicas, reduction):
    opts = options(replicas)
    opts.Training.accumulationAndReplicationReductionType(reduction)
    x, labels = samples(3 * replicas)
    model = mlp()
    eager = copy.deepcopy(model).double()
    before = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    rate = 2.0**40  # the step that is taken is the gradient, not its rounding against the weight
    after = trained(opts, [(x, labels)], lambda p: torch.optim.SGD(p, lr=rate), model)
    for part, names in zip(x.double().split(3), labels.split(3)):
        eager(part, names)[1].backward()
    share = 1 / replicas if reduction == Mean else 1
    for name, parameter in eager.named_parameters():
        wanted = -rate * share * parameter.grad
        error = (after[name].double() - before[name] - wanted).abs().max().item()
        assert error <= 1e-5 * wanted.abs().max().item(), name


OPTIMIZERS = [
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2),
    lambda p: SGD(p, lr=0.1, momentum=0.9, use_combined_accum=True, loss_scaling=4.0),
    lambda p: poptorch.optim.Adam(p, lr=1e-2, weight_decay=1e-2, eps=1e-3),
    lambda p: poptorch.optim.AdamW(p, lr=1e-2, eps=1e-3),
    lambda p: poptorch.optim.RMSprop(p, lr=1e-2, momentum=0.5, centered=True, eps=1e-2),
    lambda p: poptorch.optim.LAMB(p, lr=1e-2, eps=1e-3),
    lambda p: SGD(p, lr=0.1, max_grad_norm=0.3),
]


@pytest.mark.spec("12 replicas")
@pytest.mark.parametrize("make", OPTIMIZERS, ids=range(len(OPTIMIZERS)))
def test_replicas_of_small_batches_are_one_of_a_large_one(make):
    batches = [samples(8, seed) for seed in range(3)]
    together = trained(options(1), batches, make)
    assert_near(trained(options(4), batches, make), together)
    assert_near(trained(options(2), batches, make), together)


@pytest.mark.spec("2.3 accumulationAndReplicationReductionType")
@pytest.mark.spec("2.3 setMeanAccumulationAndReplicationReductionStrategy")
@pytest.mark.parametrize(
    "reduction,strategy", [(Mean, Post), (Mean, Running), (Sum, Post)], ids=str
)
@pytest.mark.parametrize("make", OPTIMIZERS[1:5], ids=range(4))
def test_replicas_and_accumulation_are_one_sum(reduction, strategy, make):
    def opts(replicas, accumulation):
        made = options(replicas, 2, accumulation)
        made.Training.accumulationAndReplicationReductionType(reduction)
        made.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
        return made

    batches = [samples(2 * 2 * 6, seed) for seed in range(2)]
    alone = trained(opts(1, 6), batches, make)
    assert_near(trained(opts(3, 2), batches, make), alone)
    assert_near(trained(opts(2, 3), batches, make), alone)
    assert_near(trained(opts(6, 1), batches, make), alone)


@pytest.mark.spec("12 replicas")
@pytest.mark.parametrize("replicas", [2, 4])
def test_the_same_bits_in_every_run_and_for_any_number_of_threads(replicas, monkeypatch):
    batches = [samples(2 * 2 * 2 * replicas, seed) for seed in range(2)]
    first = None
    for threads in (1, 2, 5, 8, 1):
        monkeypatch.setenv("TESSERA_NUM_THREADS", str(threads))
        weights = trained(options(replicas, 2, 2), batches, OPTIMIZERS[4])
        first = first or weights
        assert_equal_bits(weights, first)


@pytest.mark.spec("5 All", "5 EveryN", "5 Final", "5 Sum", "5 scalar outputs", "5 order")
@pytest.mark.spec("5 replicas", "5 constant outputs")
@pytest.mark.parametrize("mode,period", MODES, ids=str)
@pytest.mark.parametrize("training", [False, True])
def test_outputs_of_all_modes(mode, period, training):
    replicas, accumulation = 3, 2 if training else 1
    opts = options(replicas, 4, accumulation).outputMode(mode, period)
    count = replicas * accumulation * 4
    x = torch.randn(2 * count, 3, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    model = Several()
    eager = copy.deepcopy(model)
    if training:
        executor = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.0))
        results = executor(x, torch.zeros(2 * count, 2))[:5]
    else:
        results = poptorch.inferenceModel(model, opts)(x)
    parts = [eager(part) for part in x.split(2)]
    own = kept(mode, period, 4, accumulation)
    if mode in (poptorch.OutputMode.Sum, poptorch.OutputMode.Final):
        groups = [[parts[i * replicas + r] for i in own] for r in range(replicas)]
    else:
        groups = [[parts[i * replicas + r]] for i in own for r in range(replicas)]
    for k, result in enumerate(results[:4]):
        values = [expected([part[k].detach() for part in group], mode) for group in groups]
        want = torch.stack(values) if values[0].dim() == 0 else torch.cat(values)
        want = want.int() if want.dtype == torch.int64 else want
        assert result.shape == want.shape and result.dtype == want.dtype
        torch.testing.assert_close(result, want)
    assert torch.equal(results[4], eager.table)


@pytest.mark.spec("5 replicas")
def test_training_gives_a_loss_of_each_replica():
    model = mlp()
    executor = poptorch.trainingModel(
        model, options(4), torch.optim.SGD(model.parameters(), lr=0.0)
    )
    x, labels = samples(8)
    _, loss = executor(x, labels)
    wanted = [F.cross_entropy(model(a), b) for a, b in zip(x.split(2), labels.split(2))]
    assert loss.shape == (4,)
    torch.testing.assert_close(loss, torch.stack(wanted).detach())


def test_inputs_must_fill_all_replicas():
    with pytest.raises(
        AssertionError, match=r"7, which cannot be divided by 4 .*replicationFactor"
    ):
        poptorch.inferenceModel(mlp(), options(4))(samples(7)[0])


class Adds(nn.Module):
    def forward(self, x, y):
        x += 1
        return x * y


@pytest.mark.spec("2.2 inputReplicaGrouping", "5 order")
@pytest.mark.parametrize("kind", ["Consecutive", "Orthogonal"])
def test_replicas_of_a_group_read_the_same_inputs(kind):
    opts = options(6, 2).inputReplicaGrouping(2, getattr(poptorch.CommGroupType, kind))
    x, y = torch.arange(12.0).reshape(12, 1), torch.ones(12, 1)
    before = x.clone()
    result = poptorch.inferenceModel(Adds(), opts)(x, y)
    assert torch.equal(x, before + 1)  # in place, once
    chunks = x.split(2)  # of three groups, for two iterations
    order = [0, 0, 1, 1, 2, 2] if kind == "Consecutive" else [0, 1, 2, 0, 1, 2]
    wanted = [chunks[iteration * 3 + group] for iteration in range(2) for group in order]
    assert torch.equal(result, torch.cat(wanted))


def test_inputs_that_forward_changes_are_written_back():
    x = torch.arange(16.0).reshape(16, 1)
    before = x.clone()
    poptorch.inferenceModel(Adds(), options(4, 2))(x, torch.ones(16, 1))
    assert torch.equal(x, before + 1)


class Draws(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(x)


@pytest.mark.spec("12 randomSeed", "12 replicas")
def test_replicas_draw_independently():
    def run(replicas, count):
        executor = poptorch.inferenceModel(Draws().train(), options(replicas))
        return executor(torch.ones(count, 1000)), executor

    four, executor = run(4, 4)
    assert len({tuple(row.tolist()) for row in four}) == 4
    assert torch.equal(run(4, 4)[0], four)
    assert torch.equal(run(1, 1)[0], four[:1])
    # Each run goes on from where the last one was, and can be put back there.
    state = executor.rng_state
    after = executor(torch.ones(4, 1000))
    assert not torch.equal(after, four)
    executor.rng_state = state
    assert torch.equal(executor(torch.ones(4, 1000)), after)


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(3)

    def forward(self, x):
        y = self.bn(x)
        return poptorch.identity_loss(y**2, "mean")


@pytest.mark.spec("12 buffers of replicas", "2.2 broadcastBuffers")
def test_batch_norm_is_each_replicas_own():
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)) * 3 + 1
    model = Statistics()
    eager = copy.deepcopy(model)
    eager(x[:4])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, options(2), optimizer)
    executor(x)
    torch.testing.assert_close(model.bn.running_mean, eager.bn.running_mean)
    torch.testing.assert_close(model.bn.running_var, eager.bn.running_var)
    losses = executor(x)
    assert losses.shape == (2,)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        self.seen += x.sum()
        return poptorch.identity_loss(self.seen * self.weight, "sum")


@pytest.mark.spec("12 buffers of replicas", "2.2 broadcastBuffers")
def test_buffers_that_forward_changes():
    def executor(opts):
        model = Counting()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        return model, poptorch.trainingModel(model, opts, optimizer)

    words = r"PopTorch does not support broadcasting buffers\..*broadcastBuffers\(False\)\..*'seen'"
    with pytest.raises(poptorch.Error, match=words):
        executor(options(2))[1](torch.ones(2))
    model, drifting = executor(options(2).broadcastBuffers(False))
    assert drifting(torch.tensor([1.0, 10.0])).tolist() == [1, 10]
    assert drifting(torch.tensor([1.0, 10.0])).tolist() == [2, 20]
    assert model.seen.item() == 2  # the first replica's
    assert executor(options(1))[1](torch.ones(2)).item() == 2


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        with torch.no_grad():
            self.weight.mul_(x.mean())
        return self.weight.clone(), poptorch.identity_loss(self.weight * x, "sum")


@pytest.mark.spec("12 buffers of replicas")
def test_a_parameter_that_forward_changes_is_each_replicas_own():
    def executor(opts):
        model = Growing()
        return poptorch.trainingModel(model, opts, SGD(model.parameters(), lr=0.0, momentum=0.9))

    with pytest.raises(poptorch.Error, match="'weight' in place"):
        executor(options(2))(torch.ones(2))
    growing = executor(options(2).broadcastBuffers(False))
    for power in (1, 2, 3):
        weights, _ = growing(torch.tensor([2.0, 3.0]))
        assert weights.tolist() == [2.0**power, 3.0**power]


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, 64), 1.0))
        self.shared = nn.Parameter(torch.full((64,), 1.0))

    def forward(self, x):
        return poptorch.identity_loss(x * self.weight * self.shared, "mean")


@pytest.mark.spec("12 replicas", "12 replicaGrouping")
@pytest.mark.parametrize("make", [0, 4])
def test_stochastic_rounding_keeps_replicas_equal(make):
    opts = options(4, 8)
    opts.Precision.enableStochasticRounding(True)
    model = Halves().half()
    executor = poptorch.trainingModel(model, opts, OPTIMIZERS[make](model.parameters()))
    executor.weight.replicaGrouping(
        poptorch.CommGroupType.All, 4, poptorch.VariableRetrievalMode.AllReplicas
    )
    executor(torch.rand(4 * 8, 64).half())
    weight = model.weight.detach()
    assert weight.shape == (4, 64) and not torch.equal(weight[0], torch.ones(64).half())
    for other in weight[1:]:
        assert torch.equal(other, weight[0])


@pytest.mark.spec("12 replicas", "4.3 replicas")
def test_half_gradients_are_added_up_in_single():
    def make(parameters):
        half = torch.float16
        return SGD(
            parameters,
            lr=0.1,
            momentum=0.9,
            loss_scaling=64.0,
            accum_type=half,
            velocity_accum_type=half,
        )

    batches = [(x.half(), labels) for x, labels in (samples(16, seed) for seed in range(2))]
    alone = trained(options(1, 1, 4), batches, make, mlp().half())
    for replicas in (2, 4):
        weights = trained(options(replicas, 1, 4 // replicas), batches, make, mlp().half())
        for name, value in weights.items():
            assert value.dtype == torch.half
            torch.testing.assert_close(value, alone[name], rtol=4e-3, atol=4e-3)


@pytest.mark.spec("1.4 detachFromDevice", "4.5 state_dict")
def test_detaching_keeps_weights_and_what_the_optimiser_remembers():
    batches = [samples(8, seed) for seed in range(4)]
    wanted = trained(options(4), batches, OPTIMIZERS[4])
    model = mlp()
    executor = poptorch.trainingModel(model, options(4), OPTIMIZERS[4](model.parameters()))
    executor(*batches[0])
    executor.detachFromDevice()
    executor(*batches[1])
    executor.copyWeightsToHost()
    executor.copyWeightsToDevice()
    executor(*batches[2])
    executor(*batches[3])
    assert_equal_bits({name: p.detach() for name, p in model.named_parameters()}, wanted)


@pytest.mark.spec("2.3 setAutomaticLossScaling")
def test_all_replicas_take_the_same_loss_scale():
    opts = options(2)
    opts.Training.setAutomaticLossScaling(True)
    model = nn.Sequential(nn.Linear(4, 4)).half()

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return poptorch.identity_loss(self.inner(x).float() ** 2, "sum")

    whole = Wrapped()
    optimizer = SGD(whole.parameters(), lr=0.0, loss_scaling=1024.0)
    opts.anchorTensor("scale", "finalLossScale")
    executor = poptorch.trainingModel(whole, opts, optimizer)
    # Only the second replica's gradients are beyond the range.
    x = torch.cat([torch.full((1, 4), 1e-3), torch.full((1, 4), 200.0)]).half()
    scales = []
    for _ in range(4):
        executor(x)
        scales.append(executor.getAnchoredTensor("scale").tolist())
    assert all(a == b for a, b in scales), scales
    assert scales[-1][0] < scales[0][0]


@pytest.mark.spec("1.4 getPerfCounters", "5 anchors")
def test_counters_and_anchors_count_all_replicas():
    opts = options(2, 3, 2)
    opts.anchorTensor("w", "UpdatedVar___layers.0.bias", poptorch.OutputMode.All)
    model = mlp()
    executor = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.1))
    executor(*samples(2 * 3 * 2))
    counters = executor.getPerfCounters()
    assert [len(times) for times in counters["input"]] == [12, 12]
    assert [len(times) for times in counters["output_complete"]] == [2, 2]
    assert all(value >= 0 for value in executor.getLatency())
    anchored = executor.getAnchoredTensor("w")
    assert anchored.shape == (3 * 2 * 32,)
    by_update = anchored.reshape(3, 2, 32)
    assert torch.equal(by_update[:, 0], by_update[:, 1])
    assert torch.equal(by_update[2, 0], model.layers[0].bias.detach())


def test_synthetic_data():
    model = mlp()
    opts = options(2, 2).enableSyntheticData(True)
    executor = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.1))
    output, loss = executor(*samples(2 * 2 * 2))
    assert output.shape == (4, 4) and loss.shape == (2,)


def test_the_referee_watches_all_replicas(monkeypatch):
    monkeypatch.setenv("TESSERA_CHECK", "1")
    batches = [samples(2 * 2 * 3, seed) for seed in range(2)]
    assert all(p.isfinite().all() for p in trained(options(3, 2), batches).values())
    torch.manual_seed(0)
    model = BatchNormCNN(dropout=0.5)
    executor = poptorch.trainingModel(model, options(2), OPTIMIZERS[4](model.parameters()))
    executor(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))


def test_values_are_checked_in_all_replicas():
    class Root(nn.Module):
        def forward(self, x):
            return x.sqrt()

    opts = options(2)
    opts.Precision.enableFloatingPointExceptions(True)
    executor = poptorch.inferenceModel(Root(), opts)
    with pytest.raises(poptorch.Error, match="sqrt"):
        executor(torch.tensor([1.0, -1.0]))
    assert executor(torch.tensor([1.0, 4.0])).tolist() == [1, 2]


@pytest.mark.spec("12 replicas")
@pytest.mark.parametrize("wrong", range(4))
def test_an_error_in_one_replica_ends_all_of_them(wrong):
    model, reference = mlp(), mlp()
    executor = poptorch.trainingModel(
        model, options(4), torch.optim.SGD(model.parameters(), lr=0.1)
    )
    x, labels = samples(4)
    executor(x, labels)
    bad = labels.clone()
    bad[wrong] = 9
    for _ in range(3):
        with pytest.raises(poptorch.Error, match="9"):
            executor(x, bad)
    executor(x, labels)
    wanted = trained(options(4), [(x, labels), (x, labels)], model=reference)
    assert_equal_bits({name: p.detach() for name, p in model.named_parameters()}, wanted)


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(64))

    def forward(self, x):
        for _ in range(200):
            x = torch.tanh(x @ self.weight)
        return poptorch.identity_loss(x, "sum")


def test_ctrl_c_ends_all_replicas():
    model = Slow()
    executor = poptorch.trainingModel(
        model, options(4, 4000), torch.optim.SGD(model.parameters(), lr=0.0)
    )
    x = torch.randn(4 * 4000, 1, 64)
    executor.compile(x)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        executor(x)
    assert time.monotonic() - start < 3
    timer.join()
    assert torch.equal(model.weight.detach(), torch.eye(64))


def test_a_trace_shows_the_first_replica(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    monkeypatch.setenv("TESSERA_TRACE", str(path))
    trained(options(2, 3), [samples(12)] * 3)
    monkeypatch.delenv("TESSERA_TRACE")
    assert any(
        "all_reduce" in event["name"] for event in json.loads(path.read_text())["traceEvents"]
    )


@pytest.mark.spec("12 replicated tensor sharding", "2.5 TensorLocationSettings")
def test_sharding_of_optimiser_state_changes_no_result():
    batches = [samples(8, seed) for seed in range(3)]
    sharded = options(4)
    sharded.TensorLocations.setOptimizerLocation(
        poptorch.TensorLocationSettings()
        .useReplicatedTensorSharding(True)
        .minElementsForReplicatedTensorSharding(4)
    )
    wanted = trained(options(4), batches, OPTIMIZERS[4])
    assert_equal_bits(trained(sharded, batches, OPTIMIZERS[4]), wanted)


class Decomposes(nn.Module):
    def forward(self, x):
        return torch.linalg.qr(x)[1].abs()


def test_operators_that_run_pytorchs_own_kernels():
    x = torch.randn(8, 3, 3, generator=torch.Generator().manual_seed(0))
    executor = poptorch.inferenceModel(Decomposes(), options(4, 2))
    torch.testing.assert_close(executor(x), Decomposes()(x), rtol=1e-4, atol=1e-5)
    assert sum(call["runs"] for call in executor._core.hostCalls()) == 8


def test_replicas_of_a_forked_child():
    model = mlp()
    executor = poptorch.trainingModel(model, options(4), OPTIMIZERS[4](model.parameters()))
    executor(*samples(8))
    child = os.fork()
    if child == 0:
        _, loss = executor(*samples(8))
        os._exit(0 if loss.shape == (4,) and loss.isfinite().all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert executor(*samples(8))[1].isfinite().all()


def test_executors_of_several_threads():
    batches = [samples(8, seed) for seed in range(3)]
    wanted = trained(options(2), batches)
    results = [None] * 3
    models = [mlp() for _ in results]  # here: threads would seed each other's

    def work(i):
        results[i] = trained(options(2), batches, model=models[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for weights in results:
        assert_equal_bits(weights, wanted)


def test_training_weights_reach_an_inference_model_with_replicas():
    model = mlp()
    training = poptorch.trainingModel(
        model, options(2), torch.optim.SGD(model.parameters(), lr=0.5)
    )
    inference = poptorch.inferenceModel(model, options(4))
    x, labels = samples(8)
    before = inference(x)
    training(x, labels)
    after = inference(x)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, model(x).detach())


def test_a_model_with_replicas_is_no_part_of_another():
    inner = poptorch.inferenceModel(mlp(), options(2))

    class Outer(nn.Module):
        def forward(self, x):
            return inner(x)

    with pytest.raises(poptorch.Error, match="replicationFactor of more than one"):
        poptorch.inferenceModel(Outer())(samples(2)[0])


def test_more_replicas_than_devices(monkeypatch):
    monkeypatch.setenv("TESSERA_NUM_IPUS", "4")
    with pytest.raises(poptorch.Error, match=r"Failed to acquire 8 IPU\(s\)"):
        poptorch.inferenceModel(mlp(), options(8))(samples(8)[0])


class Product(nn.Module):
    """Groups of replicas have a part of W each."""

    def __init__(self, W):
        super().__init__()
        self.W = nn.Parameter(W)

    def forward(self, x):
        z = x @ self.W
        return z, poptorch.identity_loss(z**2, reduction="mean")


@pytest.mark.spec("12 replicaGrouping")
def test_copies_of_an_executor_have_its_groups():
    executor = poptorch.inferenceModel(Product(torch.randn(2, 3, 5)), options(2))
    group = (poptorch.CommGroupType.NoGrouping, 1, poptorch.VariableRetrievalMode.OnePerGroup)
    executor.W.replicaGrouping(*group)
    copied = pickle.loads(pickle.dumps(executor))
    x = torch.randn(4, 3)
    assert torch.equal(copied(x)[0], executor(x)[0])
    assert executor(x)[0].shape == (4, 5)


@pytest.mark.spec("12 replicaGrouping", "2.2 inputReplicaGrouping")
@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize("mode", ["OnePerGroup", "AllReplicas"])
def test_parts_of_a_weight_in_groups_of_replicas(orthogonal, mode):
    parts, data = 4, 2
    generator = torch.Generator().manual_seed(100)
    x = torch.randn(24, 40, generator=generator)
    start = torch.randn(40, 56, generator=generator) / math.sqrt(40)
    W = nn.Parameter(start.double().clone())
    eager = torch.optim.SGD([W], lr=0.01)
    wanted = []
    for _ in range(4):
        eager.zero_grad()
        loss = ((x.double() @ W) ** 2).mean()
        loss.backward()
        eager.step()
        wanted.append(loss.item())
    model = Product(start.reshape(40, parts, 14).transpose(0, 1).contiguous())
    types = [poptorch.CommGroupType.Consecutive, poptorch.CommGroupType.Orthogonal]
    if orthogonal:
        types.reverse()
    opts = options(parts * data).inputReplicaGrouping(parts, types[0])
    opts.outputMode(poptorch.OutputMode.All)
    executor = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.01))
    executor.W.replicaGrouping(types[1], data, getattr(poptorch.VariableRetrievalMode, mode))
    losses = [executor(x.reshape(data, 12, 40))[1].mean().item() for _ in range(4)]
    assert losses == pytest.approx(wanted, abs=1e-6)
    values = model.W.detach()
    if mode == "AllReplicas":
        assert values.shape == (8, 40, 14)
        groups = [r % 4 if orthogonal is False else r // 2 for r in range(8)]
        first = [groups.index(group) for group in range(4)]
        for r in range(8):
            assert torch.equal(values[r], values[first[groups[r]]])
        values = values[first]
        executor(x.reshape(data, 12, 40))  # goes on from there
        executor.copyWeightsToDevice()
        executor(x.reshape(data, 12, 40))
    torch.testing.assert_close(
        values.transpose(0, 1).reshape(40, 56), W.detach().float(), rtol=0, atol=1e-6
    )


@pytest.mark.spec("12 replicaGrouping")
def test_the_optimisers_state_has_the_groups_too():
    model = Product(torch.randn(4, 6))
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, options(4), optimizer)
    executor.W.replicaGrouping(
        poptorch.CommGroupType.NoGrouping, 0, poptorch.VariableRetrievalMode.OnePerGroup
    )
    batches = [torch.randn(4, 6) for _ in range(2)]
    executor(batches[0])
    saved = copy.deepcopy(optimizer.state_dict())
    weights = model.W.detach().clone()
    assert saved["ipu_state"]
    for value in saved["ipu_state"].values():
        assert value.shape[0] == 4
    executor(batches[1])
    wanted = model.W.detach().clone()
    executor.destroy()
    # Each part on its own, and loaded into a program of its own.
    again = Product(weights.clone())
    loaded = poptorch.optim.AdamW(again.parameters(), lr=0.1)
    loaded.load_state_dict(saved)
    second = poptorch.trainingModel(again, options(4), loaded)
    second.W.replicaGrouping(
        poptorch.CommGroupType.NoGrouping, 0, poptorch.VariableRetrievalMode.OnePerGroup
    )
    second(batches[1])
    assert torch.equal(again.W.detach(), wanted)


@pytest.mark.spec("12 replicaGrouping", "1.2 pickle and copy")
def test_a_copy_has_the_groups_too():
    model = Product(torch.randn(2, 6, 3))
    executor = poptorch.inferenceModel(model, options(4))
    executor.W.replicaGrouping(
        poptorch.CommGroupType.Orthogonal, 2, poptorch.VariableRetrievalMode.OnePerGroup
    )
    copied = pickle.loads(pickle.dumps(executor))
    x = torch.randn(4, 6)
    assert torch.equal(copied(x)[0], executor(x)[0])
    with pytest.raises(poptorch.Error, match="before the model is compiled"):
        copied.W.replicaGrouping(
            poptorch.CommGroupType.All, 4, poptorch.VariableRetrievalMode.OnePerGroup
        )


@pytest.mark.spec("12 replicaGrouping")
def test_an_exported_model_has_its_replicas_and_groups(tmp_path):
    model = Product(torch.randn(2, 6, 3))
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, options(4), optimizer)
    executor.W.replicaGrouping(
        poptorch.CommGroupType.Orthogonal, 2, poptorch.VariableRetrievalMode.OnePerGroup
    )
    x = torch.randn(4, 6)
    executor(x)
    assert "constant" not in executor._core.graph_text()  # no value of a weight is in the program
    executor.save(str(tmp_path / "model.poptorch"))
    loaded = poptorch.load(str(tmp_path / "model.poptorch"))
    for wanted, got in zip(executor(x), loaded(x)):
        assert torch.equal(got, wanted)
    assert torch.equal(loaded.model.W.detach(), model.W.detach())


@pytest.mark.spec("12 replicaGrouping")
def test_what_cannot_be_grouped():
    one = poptorch.VariableRetrievalMode.OnePerGroup
    consecutive = poptorch.CommGroupType.Consecutive
    model = Product(torch.randn(2, 6, 3))
    optimizer = SGD(model.parameters(), lr=0.1, max_grad_norm=1.0)
    executor = poptorch.trainingModel(model, options(4), optimizer)
    with pytest.raises(poptorch.Error, match="cannot be 0"):
        executor.W.replicaGrouping(consecutive, 0, one)
    executor.W.replicaGrouping(consecutive, 2, one)
    with pytest.raises(poptorch.Error, match="max_grad_norm cannot be used with replicaGrouping"):
        executor(torch.randn(4, 6))
    wrong = poptorch.inferenceModel(Product(torch.randn(3, 6, 3)), options(4))
    wrong.W.replicaGrouping(consecutive, 2, one)
    with pytest.raises(poptorch.Error, match="'W' must have 2 in dimension 0"):
        wrong(torch.randn(4, 6))
    wrong.W.replicaGrouping(consecutive, 3, one)
    with pytest.raises(poptorch.Error, match="4 replicas cannot be divided into groups of 3"):
        wrong(torch.randn(4, 6))
