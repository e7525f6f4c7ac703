"""The part of a dataset that one of several processes loads. Which one that is, the core says."""

import torch

from . import poptorch_core


class Row(int):
    """An index of the whole dataset, where a plain one counts the samples of a part."""


class Part(torch.utils.data.Dataset):
    """This process's samples of a dataset; everything else is the user's dataset's.

    With a seed all processes shuffle the dataset alike at the beginning of each epoch.
    """

    def __init__(self, dataset, partition, seed=None):
        self.dataset = dataset
        self._partition = partition
        self._epoch = -1
        # Of a generator of its own: what the program draws meanwhile changes no order. A state can
        # be copied and sent to other processes, which a generator cannot.
        self._state = None if seed is None else torch.Generator().manual_seed(seed).get_state()
        self.rows = torch.arange(partition.first, partition.first + partition.count)

    def begin_epoch(self) -> None:
        self._epoch += 1
        if self._state is None:
            return
        generator = torch.Generator()
        generator.set_state(self._state)
        order = torch.randperm(len(self.dataset), generator=generator)
        self._state = generator.get_state()
        self.rows = order.narrow(0, self._partition.first_in(self._epoch), len(self)).clone()

    def __len__(self):
        return self._partition.count

    def row(self, index) -> int:
        """The place in the whole dataset of what is asked for."""
        return int(index) if type(index) is Row else int(self.rows[index])

    def __getitem__(self, index):
        return self.dataset[self.row(index)]

    def __getattr__(self, name):
        if name == "__getitems__" and "dataset" in self.__dict__:
            several = getattr(self.dataset, name)
            return lambda indices: several([self.row(index) for index in indices])
        if name.startswith("__") or "dataset" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.dataset, name)


class PartSampler(torch.utils.data.Sampler):
    """The samples of a part in the order of the epoch."""

    def __init__(self, part):
        self.part = part

    def __iter__(self):
        return map(Row, self.part.rows.tolist())

    def __len__(self):
        return len(self.part)


def part_of(dataset, options, step, shuffle, drop_last) -> Part:
    """The samples of the process that the options name, in whole steps where drop_last says so."""
    core = options._core
    seed = poptorch_core.common_shuffle_seed(core) if shuffle else None
    process = options.Distributed
    partition = poptorch_core.partition(
        len(dataset), step, process.processId, process.numProcesses, bool(drop_last)
    )
    return Part(dataset, partition, seed)
