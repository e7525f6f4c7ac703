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


class SharingStrategy(enum.IntEnum):
    """How the process of an asynchronous loader is started, and where its batches lie."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3
