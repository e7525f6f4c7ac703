"""DataLoader: which batches it gives, and what it refuses."""

import copy
import multiprocessing
import pickle
import subprocess
import sys

import poptorch
import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, TensorDataset

import datasets


def numbers(batches):
    return [batch.tolist() for batch in batches]


def options(iterations=1, accumulation=1, replicas=1):
    made = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    made.Training.gradientAccumulation(accumulation)
    return made


@pytest.mark.spec("3.1 combinedBatchSize", "3.1 len", "3.1 terminate", "3.3 Sync")
@pytest.mark.parametrize("factors", [(1, 1, 1), (2, 1, 1), (2, 3, 1), (2, 1, 2)])
def test_an_element_holds_what_a_call_consumes(factors):
    combined = 2 * factors[0] * factors[1] * factors[2]
    loader = poptorch.DataLoader(options(*factors), datasets.Numbers(50), batch_size=2)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert loader.combinedBatchSize == combined and loader.batch_size == combined
    assert len(loader) == 50 // combined
    expected = [list(range(i, i + combined)) for i in range(0, 50 - combined + 1, combined)]
    assert numbers(loader) == expected
    loader.terminate()  # nothing to stop


@pytest.mark.spec("3.1 combinedBatchSize")
def test_replicas_with_the_same_inputs_count_once():
    opts = options(iterations=3, accumulation=2, replicas=4)
    opts.inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    loader = poptorch.DataLoader(opts, datasets.Numbers(50), batch_size=2)
    assert loader.combinedBatchSize == 2 * 3 * 2 * (4 // 2) and len(loader) == 2


@pytest.mark.parametrize("guard", ["", 'if __name__ == "__main__":'])
@pytest.mark.parametrize("usual", ["fork", "forkserver"])
def test_workers_of_a_script_without_guard_are_forked(tmp_path, usual, guard):
    """Python 3.14 would import it once more in each of them."""
    if usual == "fork" and multiprocessing.get_all_start_methods()[0] != "fork":
        pytest.skip("this Python does not fork by default")
    script = tmp_path / "script.py"
    lines = [
        "import multiprocessing, poptorch",
        "multiprocessing.get_all_start_methods = lambda: [%r]" % usual,
        "loader = poptorch.DataLoader(poptorch.Options(), range(4), num_workers=1)",
        guard or "if True:",
        "    print(len(list(loader)), loader.multiprocessing_context is not None)",
    ]
    script.write_text("\n".join(lines))
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert printed.stdout.split() == ["4", str(usual != "fork" and not guard)]


@pytest.mark.spec("3.1 options", "3.1 drop_last", "3.1 persistent_workers")
def test_defaults_and_frozen_options():
    opts = options(2)
    loader = poptorch.DataLoader(opts, datasets.Numbers(5), num_workers=1)
    assert loader.options is opts and loader.drop_last and loader.persistent_workers
    assert not poptorch.DataLoader(opts, datasets.Numbers(5)).persistent_workers
    keeps = poptorch.DataLoader(opts, datasets.Numbers(5), num_workers=1, persistent_workers=False)
    assert not keeps.persistent_workers
    with pytest.raises(AttributeError, match="frozen"):
        opts.deviceIterations(3)
    assert [mode.value for mode in poptorch.DataLoaderMode] == [0, 1, 2]
    assert poptorch.SharingStrategy.SharedMemory == 0 and poptorch.SharingStrategy.FileSystem == 1
    assert poptorch.SharingStrategy.Fork == 2 and poptorch.SharingStrategy.ForkServer == 3


@pytest.mark.spec("3.1 drop_last warning", "3.1 len")
def test_a_kept_remainder_is_short_and_warned_of(caplog):
    loader = poptorch.DataLoader(options(2), datasets.Numbers(10), batch_size=2, drop_last=False)
    assert "last batch has 2 samples instead of 4" in caplog.text
    assert len(loader) == 3 and [len(batch) for batch in loader] == [4, 4, 2]
    caplog.clear()
    poptorch.DataLoader(options(2), datasets.Numbers(8), batch_size=2, drop_last=False)
    assert not caplog.text


@pytest.mark.spec("3.1 batch_size None")
def test_without_batching():
    loader = poptorch.DataLoader(options(2), datasets.Numbers(3), batch_size=None)
    assert loader.combinedBatchSize is None and len(loader) == 3
    assert [element.item() for element in loader] == [0, 1, 2]
    assert loader.options.device_iterations == 2


@pytest.mark.spec("3.1 torch arguments")
def test_torchs_arguments_are_handed_on():
    def negative(samples):
        return -torch.stack(samples)

    data = datasets.Numbers(8)
    loader = poptorch.DataLoader(options(2), data, 2, collate_fn=negative)
    assert numbers(loader) == [[0, -1, -2, -3], [-4, -5, -6, -7]]
    sampler = RandomSampler(data, generator=torch.Generator().manual_seed(1))
    sampled = poptorch.DataLoader(options(2), data, 2, sampler=sampler)
    assert sorted(sum(numbers(sampled), [])) == list(range(8))
    torch.manual_seed(0)
    first, second = (numbers(poptorch.DataLoader(options(), data, 8, shuffle=True)) for _ in "ab")
    torch.manual_seed(0)
    assert numbers(poptorch.DataLoader(options(), data, 8, shuffle=True)) == first != second


@pytest.mark.spec("3.1 batch_sampler", "3.1 len")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_of_a_batch_sampler_are_joined(workers, drop_last):
    data = datasets.Pairs(11)
    sampler = BatchSampler(SequentialSampler(data), batch_size=2, drop_last=False)
    loader = poptorch.DataLoader(
        options(2), data, batch_sampler=sampler, drop_last=drop_last, num_workers=workers
    )
    expected = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    batches = list(loader)
    assert [label.tolist() for _, label in batches] == expected
    assert [x.tolist() for x, _ in batches] == [[[i, i] for i in b] for b in expected]
    assert len(loader) == 3 and len(loader.dataset) == 11 and loader.dataset.count == 11

    five = BatchSampler(SequentialSampler(data), batch_size=2, drop_last=True)
    loader = poptorch.DataLoader(
        options(2), data, batch_sampler=five, drop_last=drop_last, num_workers=workers
    )
    batches = [label.tolist() for _, label in loader]
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7]] + ([] if drop_last else [[8, 9]])
    assert len(loader) == len(batches)


