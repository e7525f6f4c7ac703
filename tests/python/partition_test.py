"""Several processes that share a dataset: which samples each of them loads."""

import copy
import itertools
import pickle

import poptorch
import pytest
import torch
from torch.utils.data import TensorDataset

import datasets
from poptorch import DataLoaderMode, _native_batches

FORK = {"sharing_strategy": poptorch.SharingStrategy.Fork}


def options(process, processes, seed=None, iterations=1):
    made = poptorch.Options().deviceIterations(iterations)
    made.Distributed.configureProcessId(process, processes)
    return made if seed is None else made.randomSeed(seed)


def loaders(processes, dataset, batch_size=1, seed=None, iterations=1, **arguments):
    if arguments.get("mode", DataLoaderMode.Sync) != DataLoaderMode.Sync:
        arguments.setdefault("async_options", FORK)
    return [
        poptorch.DataLoader(
            options(process, processes, seed, iterations), dataset, batch_size, **arguments
        )
        for process in range(processes)
    ]


def samples(loader):
    return [sample for batch in loader for sample in batch.tolist()]


@pytest.mark.spec("3.2 drop_last", "3.1 len", "3.1 combinedBatchSize")
@pytest.mark.parametrize("mode", list(DataLoaderMode))
@pytest.mark.parametrize("processes, batch_size, iterations", [(3, 4, 1), (2, 2, 3), (5, 1, 1)])
def test_parts_are_equal_disjoint_and_in_order(mode, processes, batch_size, iterations):
    seen = []
    for loader in loaders(
        processes, datasets.Numbers(100), batch_size, iterations=iterations, mode=mode
    ):
        step = batch_size * iterations  # the number of processes is no factor of it
        assert loader.combinedBatchSize == step
        assert len(loader) == 100 // (step * processes)
        assert len(loader.dataset) == step * len(loader)
        own = samples(loader)
        assert len(own) == len(loader.dataset)
        assert samples(loader) == own  # in every epoch
        seen += own
        loader.terminate()
    assert seen == list(range(len(seen))) and len(seen) > 100 - step * processes


@pytest.mark.spec("3.2 keeping the remainder")
@pytest.mark.parametrize("mode", list(DataLoaderMode))
def test_without_dropping_no_sample_is_lost(mode, caplog):
    made = loaders(3, datasets.Numbers(20), 4, drop_last=False, mode=mode)
    assert [len(loader.dataset) for loader in made] == [7, 7, 6]
    assert [len(loader) for loader in made] == [2, 2, 2]
    assert mode != DataLoaderMode.Sync or "has 3 samples instead of 4" in caplog.text
    assert sum((samples(loader) for loader in made), []) == list(range(20))
    for loader in made:
        loader.terminate()


@pytest.mark.spec("3.2 common shuffle", "3.2 generator state", "3.2 window offset")
@pytest.mark.parametrize("mode", list(DataLoaderMode))
@pytest.mark.parametrize("workers", [0, 2])
def test_all_processes_shuffle_alike(mode, workers):
    made = loaders(3, datasets.Numbers(50), 4, 7, shuffle=True, mode=mode, num_workers=workers)
    generator = torch.Generator().manual_seed(7)
    for epoch in range(4):
        order = torch.randperm(50, generator=generator).tolist()
        later = 50 % 16 if epoch % 2 else 0
        for process, loader in enumerate(made):
            torch.rand(3)  # the program's own random numbers change nothing
            first = 16 * process + later
            assert samples(loader) == order[first : first + 16]
    for loader in made:
        loader.terminate()


@pytest.mark.spec("3.2 keeping the remainder", "3.3 rebatched_worker_size")
@pytest.mark.parametrize("drop_last", [True, False])
def test_pieces_of_a_part_are_joined(drop_last):
    made = loaders(
        3,
        datasets.Numbers(50),
        4,
        mode=DataLoaderMode.AsyncRebatched,
        rebatched_worker_size=3,
        num_workers=2,
        drop_last=drop_last,
    )
    for loader, count in zip(made, [16, 16, 16] if drop_last else [17, 17, 16]):
        sizes = [len(batch) for batch in loader]
        assert sum(sizes) == count and sizes[:4] == [4] * 4 and len(sizes) == len(loader)
        loader.terminate()


@pytest.mark.spec("3.2 generator state")
@pytest.mark.parametrize("mode", [DataLoaderMode.Sync, DataLoaderMode.Async])
def test_an_epoch_that_was_left_half_way_counts(mode):
    made = loaders(2, datasets.Numbers(40), 4, 3, shuffle=True, mode=mode)
    for loader in made:
        next(iter(loader))
        torch.manual_seed(len(samples(loader)))
    third = [samples(loader) for loader in made]
    assert sorted(third[0] + third[1]) == list(range(40))
    for loader in made:
        loader.terminate()


@pytest.mark.spec("3.2 window offset")
def test_two_epochs_use_what_one_leaves_over():
    seen = set()
    for loader in loaders(3, datasets.Numbers(100), 4, 42, shuffle=True):
        first = samples(loader)
        assert len(set(first)) == len(first) == 32
        seen |= {*first, *samples(loader)}
    assert len(seen) == 100
    epochs = [
        [sorted(samples(loader)) for _ in range(5)]
        for loader in loaders(4, datasets.Numbers(100), 16, 0, shuffle=True)
    ]
    for own in epochs:
        assert all(one != other for one, other in itertools.combinations(own, 2))


