"""Loading in another process: the same elements as without, and clear ends when it fails."""

import collections
import gc
import os
import signal
import threading
import time

import poptorch
import pytest
import torch

import datasets
from poptorch import AsynchronousDataAccessor, DataLoaderMode, SharingStrategy

# Quick to start; what depends on the strategy is tested with all of them.
FORK = {"sharing_strategy": SharingStrategy.Fork}

Point = collections.namedtuple("Point", "x y")


def numbers(batches):
    return [batch.tolist() for batch in batches]


def loader(dataset, batch_size=1, iterations=1, mode=DataLoaderMode.Async, fork=FORK, **arguments):
    async_options = {**fork, **arguments.pop("async_options", {})}
    options = poptorch.Options().deviceIterations(iterations)
    return poptorch.DataLoader(
        options, dataset, batch_size, mode=mode, async_options=async_options, **arguments
    )


def wait_until(condition):
    deadline = time.time() + 20
    while not condition():
        assert time.time() < deadline
        time.sleep(0.01)


def filled(accessor):
    return sum(accessor._worker._data_buffers.indices_mem)


@pytest.mark.spec("3.3 Async", "3.4 sharing_strategy", "3.4 terminate", "3.1 terminate")
@pytest.mark.parametrize("strategy", list(SharingStrategy))
def test_every_strategy_gives_the_same_elements(strategy, caplog):
    made = loader(
        datasets.Pairs(10), 2, 2, num_workers=1, async_options={"sharing_strategy": strategy}
    )
    for _ in range(2):
        got = [(x.clone(), y.tolist()) for x, y in made]
        assert [y for _, y in got] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert [x[:, 1].tolist() for x, _ in got] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(made) == 2 and not caplog.text
    process = made._accessor._worker._process
    pid = process.pid
    made.terminate()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    made.terminate()
    with pytest.raises(AssertionError, match="terminated"):
        iter(made)


@pytest.mark.spec("3.4 load_indefinitely", "3.4 partially consumed")
@pytest.mark.parametrize("indefinitely", [True, False])
@pytest.mark.parametrize("workers, persistent", [(0, None), (2, True), (2, False)])
def test_epochs_and_an_iteration_given_up(indefinitely, workers, persistent):
    made = loader(
        datasets.Numbers(9),
        2,
        num_workers=workers,
        persistent_workers=persistent,
        async_options={"load_indefinitely": indefinitely},
    )
    expected = [[0, 1], [2, 3], [4, 5], [6, 7]]
    for _ in range(3):
        assert numbers(made) == expected
    for index, batch in enumerate(made):
        assert batch.tolist() == expected[index]
        if index == 2:
            break
    assert numbers(made) == expected
    assert next(iter(made)).tolist() == next(iter(made)).tolist() == [0, 1]
    iter(made)
    assert numbers(made) == expected
    assert [b.tolist() for b, _ in zip(made, range(4))] == expected
    assert numbers(made) == expected


@pytest.mark.spec("3.4 elements", "3.4 len")
def test_any_iterable_and_every_structure():
    a, b = torch.arange(3.0), torch.ones(2, 2, dtype=torch.bool)
    for element in (a, (a, b), [b, a], {"one": a, "two": b}, Point(a, b)):
        accessor = AsynchronousDataAccessor([element] * 3, **FORK)
        assert len(accessor) == 3
        for got in accessor:
            assert type(got) is type(element)
            flat, wanted = ([x] if torch.is_tensor(x) else list(x) for x in (got, element))
            if isinstance(got, dict):
                assert flat == wanted
                flat, wanted = list(got.values()), list(element.values())
            assert all(torch.equal(x, y) and x.dtype == y.dtype for x, y in zip(flat, wanted))
        accessor.terminate()
    assert len(list(AsynchronousDataAccessor(datasets.Numbers(4), **FORK))) == 4
    assert len(list(AsynchronousDataAccessor(datasets.Stream(4), **FORK))) == 4
    with pytest.raises(TypeError):
        len(AsynchronousDataAccessor(datasets.Stream(4), **FORK))
    generator = AsynchronousDataAccessor((torch.tensor(i) for i in range(3)), **FORK)
    assert numbers(generator) == [0, 1, 2] and numbers(generator) == []
    accessor = AsynchronousDataAccessor(datasets.Numbers(2), **FORK)
    assert next(accessor) == 0 and next(accessor) == 1  # without iter()
    with pytest.raises(StopIteration):
        next(accessor)
    with pytest.raises(StopIteration):
        next(accessor)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.double, torch.uint8])
