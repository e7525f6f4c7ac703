"""Small datasets for the tests of the loaders; workers in other processes import them."""

import os
import signal
import time

import torch


class Numbers(torch.utils.data.Dataset):
    """0, 1, 2, ..."""

    def __init__(self, count, dtype=torch.int64):
        self.count = count
        self.dtype = dtype

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.tensor(index, dtype=self.dtype)


class Pairs(Numbers):
    """((i, i), i)"""

    def __getitem__(self, index):
        return torch.full((2,), float(index)), torch.tensor(index)


class Named(Numbers):
    def __getitem__(self, index):
        return {"x": torch.full((2,), float(index)), "y": torch.tensor(index)}


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, count):
        self.start = 0
        self.end = count

    def __iter__(self):
        return (torch.tensor(i) for i in range(self.start, self.end))


class SizedStream(Stream):
    def __len__(self):
        return self.end


def share_out(worker):
    """A worker_init_fn that gives each worker its part of a Stream."""
    info = torch.utils.data.get_worker_info()
    each = -(-info.dataset.end // info.num_workers)
    info.dataset.start = each * worker
    info.dataset.end = min(info.dataset.end, each * (worker + 1))


def seen_worker(worker):
    """A worker_init_fn that leaves a sign in the process of the worker."""
    torch.utils.data.get_worker_info().dataset.worker = worker


def negated(samples):
    """A collate_fn that needs what seen_worker() does."""
    assert torch.utils.data.get_worker_info().dataset.worker in (0, 1)
    return -torch.stack(samples)


class Failing(Numbers):
    """Raises at one index."""

    def __init__(self, count, at):
        super().__init__(count)
        self.at = at

    def __getitem__(self, index):
        if index == self.at:
            raise ValueError(f"there is no sample {index}")
        return super().__getitem__(index)


class Raising(Failing):
    """Raises something of any class at one index."""

    def __init__(self, count, at, error):
        super().__init__(count, at)
        self.error = error

    def __getitem__(self, index):
        if index == self.at:
            raise self.error("enough")
        return super().__getitem__(index)


class Killed(Failing):
    """Its process dies at one index."""

    def __getitem__(self, index):
        if index == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Stuck(Failing):
    """Sleeps for ever from one index on."""

    def __getitem__(self, index):
        if index >= self.at:
            time.sleep(1000)
        return super().__getitem__(index)


class Elements:
    """An iterable over given elements."""

    def __init__(self, *elements):
        self.elements = elements

    def __iter__(self):
        return iter(self.elements)


class Random(Numbers):
    def __getitem__(self, index):
        return torch.rand(2)