@pytest.mark.spec("3.2 randomSeed")
def test_shuffling_needs_a_seed():
    with pytest.raises(AssertionError, match="randomSeed"):
        loaders(2, datasets.Numbers(10), shuffle=True)
    loaders(2, datasets.Numbers(10), shuffle=True, auto_distributed_partitioning=False)
    loaders(1, datasets.Numbers(10), shuffle=True)


@pytest.mark.spec("3.1 auto_distributed_partitioning")
def test_without_partitioning_every_process_loads_everything():
    sampler = torch.utils.data.BatchSampler(range(6), 3, True)
    for arguments in ({}, {"batch_sampler": sampler}, {"sampler": range(6)}):
        for loader in loaders(
            2, datasets.Numbers(6), auto_distributed_partitioning=False, **arguments
        ):
            assert samples(loader) == list(range(6))
    for loader in loaders(2, datasets.Stream(3), auto_distributed_partitioning=False):
        assert samples(loader) == [0, 1, 2]
    for loader in loaders(2, datasets.Numbers(3), None, auto_distributed_partitioning=False):
        assert [sample.item() for sample in loader] == [0, 1, 2]


@pytest.mark.spec("3.1 batch_size None", "3.1 batch_sampler", "3.1 IterableDataset")
@pytest.mark.parametrize(
    "error, words, dataset, batch_size, arguments",
    [
        (AssertionError, "IterableDataset cannot be shared", datasets.Stream(9), 1, {}),
        (AssertionError, "batch_size=None cannot be shared", datasets.Numbers(9), None, {}),
        (poptorch.Error, "batch_sampler is mutually excl", datasets.Numbers(9), 1, "batch_sampler"),
        (poptorch.Error, "sampler is mutually exclusive", datasets.Numbers(9), 1, "sampler"),
        (poptorch.Error, "9 samples, which is no combined batch", datasets.Numbers(9), 5, {}),
    ],
)
def test_what_cannot_be_shared_out(error, words, dataset, batch_size, arguments):
    arguments = {arguments: [[0]]} if isinstance(arguments, str) else arguments
    with pytest.raises(error, match=words):
        loaders(2, dataset, batch_size, **arguments)


def tensors(count=47):
    return TensorDataset(torch.arange(count), torch.randn(count, 3))


@pytest.mark.spec("3.2 common shuffle")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_without_python_are_the_same(workers, shuffle, monkeypatch):
    data = tensors()

    def load():
        made = loaders(3, data, 2, 5, iterations=2, shuffle=shuffle, num_workers=workers)
        return [[batch for _ in range(3) for batch in loader] for loader in made], made

    native, made = load()
    kinds = (_native_batches._Immediate, _native_batches._Prefetching)
    assert all(isinstance(iter(loader), kinds) for loader in made)
    monkeypatch.setattr(_native_batches, "source_of", lambda dataset: None)
    plain, made = load()
    assert not isinstance(iter(made[0]), kinds)
    for ours, theirs in zip(native, plain):
        assert len(ours) == len(theirs) == 9
        for one, other in zip(ours, theirs):
            assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    own = [{row for batch in part[:3] for row in batch[0].tolist()} for part in native]
    assert len(set.union(*own)) == 36 and all(len(rows) == 12 for rows in own)


class Several(datasets.Numbers):
    """Gives many samples at once, which newer versions of PyTorch ask for."""

    label = "mine"

    def __getitems__(self, indices):
        assert all(type(index) is int for index in indices)
        return [torch.tensor(index) for index in indices]


def test_a_part_is_a_dataset():
    first, second = loaders(2, Several(9), 2)
    part = second.dataset
    assert len(part) == 4 and part.label == "mine" and part.count == 9
    assert [part[i].item() for i in range(4)] == [4, 5, 6, 7] and part[-1] == 7
    with pytest.raises(IndexError):
        part[4]
    with pytest.raises(AttributeError):
        part.nothing
    assert [x.item() for x in part.__getitems__([0, 3])] == [4, 7]
    assert not hasattr(loaders(2, datasets.Numbers(9))[0].dataset, "__getitems__")
    assert samples(first) == [0, 1, 2, 3]
    for again in (copy.copy(second), copy.deepcopy(second), pickle.loads(pickle.dumps(second))):
        assert samples(again) == [4, 5, 6, 7]


def test_copies_shuffle_on_from_where_they_were_made():
    (loader, _) = loaders(2, datasets.Numbers(40), 4, 3, shuffle=True)
    samples(loader)
    again = pickle.loads(pickle.dumps(loader))
    assert samples(again) == samples(loader) != samples(loader)


class Line(torch.nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        return out, poptorch.identity_loss(out, "mean")


@pytest.mark.spec("2.6 training alone")
def test_one_process_alone_does_not_train_as_if_it_were_all():
    model = poptorch.trainingModel(Line(1, 1), options(1, 3))
    with pytest.raises(RuntimeError, match="instance 1 of 3, but nobody has started the others"):
        model(torch.ones(2, 1))
    inference = poptorch.inferenceModel(Line(1, 1), options(1, 3))
    assert inference(torch.ones(2, 1))[0].shape == (2, 1)
    alone = options(1, 3)
    alone.Distributed.disable()
    poptorch.trainingModel(Line(1, 1), alone)(torch.ones(2, 1))
