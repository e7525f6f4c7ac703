"""A torch DataLoader whose batches hold everything one call of a wrapped model consumes."""

import multiprocessing
from typing import Any, Dict, Iterable, Iterator, List, Optional

import torch

from . import _native_batches, _partition, _structure, _worker_process, poptorch_core
from ._async_accessor import AsynchronousDataAccessor
from ._checks import short, whole_number
from ._logging import logger
from .enums import DataLoaderMode
from .options import Options


class DataLoader(torch.utils.data.DataLoader):
    """Combines batch_size x device iterations x replicas x accumulation samples per element.

    The last, short batch is dropped unless drop_last=False. The options are frozen.

    Args:
        options: those of the model that the batches are for.
        dataset: as for torch's DataLoader.
        batch_size: samples in a micro-batch, which is what `forward` sees; None turns batching off.
        shuffle, num_workers, drop_last: torch's, but drop_last is True unless you say otherwise.
        persistent_workers: keep the workers between epochs; the default is to do so.
        auto_distributed_partitioning: with several processes, give each its part of the dataset,
            whole combined batches of which all have as many. To shuffle needs options.randomSeed.
        mode: Sync loads when a batch is asked for. Async loads ahead in another process; its
            tensors are overwritten after the next batch is requested. AsyncRebatched does so too,
            and its workers load pieces that are joined to batches afterwards, so that at most one
            batch of an epoch is short, not one for each worker.
        async_options: arguments for the AsynchronousDataAccessor of the asynchronous modes.
        rebatched_worker_size: samples in the pieces of AsyncRebatched (a combined batch).
        batch_sampler: gives the indices of micro-batches. As many of them as a call consumes are
            collated one by one and joined along dimension 0; in mode AsyncRebatched by the process
            that assembles batches, so that the workers share the work on one.
        **kwargs: other arguments of torch's DataLoader.
    """

    def __init__(
        self,
        options: Options,
        dataset: torch.utils.data.Dataset,
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: Optional[bool] = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: Optional[Dict[str, Any]] = None,
        rebatched_worker_size: Optional[int] = None,
        batch_sampler: Optional[Iterable[List[int]]] = None,
        **kwargs,
    ):
        assert isinstance(
            options, Options
        ), f"options must be poptorch.Options, not {type(options).__name__}"
        options._freeze()
        self._options = options
        self._users_dataset = dataset
        self._accessor = None
        self._combined = None
        self._pieces = None  # batches of a sampler that are joined while they are loaded
        if batch_size is not None:
            batch_size = whole_number("batch_size", batch_size, least=1)
            self._combined = poptorch_core.combined_batch_size(options._core, batch_size)
        num_workers = whole_number("num_workers", num_workers, least=0)
        if not isinstance(mode, int) or mode not in list(DataLoaderMode):
            raise ValueError(f"mode must be a poptorch.DataLoaderMode, not {short(mode)}")
        is_partitioned = auto_distributed_partitioning and options.Distributed.numProcesses > 1
        if is_partitioned:
            _check_partitioned(options, dataset, batch_size, batch_sampler, kwargs.get("sampler"))
        if batch_sampler is not None:
            _check_batch_sampler(batch_size, shuffle, rebatched_worker_size)
        self._needs_rebatching = (
            not drop_last and self._combined not in (None, 1) and batch_sampler is None
        )
        self._keeps_remainder = self._needs_rebatching or (
            not drop_last and batch_sampler is not None
        )
        self._rebatched_size = None
        pieces = self._combined
        if rebatched_worker_size is not None and mode != DataLoaderMode.Sync:
            pieces = self._piece_size(rebatched_worker_size)
        if mode == DataLoaderMode.AsyncRebatched and self._combined not in (None, 1):
            if batch_sampler is None:
                self._rebatched_size = self._combined
            else:
                self._pieces = self._combined
        elif mode == DataLoaderMode.Async and self._needs_rebatching:
            self._rebatched_size = self._combined
        if isinstance(dataset, torch.utils.data.IterableDataset):
            _check_iterable(num_workers, kwargs.get("worker_init_fn"))
        if persistent_workers is None:
            persistent_workers = num_workers > 0
        arguments = dict(
            dataset=dataset,
            shuffle=shuffle,
            num_workers=num_workers,
            persistent_workers=persistent_workers,
            **kwargs,
        )
        if is_partitioned:
            part = _partition.part_of(dataset, options, self._combined, shuffle, drop_last)
            sampler = _partition.PartSampler(part)
            arguments.update(dataset=part, shuffle=False, sampler=sampler)
        if batch_sampler is not None:
            together = self._combined if self._pieces is None else 1
            arguments.update(_grouped(batch_sampler, together, drop_last, arguments))
        elif self._rebatched_size is not None:
            # The process that assembles the batches deals with the remainder.
            arguments.update(batch_size=pieces, drop_last=False)
        else:
            arguments.update(
                batch_size=self._combined, drop_last=drop_last and self._combined is not None
            )
        super().__init__(**arguments)
        self._warn_of_remainder()
        if mode != DataLoaderMode.Sync:
            async_options = async_options or {}
            assert (
                "rebatched_size" not in async_options
            ), "rebatched_size follows from batch_size and options; leave it out of async_options"
            accessor = AsynchronousDataAccessor(
                self, **async_options, rebatched_size=self._rebatched_size
            )
            accessor.embed_in(self)
            self._accessor = accessor

    def _piece_size(self, worker_size):
        worker_size = whole_number("rebatched_worker_size", worker_size, 1, AssertionError)
        assert self._combined is not None, (
            "rebatched_worker_size is a part of a batch, and batch_size=None makes none: leave "
            "one of them out"
        )
        assert worker_size <= self._combined, (
            f"rebatched_worker_size ({worker_size}) must not be greater than the combined batch "
            f"size ({self._combined})"
        )
        return worker_size

    def _warn_of_remainder(self):
        if not self._needs_rebatching or not hasattr(self.sampler, "__len__"):
            return
        remainder = len(self.sampler) % self._combined
        if remainder:
            logger.warning(
                "the last batch has %d samples instead of %d: a compiled model will reject it; "
                "drop_last=True leaves it out",
                remainder,
                self._combined,
            )

    def _is_iterable(self):
        return isinstance(self.dataset, torch.utils.data.IterableDataset)

    @property
    def combinedBatchSize(self) -> Optional[int]:
        """Samples in one element: what one call consumes. None without batching.

        With a batch_sampler: how many of its batches are in one element.
        """
        return self._combined

    @property
    def options(self) -> Options:
        """The options the batch size was combined from."""
        return self._options

    def terminate(self) -> None:
        """Stop asynchronous loading and end its process; nothing to do in Sync mode."""
        if self._accessor is not None:
            self._accessor.terminate()

    def __len__(self) -> int:
        """Combined batches in an epoch; TypeError where the dataset has no length."""
        if self._pieces is not None:
            batches = super().__len__()
            return poptorch_core.batch_count(batches, self._pieces, not self._keeps_remainder)
        if self._rebatched_size is None:
            return super().__len__()
        samples = len(self.dataset if self._is_iterable() else self.sampler)
        return poptorch_core.batch_count(samples, self._rebatched_size, not self._keeps_remainder)

    def __iter__(self) -> Iterator:
        """Begin an epoch."""
        if self._accessor is not None and not self._accessor.is_foreign():
            return iter(self._accessor)
        if isinstance(self.dataset, _partition.Part):
            self.dataset.begin_epoch()
        return super().__iter__()

    def _get_iterator(self):
        native = _native_batches.iterator_for(self)
        if native is not None:
            return native
        if self.num_workers > 0 and self.multiprocessing_context is None and _needs_fork():
            self.multiprocessing_context = "fork"
        return super()._get_iterator()

    def __getstate__(self):
        # A copy loads by itself; workers cannot be copied.
        return {**self.__dict__, "_accessor": None, "_iterator": None}