def test_types_and_odd_shapes(dtype):
    elements = [
        (torch.arange(6).to(dtype).view(2, 3).t(), torch.zeros(0, 2), torch.tensor(i, dtype=dtype))
        for i in range(4)
    ]
    for got, element in zip(AsynchronousDataAccessor(elements, **FORK), elements):
        for x, y in zip(got, element):
            assert torch.equal(x, y) and x.dtype == y.dtype and x.is_contiguous()


@pytest.mark.spec("3.4 elements")
def test_dictionaries_with_keys_in_another_order():
    one, two = torch.ones(2), torch.full((2,), 2.0)
    elements = [{"a": one, "b": two}, {"b": two, "a": one}]
    for got in AsynchronousDataAccessor(elements, **FORK):
        assert torch.equal(got["a"], one) and torch.equal(got["b"], two)


@pytest.mark.spec("3.4 elements")
def test_gradients_stay_where_they_are():
    weights = torch.ones(2, requires_grad=True)
    for got in AsynchronousDataAccessor([weights * 2, weights], **FORK):
        assert not got.requires_grad


@pytest.mark.spec("3.4 reused memory", "3.4 buffer_size")
def test_elements_lie_in_memory_that_is_used_again():
    accessor = AsynchronousDataAccessor(datasets.Numbers(20), buffer_size=2, **FORK)
    places, first = [], None
    for element in accessor:
        places.append(element.data_ptr())
        first = element if first is None else first
        if len(places) == 3:
            assert first == element == 2
    assert len(set(places)) == 2 and places[:2] * 10 == places
    kept = next(iter(accessor))
    accessor.terminate()
    assert kept == 0  # still there
    assert numbers(AsynchronousDataAccessor(datasets.Numbers(3), buffer_size=1, **FORK)) == [
        0,
        1,
        2,
    ]


@pytest.mark.spec("3.4 early_preload", "3.4 load_indefinitely", "3.4 buffer_size")
def test_loading_goes_on_while_the_program_does_something_else():
    accessor = AsynchronousDataAccessor(datasets.Numbers(10), buffer_size=4, **FORK)
    time.sleep(0.2)
    assert filled(accessor) == 1  # only the first, before the first iteration
    iterator = iter(accessor)
    wait_until(lambda: filled(accessor) == 4)
    assert [next(iterator).item() for _ in range(10)] == list(range(10))
    with pytest.raises(StopIteration):
        next(iterator)
    wait_until(lambda: filled(accessor) == 4)  # of the next epoch
    early = AsynchronousDataAccessor(
        datasets.Numbers(10), buffer_size=5, early_preload=True, **FORK
    )
    wait_until(lambda: filled(early) == 5)
    once = AsynchronousDataAccessor(
        datasets.Numbers(3), buffer_size=5, load_indefinitely=False, **FORK
    )
    assert numbers(once) == [0, 1, 2]
    time.sleep(0.2)
    assert filled(once) == 0


@pytest.mark.spec("3.3 AsyncRebatched", "3.3 rebatched_worker_size", "3.1 len")
@pytest.mark.parametrize("kind", [datasets.Numbers, datasets.SizedStream])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("worker_size", [1, 3, None])
def test_rebatched(kind, drop_last, worker_size):
    made = loader(
        kind(23),
        2,
        2,
        mode=DataLoaderMode.AsyncRebatched,
        num_workers=3,
        drop_last=drop_last,
        rebatched_worker_size=worker_size,
        worker_init_fn=datasets.share_out if kind is datasets.SizedStream else None,
    )
    assert made.combinedBatchSize == 4 and len(made) == (5 if drop_last else 6)
    for _ in range(2):
        batches = numbers(made)
        assert [len(batch) for batch in batches] == [4] * 5 + ([] if drop_last else [3])
        seen = sum(batches, [])
        assert len(set(seen)) == len(seen)
        if kind is datasets.Numbers:
            assert seen == list(range(len(seen)))


