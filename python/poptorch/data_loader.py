"""A torch DataLoader whose batches hold everything one call of a wrapped model consumes."""

import logging

import torch

from . import poptorch_core
from .enums import DataLoaderMode


class DataLoader(torch.utils.data.DataLoader):
    """Combines batch_size x device iterations x replicas x accumulation samples per element.

    The last, short batch is dropped unless drop_last=False. Other arguments are torch's.
    """

    def __init__(
        self,
        options,
        dataset,
        batch_size=1,
        shuffle=None,
        num_workers=0,
        drop_last=True,
        persistent_workers=None,
        auto_distributed_partitioning=True,
        mode=DataLoaderMode.Sync,
        async_options=None,
        rebatched_worker_size=None,
        batch_sampler=None,
        **kwargs,
    ):
        options._freeze()
        self._options = options
        self._combined = None
        if batch_sampler is not None:
            raise poptorch_core.Error(
                "batch_sampler is not supported yet; use batch_size, shuffle or sampler"
            )
        if batch_size is not None:
            self._combined = poptorch_core.combined_batch_size(options, batch_size)
        if DataLoaderMode(mode) != DataLoaderMode.Sync:
            logging.getLogger("poptorch::python").warning(
                "DataLoaderMode.%s is not there yet: batches are loaded as with Sync",
                DataLoaderMode(mode).name,
            )
        if self._combined and not drop_last and hasattr(dataset, "__len__"):
            remainder = len(dataset) % self._combined
            if remainder:
                logging.getLogger("poptorch::python").warning(
                    "the last batch has %d samples instead of %d: a compiled model will reject it; "
                    "drop_last=True leaves it out",
                    remainder,
                    self._combined,
                )
        if persistent_workers is None:
            persistent_workers = num_workers > 0
        super().__init__(
            dataset,
            batch_size=self._combined,
            shuffle=shuffle,
            num_workers=num_workers,
            drop_last=drop_last if self._combined else False,
            persistent_workers=persistent_workers,
            **kwargs,
        )

    @property
    def combinedBatchSize(self):
        """Samples in one element: what one call consumes."""
        return self._combined

    @property
    def options(self):
        """The options the batch size was combined from."""
        return self._options

    def terminate(self) -> None:
        """Stop asynchronous loading; there is none in Sync mode."""