def _needs_fork():
    """Whether Python would import a script that has no guard once more in each of its workers, as
    it does by default since 3.14. Scripts of before count on copies of their process."""
    nobody_chose = multiprocessing.get_start_method(allow_none=True) is None
    usual = multiprocessing.get_all_start_methods()[0]
    return nobody_chose and usual != "fork" and not _worker_process.main_can_be_imported()


def _check_partitioned(options, dataset, batch_size, batch_sampler, sampler):
    processes = options.Distributed.numProcesses
    instead = "pass auto_distributed_partitioning=False, and give each process its own samples"
    assert not isinstance(dataset, torch.utils.data.IterableDataset), (
        f"an IterableDataset cannot be shared out among {processes} processes, since it has no "
        f"indices: {instead}"
    )
    assert batch_size is not None, (
        f"batch_size=None cannot be shared out among {processes} processes in whole batches: "
        f"{instead}"
    )
    for name, given in (("batch_sampler", batch_sampler), ("sampler", sampler)):
        if given is not None:
            raise poptorch_core.Error(
                f"{name} is mutually exclusive with auto_distributed_partitioning, which chooses "
                f"the samples of each of {processes} processes: {instead}"
            )


def _check_batch_sampler(batch_size, shuffle, rebatched_worker_size):
    if batch_size != 1 or shuffle:
        raise poptorch_core.Error(
            "batch_sampler is mutually exclusive with batch_size and shuffle: it says itself which "
            "samples make a batch"
        )
    assert (
        rebatched_worker_size is None
    ), "batch_sampler says itself how many samples a worker loads: leave out rebatched_worker_size"