@pytest.mark.spec("3.3 Async keeps the remainder")
def test_async_keeps_the_remainder_by_rebatching():
    made = loader(datasets.Pairs(10), 2, 2, drop_last=False)
    assert len(made) == 3 and [len(x) for x, _ in made] == [4, 4, 2]
    batches = [[0, 1], [2, 3], [4, 5]]
    sampled = loader(datasets.Numbers(6), 1, 2, batch_sampler=batches, drop_last=False)
    assert numbers(sampled) == [[0, 1, 2, 3], [4, 5]]
    single = loader(datasets.Numbers(3), drop_last=False)
    assert len(single) == 3 and numbers(single) == [[0], [1], [2]]
    unbatched = loader(datasets.Numbers(3), None, drop_last=False)
    assert numbers(unbatched) == [0, 1, 2]
    one = loader(datasets.Numbers(3), mode=DataLoaderMode.AsyncRebatched)
    assert numbers(one) == [[0], [1], [2]]


MODES = [DataLoaderMode.Sync, DataLoaderMode.Async, DataLoaderMode.AsyncRebatched]


@pytest.mark.spec("3.1 batch_sampler modes", "3.1 len")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [True, False])
def test_batch_samplers_in_every_mode(mode, workers, drop_last):
    class Evens:  # of five batches two make an element, and one is left
        def __iter__(self):
            return ([i, i + 2] for i in range(0, 20, 4))

        def __len__(self):
            return 5

    made = loader(
        datasets.Pairs(30),
        1,
        2,
        mode=mode,
        batch_sampler=Evens(),
        num_workers=workers,
        drop_last=drop_last,
    )
    expected = [[0, 2, 4, 6], [8, 10, 12, 14]] + ([] if drop_last else [[16, 18]])
    for _ in range(2):
        assert [labels.tolist() for _, labels in made] == expected
    assert len(made) == len(expected) and made.combinedBatchSize == 2
    made.terminate()


@pytest.mark.spec("3.1 batch_sampler modes")
@pytest.mark.parametrize("mode", MODES)
def test_batches_of_one_size_may_end_in_a_smaller_one(mode):
    def load(batches, drop_last=False):
        made = loader(
            datasets.Numbers(9), 1, 2, mode=mode, batch_sampler=batches, drop_last=drop_last
        )
        try:
            return numbers(made)
        finally:
            made.terminate()

    assert load([[0, 1], [2, 3], [4, 5], [6]]) == [[0, 1, 2, 3], [4, 5, 6]]
    assert load([[0, 1], [2, 3], [4, 5], [6, 7], [8]]) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    if mode != DataLoaderMode.Async:  # whose elements must be of one shape where none is short
        assert load([[0, 1], [2, 3], [4, 5], [6]], True) == [[0, 1, 2, 3], [4, 5, 6]]
    if mode == DataLoaderMode.AsyncRebatched:
        with pytest.raises(poptorch.Error, match="needs batches of one size.*has 1 .*has 2"):
            load([[0], [1, 2], [3], [4]])


@pytest.mark.spec("3.1 torch arguments")
@pytest.mark.parametrize("mode", MODES)
def test_torchs_arguments_in_every_mode(mode):
    made = loader(
        datasets.Numbers(8),
        2,
        2,
        mode=mode,
        num_workers=2,
        collate_fn=datasets.negated,
        worker_init_fn=datasets.seen_worker,
        prefetch_factor=3,
        timeout=30,
        multiprocessing_context="fork",
        persistent_workers=False,
        generator=torch.Generator().manual_seed(3),
        sampler=torch.utils.data.SequentialSampler(range(8)),
        pin_memory=False,
    )
    assert made.prefetch_factor == 3 and made.timeout == 30 and not made.persistent_workers
    for _ in range(2):
        assert numbers(made) == [[0, -1, -2, -3], [-4, -5, -6, -7]]
    made.terminate()


@pytest.mark.spec("3.4 miss_sleep_time_in_ms", "3.4 buffer_size", "3.4 sharing_strategy")
def test_arguments_of_the_accessor_are_checked():
    data = datasets.Numbers(3)
    for wait in (0, 0.1, 5):
        assert numbers(AsynchronousDataAccessor(data, miss_sleep_time_in_ms=wait, **FORK))
    for wrong in (-1, "1", None, True):
        with pytest.raises(AssertionError, match="miss_sleep_time_in_ms"):
            AsynchronousDataAccessor(data, miss_sleep_time_in_ms=wrong, **FORK)
    with pytest.raises(AssertionError, match="buffer_size"):
        AsynchronousDataAccessor(data, buffer_size="3", **FORK)
    with pytest.raises(ValueError, match="SharingStrategy"):
        AsynchronousDataAccessor(data, sharing_strategy=9)
    with pytest.raises(TypeError, match="no_such_option"):
        loader(data, async_options={"no_such_option": 1})


