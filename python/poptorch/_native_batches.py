"""Batches of well-known datasets, made by the core instead of sample by sample.

Only what is exactly PyTorch's or torchvision's own code is left out: where the user changed or
replaced any part of it, there is no source, and their code runs.
"""

import collections
import sys
import types

import torch
from torch.utils.data import _utils
from torch.utils.data import dataloader as torch_loader

from . import _partition, poptorch_core

_MNIST_FAMILY = ("MNIST", "FashionMNIST", "KMNIST", "EMNIST")
_MNIST_PARTS = ("data", "targets", "transform", "target_transform")
_CALLS = ("_call_impl", "_wrapped_call_impl")  # what calling a module is in PyTorch 1.13, and in 2
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")


def iterator_for(loader):
    """An iterator over the loader's batches that makes them natively; None where it cannot."""
    if not _loads_as_usual(loader):
        return None
    source = source_of(loader.dataset)
    if source is None:
        return None
    return (_Prefetching if loader.num_workers > 0 else _Immediate)(loader, source)


def source_of(dataset):
    """What gives whole batches of the dataset; None where its own code must."""
    if type(dataset) is _partition.Part:
        whole = source_of(dataset.dataset)
        return None if whole is None else _OfPart(dataset, whole)
    if _has(type(dataset), torch.utils.data.dataset, "TensorDataset", "__getitem__"):
        source = _Tensors
    elif type(dataset).__name__ in _MNIST_FAMILY and _is_mnist(dataset):
        source = _Images
    else:
        return None
    if "__getitems__" in vars(dataset) or not _has_plain_attributes(type(dataset)):
        return None
    try:
        return source(dataset)
    except Exception:  # not as we know it: the user's code says what is wrong
        return None


class _Unknown(Exception):
    pass


def _require(known):
    if not known:
        raise _Unknown


class _Source:
    """Columns of rows: tensors, and for images the numbers that their bytes become."""

    columns: list
    known_state: object

    def state(self) -> object:
        """What must stay as it is for the columns to be true."""
        raise NotImplementedError

    def is_current(self) -> bool:
        """False where the dataset was changed since: then its own code must run."""
        try:
            return self.state() == self.known_state
        except Exception:
            return False

    def batch(self, indices):
        """What default_collate makes of these samples; None where an index is not one."""
        return poptorch_core.gathered(self.columns, indices)


class _Tensors(_Source):
    def __init__(self, dataset):
        self.dataset = dataset
        self.known_state = self.state()
        tensors = vars(dataset)["tensors"]
        _require(type(tensors) is tuple and tensors)
        for tensor in tensors:
            _require(_is_plain(tensor) and len(tensor) == len(tensors[0]))
        self.columns = [(tensor, None) for tensor in tensors]

    def state(self):
        tensors = vars(self.dataset)["tensors"]
        return [id(tensor) for tensor in tensors], type(self.dataset).__getitem__


class _Images(_Source):
    def __init__(self, dataset):
        self.dataset = dataset
        self.known_state = self.state()
        data, targets = dataset.data, dataset.targets
        _require(_is_plain(data) and data.dtype is torch.uint8 and data.dim() == 3)
        _require(_is_plain(targets) and targets.dtype is torch.int64 and targets.dim() == 1)
        _require(len(data) == len(targets) and dataset.target_transform is None)
        table = _table_of(dataset.transform)
        # ToTensor's images have a channel.
        self.columns = [(data.unsqueeze(1), table), (targets, None)]

    def state(self):
        parts = vars(self.dataset)
        return (
            id(parts["data"]),
            id(parts["targets"]),
            id(parts["transform"]),
            parts["target_transform"],
            type(self.dataset).__getitem__,
            _state_of(parts["transform"]),
            torch.get_default_dtype(),
        )


class _OfPart(_Source):
    """The batches of one of several processes."""

    def __init__(self, part, whole):
        self._part = part
        self._whole = whole

    def is_current(self):
        return self._whole.is_current()

    def batch(self, indices):
        return self._whole.batch([self._part.row(index) for index in indices])


def _is_plain(tensor):
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.dim() > 0
        and tensor.is_contiguous()
        and not tensor.requires_grad
        and not tensor.is_neg()
        and not tensor.is_conj()
        and not tensor.is_quantized
    )


def _is_original(function, module, name):
    """True for the function of that name as it is written in the module's file."""
    return (
        isinstance(function, types.FunctionType)
        and function.__module__ == module.__name__
        and function.__qualname__ == name
        and function.__code__.co_filename == module.__file__
    )


def _has(cls, module, name, method):
    """True for the module's own class of that name, if its method is the original."""
    return vars(module).get(name) is cls and _is_original(
        getattr(cls, method, None), module, f"{name}.{method}"
    )


def _has_plain_attributes(cls):
    names = (*_MNIST_PARTS, "tensors", "__getattr__", "__getitems__")
    return cls.__getattribute__ is object.__getattribute__ and not any(
        hasattr(cls, name) for name in names
    )


def _is_mnist(dataset):
    mnist = sys.modules.get("torchvision.datasets.mnist")
    return (
        mnist is not None
        and vars(mnist).get(type(dataset).__name__) is type(dataset)
        and _is_original(type(dataset).__getitem__, mnist, "MNIST.__getitem__")
        and _makes_pictures_by_pil(mnist)
    )