def _check_iterable(num_workers, worker_init_fn):
    if num_workers > 1 and worker_init_fn is None:
        logger.warning(
            "an IterableDataset with num_workers=%d and no worker_init_fn: every worker loads the "
            "whole dataset, so that each element comes %d times; see torch.utils.data."
            "IterableDataset",
            num_workers,
            num_workers,
        )


def _grouped(batch_sampler, count, drop_last, arguments):
    """Arguments of torch's DataLoader for joining `count` of the sampler's batches to one."""
    if count == 1:
        return {"batch_sampler": batch_sampler}
    collate = arguments.get("collate_fn") or torch.utils.data.default_collate
    return {
        "dataset": _IndexedByBatch(arguments["dataset"]),
        "batch_sampler": _GroupedBatches(batch_sampler, count, drop_last),
        "collate_fn": _JoinedBatches(collate),
    }


class _GroupedBatches:
    """Gives lists of `count` consecutive batches of another batch sampler."""

    def __init__(self, batch_sampler, count, drop_last):
        self.batch_sampler = batch_sampler
        self.count = count
        self.drop_last = drop_last

    def __iter__(self):
        group = []
        for batch in self.batch_sampler:
            group.append(batch)
            if len(group) == self.count:
                yield group
                group = []
        if group and not self.drop_last:
            yield group

    def __len__(self):
        return poptorch_core.batch_count(len(self.batch_sampler), self.count, self.drop_last)


class _IndexedByBatch(torch.utils.data.Dataset):
    """A dataset that gives all samples of a batch; everything else is the user's dataset's."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __getitem__(self, batch):
        return [self.dataset[index] for index in batch]

    def __len__(self):
        return len(self.dataset)

    def __getattr__(self, name):
        if name.startswith("__") or "dataset" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.dataset, name)


class _JoinedBatches:
    """Collates each batch of a group and joins the results along dimension 0."""

    def __init__(self, collate):
        self.collate = collate

    def __call__(self, group):
        structure, columns = None, []
        for batch in group:
            tensors = []
            structure = _structure.flatten(self.collate(batch), tensors)
            columns.append(tensors)
        return _structure.rebuild(structure, (torch.cat(parts) for parts in zip(*columns)))