@pytest.mark.spec("3.4 rebatched_size", "3.4 already asynchronous", "3.4 len", "3.4 buffer_size")
def test_an_accessor_rebatches_by_itself():
    options = poptorch.Options()
    plain = torch.utils.data.DataLoader(datasets.Numbers(11), batch_size=2)
    accessor = AsynchronousDataAccessor(plain, rebatched_size=3, **FORK)
    assert numbers(accessor) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]] and len(accessor) == 3
    keeping = poptorch.DataLoader(options, datasets.Numbers(11), 2, drop_last=False)
    accessor = AsynchronousDataAccessor(keeping, rebatched_size=3, **FORK)
    assert numbers(accessor)[3] == [9, 10] and len(accessor) == 4
    with pytest.raises(AssertionError, match="rebatched_size"):
        AsynchronousDataAccessor(keeping, **FORK)
    with pytest.raises(AssertionError, match="greater than 1"):
        AsynchronousDataAccessor(keeping, rebatched_size=1, **FORK)
    with pytest.raises(AssertionError, match="buffer_size"):
        AsynchronousDataAccessor(plain, buffer_size=0, **FORK)
    with pytest.raises(poptorch.Error, match="already"):
        AsynchronousDataAccessor(loader(datasets.Numbers(4)), **FORK)
    elements = AsynchronousDataAccessor([torch.arange(4)] * 3, rebatched_size=6, **FORK)
    assert numbers(elements) == [[0, 1, 2, 3, 0, 1], [2, 3, 0, 1, 2, 3]] and len(elements) == 2


@pytest.mark.spec("3.4 failing dataset")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_fails_at_once(workers, capfd):
    with pytest.raises(poptorch.Error, match="worker thread failed to start") as caught:
        loader(datasets.Failing(4, at=0), num_workers=workers)
    assert "ValueError: there is no sample 0" in str(caught.value)
    assert "datasets.py" in str(caught.value) and "__getitem__" in str(caught.value)
    assert "ValueError: there is no sample 0" in capfd.readouterr().err


@pytest.mark.spec("3.4 failing dataset")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_fails_later(workers):
    made = loader(datasets.Failing(8, at=3), num_workers=workers)
    seen = []
    with pytest.raises(poptorch.Error, match="there is no sample 3") as caught:
        for batch in made:
            seen += batch.tolist()
    assert seen == [0, 1, 2] and "datasets.py" in str(caught.value)
    with pytest.raises(poptorch.Error, match="there is no sample 3"):
        list(made)


@pytest.mark.spec("3.4 failing dataset")
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit])
@pytest.mark.parametrize("at", [0, 2])
def test_a_dataset_that_wants_to_end_the_program(error, at):
    def load():
        return list(AsynchronousDataAccessor(datasets.Raising(4, at, error), **FORK))

    with pytest.raises(poptorch.Error, match=error.__name__) as caught:
        load()
    assert "datasets.py" in str(caught.value)


def test_an_error_ends_the_process_at_once():
    gc.disable()  # which would find what nobody needs any more
    try:
        accessor = AsynchronousDataAccessor(datasets.Failing(4, at=2), **FORK)
        pid = accessor._worker._process.pid
        with pytest.raises(poptorch.Error):
            list(accessor)
        del accessor
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    finally:
        gc.enable()


@pytest.mark.spec("3.4 empty dataset")
def test_a_dataset_without_elements():
    for empty in ([], datasets.Numbers(0)):
        with pytest.raises(poptorch.Error, match="gave no element"):
            AsynchronousDataAccessor(empty, **FORK)
    with pytest.raises(poptorch.Error, match="gave no element"):
        loader(datasets.Numbers(3), 2, 2)
    with pytest.raises(poptorch.Error, match="gave no element"):
        loader(datasets.Numbers(3), 2, 2, mode=DataLoaderMode.AsyncRebatched)


def test_a_worker_that_is_killed():
    with pytest.raises(poptorch.Error, match="failed to start.*exit code -9"):
        AsynchronousDataAccessor(datasets.Killed(8, at=0), **FORK)
    accessor = AsynchronousDataAccessor(datasets.Killed(8, at=2), buffer_size=1, **FORK)
    iterator = iter(accessor)
    assert next(iterator) == 0 and next(iterator) == 1
    with pytest.raises(poptorch.Error, match="ended unexpectedly, with exit code -9"):
        next(iterator)


