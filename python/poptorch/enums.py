"""Named choices of the interface, with PopTorch's numbers."""

import enum


class OutputMode(enum.IntEnum):
    """Which micro-batches' outputs a call returns."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class DataLoaderMode(enum.IntEnum):
    """Where batches are made."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2