def _makes_pictures_by_pil(mnist):
    """Whether an array becomes a picture as it does in torchvision, with Pillow's own function."""
    around_it = vars(mnist).get("_Image_fromarray")  # of later torchvisions
    caller = mnist if around_it is None else sys.modules["torchvision.utils"]
    image = vars(caller).get("Image")
    return (
        (around_it is None or _is_original(around_it, caller, "_Image_fromarray"))
        and image is not None
        and image is sys.modules.get("PIL.Image")
        and all(
            _is_original(vars(image).get(name), image, name) for name in ("fromarray", "frombuffer")
        )
    )


def _transforms_in(transform):
    """The chain of transforms, those of Compose one by one."""
    module = sys.modules["torchvision.transforms.transforms"]
    if not _has(type(transform), module, "Compose", "__call__"):
        return [transform]
    return [part for child in transform.transforms for part in _transforms_in(child)]


def _state_of(transform):
    """What the numbers it makes depend on; for each batch, so that it must be quick."""
    parts = vars(transform)
    if "transforms" in parts:
        return type(transform), [_state_of(child) for child in parts["transforms"]]
    numbers = [tuple(parts[name]) for name in ("mean", "std") if name in parts]
    return id(transform), type(transform), numbers


def _table_of(transform):
    """What the transforms make of each byte. They look at pixels one by one, so that is all."""
    module = sys.modules["torchvision.transforms.transforms"]
    functional = module.F
    first, *others = _transforms_in(transform)
    _require(_has(type(first), module, "ToTensor", "__call__") and not vars(first))
    _require(_is_original(functional.to_tensor, functional, "to_tensor"))
    for part in others:
        _require(_is_normalize(part, module))
    image = sys.modules["PIL.Image"].fromarray(
        torch.arange(256, dtype=torch.uint8).view(16, 16).numpy()  # of bytes: mode L
    )
    table = transform(image)
    _require(table.dtype is torch.float32 and table.shape == (1, 16, 16))
    return table.flatten().contiguous()


def _is_normalize(part, module):
    functional = module.F
    of_all = torch.nn.modules.module
    return (
        _has(type(part), module, "Normalize", "forward")
        and any(_is_original(type(part).__call__, of_all, f"Module.{name}") for name in _CALLS)
        and not {"forward", "__call__"} & vars(part).keys()
        and getattr(part, "_compiled_call_impl", None) is None
        and not any(getattr(part, name) for name in _HOOKS)
        and not any(getattr(of_all, f"_global{name}", None) for name in _HOOKS)
        and _is_original(functional.normalize, functional, "normalize")
        and _is_original(functional.F_t.normalize, functional.F_t, "normalize")
        and all(isinstance(values, (tuple, list)) for values in (part.mean, part.std))
    )


def _loads_as_usual(loader):
    collate = _utils.collate
    return (
        loader._auto_collation
        and loader._dataset_kind == torch_loader._DatasetKind.Map
        and loader.collate_fn is collate.default_collate
        and _is_original(collate.default_collate, collate, "default_collate")
        and _is_original(collate.collate, collate, "collate")
        and all(
            _is_original(collate.default_collate_fn_map.get(kind), collate, name)
            for kind, name in ((torch.Tensor, "collate_tensor_fn"), (int, "collate_int_fn"))
        )
        and not any(isinstance((), kind) for kind in collate.default_collate_fn_map)
        and loader.worker_init_fn is None
        and loader.multiprocessing_context is None
        and not loader.pin_memory
        and not loader.timeout
        and torch.utils.data.get_worker_info() is None
    )


class _Immediate(torch_loader._SingleProcessDataLoaderIter):
    """Asks the sampler and loads when a batch is wanted: num_workers=0."""

    def __init__(self, loader, source):
        super().__init__(loader)
        self._source = source

    def _next_data(self):
        indices = self._next_index()
        batch = self._source.batch(indices) if self._source.is_current() else None
        return self._dataset_fetcher.fetch(indices) if batch is None else batch


class _Prefetching(torch_loader._BaseDataLoaderIter):
    """Asks the sampler as far ahead as torch's iterator over worker processes does.

    Like workers it knows the dataset as it was in the beginning.
    """

    def __init__(self, loader, source):
        super().__init__(loader)
        self._source = source
        self._fetcher = torch_loader._DatasetKind.create_fetcher(
            self._dataset_kind, self._dataset, True, self._collate_fn, self._drop_last
        )
        self._reset(loader, first_iter=True)

    def _reset(self, loader, first_iter=False):
        super()._reset(loader, first_iter)
        self._ahead = collections.deque()
        for _ in range(loader.prefetch_factor * loader.num_workers):
            self._ask_sampler()

    def _ask_sampler(self):
        try:
            self._ahead.append(self._next_index())
        except StopIteration:
            pass

    def _next_data(self):
        if not self._ahead:
            raise StopIteration
        indices = self._ahead.popleft()
        self._ask_sampler()
        batch = self._source.batch(indices)
        return self._fetcher.fetch(indices) if batch is None else batch