@pytest.mark.spec("3.1 batch_sampler")
def test_each_batch_of_a_batch_sampler_is_collated_by_itself():
    def padded(samples):
        return {"x": torch.stack(samples + [torch.tensor(-1)] * (3 - len(samples)))}

    ragged = [[0], [1, 2], [3, 4, 5], [6]]
    loader = poptorch.DataLoader(
        options(2), datasets.Numbers(7), batch_sampler=ragged, collate_fn=padded
    )
    assert [b["x"].tolist() for b in loader] == [[0, -1, -1, 1, 2, -1], [3, 4, 5, 6, -1, -1]]
    single = poptorch.DataLoader(options(), datasets.Numbers(7), batch_sampler=ragged)
    assert numbers(single) == ragged


@pytest.mark.spec("3.1 IterableDataset", "3.1 len")
def test_iterable_datasets(caplog):
    stream = datasets.Stream(10)
    loader = poptorch.DataLoader(options(2), stream, batch_size=2)
    assert numbers(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(TypeError, match="has no len"):
        len(loader)
    assert len(poptorch.DataLoader(options(2), datasets.SizedStream(10), batch_size=2)) == 2
    assert not caplog.text
    twice = poptorch.DataLoader(options(), stream, batch_size=5, num_workers=2)
    assert "each element comes 2 times" in caplog.text
    assert sorted(sum(numbers(twice), [])) == sorted([*range(10), *range(10)])
    caplog.clear()
    poptorch.DataLoader(options(), stream, num_workers=2, worker_init_fn=datasets.share_out)
    assert not caplog.text


@pytest.mark.spec(
    "3.1 batch_sampler exclusive",
    "3.3 rebatched_worker_size",
    "3.3 rebatched_size in async_options",
)
@pytest.mark.parametrize(
    "error, arguments",
    [
        (ValueError, dict(batch_size=0)),
        (ValueError, dict(mode=7)),
        (poptorch.Error, dict(batch_sampler=[[0]], batch_size=2)),
        (poptorch.Error, dict(batch_sampler=[[0]], shuffle=True)),
        (AssertionError, dict(batch_sampler=[[0]], rebatched_worker_size=1)),
        (
            AssertionError,
            dict(mode=poptorch.DataLoaderMode.AsyncRebatched, rebatched_worker_size=3),
        ),
        (
            AssertionError,
            dict(
                mode=poptorch.DataLoaderMode.AsyncRebatched,
                rebatched_worker_size=1,
                batch_size=None,
            ),
        ),
        (
            AssertionError,
            dict(mode=poptorch.DataLoaderMode.Async, async_options={"rebatched_size": 2}),
        ),
        (TypeError, dict(no_such_argument=1)),
    ],
)
def test_what_is_refused(error, arguments):
    with pytest.raises(error):
        poptorch.DataLoader(options(2), datasets.Numbers(8), **arguments)


def test_other_refusals():
    with pytest.raises(AssertionError, match="poptorch.Options"):
        poptorch.DataLoader(torch.zeros(1), datasets.Numbers(8))
    with pytest.raises(ValueError):
        poptorch.DataLoader(options(), datasets.Stream(8), shuffle=True)


def test_a_copy_loads_too():
    loader = poptorch.DataLoader(options(2), datasets.Numbers(8), batch_size=2, num_workers=1)
    expected = numbers(loader)
    for again in (pickle.loads(pickle.dumps(loader)), copy.copy(loader)):
        assert numbers(again) == expected and again.combinedBatchSize == 4


class Scale(torch.nn.Module):
    def forward(self, x, y):
        return x * 2, y + 1


@pytest.mark.parametrize("mode", [poptorch.DataLoaderMode.Sync, poptorch.DataLoaderMode.Async])
def test_a_model_takes_what_the_loader_gives(mode):
    model = poptorch.inferenceModel(Scale(), options(2))
    arguments = dict(batch_size=2, mode=mode)
    if mode == poptorch.DataLoaderMode.Async:
        arguments["async_options"] = {"sharing_strategy": poptorch.SharingStrategy.Fork}
    seen = []
    for x, y in poptorch.DataLoader(options(2), datasets.Pairs(9), **arguments):
        a, b = model(x, y)
        assert torch.equal(a, x * 2) and torch.equal(b, y + 1)
        seen += b.tolist()
    assert seen == list(range(1, 9))
    dicts = poptorch.DataLoader(options(2), datasets.Named(8), **arguments)
    for element in dicts:
        assert torch.equal(model(**element)[0], element["x"] * 2)
    pairs = poptorch.DataLoader(
        options(2), TensorDataset(torch.ones(4, 2), torch.arange(4)), **arguments
    )
    assert torch.equal(model(*next(iter(pairs)))[0], torch.full((4, 2), 2.0))