@pytest.mark.spec("3.4 refused elements")
@pytest.mark.parametrize(
    "element", [3, "text", (torch.ones(1), 3), [[torch.ones(1)]], {"x": "y"}, (), {}, None]
)
def test_elements_that_are_refused(element):
    with pytest.raises(AssertionError, match="needs elements that are a tensor"):
        AsynchronousDataAccessor([element], **FORK)


@pytest.mark.spec("3.4 constant shapes")
def test_elements_that_differ():
    ones = torch.ones(2)
    for other in (torch.ones(3), ones.int(), ones.view(1, 2)):
        with pytest.raises(poptorch.Error, match="same types and shapes"):
            list(AsynchronousDataAccessor([ones, other], **FORK))
    for first, other in ((ones, (ones,)), ({"a": ones}, {"b": ones}), ((ones,), (ones, ones))):
        with pytest.raises(poptorch.Error, match="built alike"):
            list(AsynchronousDataAccessor([first, other], **FORK))
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    for odd in (torch.eye(2).to_sparse(), quantized, torch.ones(2, device="meta")):
        with pytest.raises(AssertionError, match="dense"):
            AsynchronousDataAccessor([odd], **FORK)
    with pytest.raises(poptorch.Error, match="same size"):
        AsynchronousDataAccessor([(torch.ones(2), torch.ones(3))], rebatched_size=2, **FORK)


def test_the_seed_of_the_program_decides_what_is_shuffled():
    def order(**arguments):
        return numbers(loader(datasets.Numbers(12), 12, shuffle=True, **arguments))

    torch.manual_seed(5)
    first, second = order(), order()
    torch.manual_seed(5)
    assert order() == first != second
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(5)
    made = loader(datasets.Random(4), num_workers=2, generator=generator)
    samples = torch.cat([batch.clone() for batch in made])
    assert len(samples.unique()) == 8


def test_the_worker_goes_with_the_loader():
    pids = []
    made = loader(datasets.Numbers(100))
    pids.append(made._accessor._worker._process.pid)
    next(iter(made))
    del made
    for batch in loader(datasets.Numbers(3)):  # only the loop knows it
        pass
    assert batch == 2
    accessor = AsynchronousDataAccessor(datasets.Stuck(3, at=1), **FORK)
    iter(accessor)
    pids.append(accessor._worker._process.pid)
    start = time.time()
    del accessor
    assert time.time() - start < 8
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_dataset_that_fits_into_the_memory_only_once(monkeypatch, caplog):
    data = [torch.arange(4096.0)] * 2
    monkeypatch.setattr(poptorch._shared_ring, "available_memory", lambda: 4096)
    with pytest.raises(poptorch.Error, match="no room for 3 buffers"):
        AsynchronousDataAccessor(data)  # by a copy of this process, which knows as much
    assert "no room for a copy of its 16384 bytes" in caplog.text
    assert "as with SharingStrategy.Fork" in caplog.text


def test_nothing_piles_up():
    gc.collect()  # what other tests have left
    counts = []
    for _ in range(4):
        assert len(list(AsynchronousDataAccessor(datasets.Numbers(4), **FORK))) == 4
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[3] <= counts[1]


def test_an_accessor_put_into_a_loader_is_used():
    made = poptorch.DataLoader(poptorch.Options(), datasets.Numbers(5))
    made._accessor = AsynchronousDataAccessor(datasets.Elements(torch.ones(1)), **FORK)
    assert numbers(made) == [[1.0]]


def test_a_forked_child_leaves_the_parents_worker_alone():
    made = loader(datasets.Numbers(6))
    assert next(iter(made)) == 0
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if numbers(made) == [[i] for i in range(6)] else 2
            made.terminate()
            made._accessor.__del__()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert numbers(made) == [[i] for i in range(6)]


def test_ctrl_c_while_waiting_loses_nothing():
    made = loader(datasets.Numbers(6), async_options={"buffer_size": 1})
    iterator = iter(made)
    assert next(iterator) == 0
    os.kill(made._accessor._worker._process.pid, signal.SIGSTOP)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    timer.join()
    os.kill(made._accessor._worker._process.pid, signal.SIGCONT)
    assert [next(iterator).item() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert len(numbers(made)) == 6
