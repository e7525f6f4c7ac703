"""DataLoader: batches that the core makes are those that the dataset's own code would make."""

import sys

import poptorch
import pytest
import torch
from torch.utils.data import TensorDataset

from poptorch import _native_batches

torchvision = pytest.importorskip("torchvision")
transforms = torchvision.transforms

COUNT = 53


def images(transform=None, target_transform=None, kind="FashionMNIST"):
    """A dataset of torchvision without its files."""
    cls = getattr(torchvision.datasets, kind) if isinstance(kind, str) else kind
    dataset = cls.__new__(cls)
    generator = torch.Generator().manual_seed(1)
    dataset.data = torch.randint(256, (COUNT, 7, 5), dtype=torch.uint8, generator=generator)
    dataset.data.view(-1)[:256] = torch.arange(256, dtype=torch.uint8)
    dataset.targets = torch.randint(10, (COUNT,), generator=generator)
    dataset.transform = transform
    dataset.target_transform = target_transform
    return dataset


def usual():
    return transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])


def tensors():
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(COUNT, 3, 2, generator=generator),
        torch.randint(10, (COUNT,), generator=generator),
        torch.randn(COUNT, 2, generator=generator).to(torch.float16),
    )


def loader_of(dataset, **arguments):
    arguments = {"batch_size": 3, **arguments}
    return poptorch.DataLoader(poptorch.Options().deviceIterations(2), dataset, **arguments)


def is_native(loader):
    return isinstance(iter(loader), (_native_batches._Immediate, _native_batches._Prefetching))


def epochs(loader, count=2):
    """All batches, and random numbers that the program draws between them."""
    torch.manual_seed(7)
    result = []
    for _ in range(count):
        iterator = iter(loader)
        result.append(torch.rand(()))
        for batch in iterator:
            assert type(batch) is list
            result.extend(batch)
            result.append(torch.rand(()))
    result.append(torch.get_rng_state())
    return result


def same(a, b):
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.shape == y.shape and x.stride() == y.stride() and torch.equal(x, y)
        for x, y in zip(a, b)
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "drop_last": False},
        {"shuffle": True, "generator": 5},
        {"shuffle": True, "num_workers": 2},
    ],
)
@pytest.mark.parametrize("make", [tensors, lambda: images(usual())])
def test_values_order_and_random_numbers_are_those_of_the_plain_path(make, arguments, monkeypatch):
    def load():
        given = dict(arguments)
        if "generator" in given:
            given["generator"] = torch.Generator().manual_seed(given["generator"])
        return epochs(loader_of(make(), **given))

    assert is_native(loader_of(make()))
    ours = load()
    monkeypatch.setattr(_native_batches, "source_of", lambda dataset: None)
    assert not is_native(loader_of(make()))
    assert same(ours, load())


def test_workers_that_end_with_the_epoch(monkeypatch):
    def load():
        return epochs(loader_of(tensors(), shuffle=True, num_workers=1, persistent_workers=False))

    ours = load()
    monkeypatch.setattr(_native_batches, "source_of", lambda dataset: None)
    assert same(ours, load())


@pytest.mark.parametrize("kind", ["MNIST", "FashionMNIST", "KMNIST", "EMNIST"])
@pytest.mark.parametrize(
    "transform",
    [
        transforms.ToTensor(),
        usual(),
        transforms.Compose([usual(), transforms.Normalize([0.25], [3.0], inplace=True)]),
    ],
)
def test_every_byte_becomes_the_same_number(kind, transform, monkeypatch):
    loader = loader_of(images(transform, kind=kind))
    assert is_native(loader)
    ours = epochs(loader, 1)
    monkeypatch.setattr(_native_batches, "source_of", lambda dataset: None)
    assert same(ours, epochs(loader, 1))


@pytest.mark.parametrize("mode", [poptorch.DataLoaderMode.Async, "AsyncRebatched"])
def test_in_the_process_of_an_asynchronous_loader(mode):
    mode = getattr(poptorch.DataLoaderMode, mode) if isinstance(mode, str) else mode
    plain = list(loader_of(images(usual())))
    loader = loader_of(images(usual()), mode=mode)
    for batch, expected in zip(loader, plain):
        assert same(batch, expected)
    loader.terminate()


class Doubled(TensorDataset):
    def __getitem__(self, index):
        return tuple(2 * tensor for tensor in super().__getitem__(index))


class Inherits(TensorDataset):
    pass


class OwnToTensor(transforms.ToTensor):
    def __call__(self, image):
        return super().__call__(image) + 1


class OwnClothes(torchvision.datasets.FashionMNIST):
    pass


def hooked():
    normalize = transforms.Normalize((0.5,), (0.5,))
    normalize.register_forward_hook(lambda module, args, result: result + 1)
    return transforms.Compose([transforms.ToTensor(), normalize])


def replaced_on_the_instance():
    normalize = transforms.Normalize((0.5,), (0.5,))
    normalize.forward = lambda image: image + 1
    return transforms.Compose([transforms.ToTensor(), normalize])


@pytest.mark.parametrize(
    "dataset",
    [
        Doubled(*tensors().tensors),
        Inherits(*tensors().tensors),
        TensorDataset(torch.randn(COUNT, 2, requires_grad=True)),
        TensorDataset(torch.randn(2, COUNT).t()),
        images(OwnToTensor()),
        images(lambda image: transforms.functional.to_tensor(image) + 1),
        images(transforms.Compose([usual(), transforms.RandomHorizontalFlip()])),
        images(transforms.Compose([usual(), lambda image: image + 1])),
        images(transforms.Compose([transforms.PILToTensor()])),
        images(hooked()),
        images(replaced_on_the_instance()),
        images(usual(), target_transform=lambda label: label + 1),
        images(usual(), kind=OwnClothes),
    ],
)
def test_code_of_the_users_runs(dataset):
    loader = loader_of(dataset, batch_size=2)
    assert not is_native(loader)
    torch.manual_seed(3)
    first = next(iter(loader))
    torch.manual_seed(3)
    plain = torch.utils.data.DataLoader(dataset, batch_size=4)
    assert same(first, next(iter(plain)))


@pytest.mark.parametrize(
    "patch",
    [
        (torchvision.datasets.MNIST, "__getitem__", lambda self, index: (torch.ones(1), 1)),
        (torchvision.datasets.FashionMNIST, "__getitem__", lambda self, index: (torch.ones(1), 1)),
        (
            torchvision.datasets.FashionMNIST,
            "__getitems__",
            lambda self, indices: [(torch.ones(1), 1)] * len(indices),
        ),
        (torchvision.datasets.FashionMNIST, "data", property(lambda self: None)),
        (sys.modules["PIL.Image"], "fromarray", lambda *_, **__: None),
        (sys.modules["PIL.Image"], "frombuffer", lambda *_, **__: None),
        (transforms.ToTensor, "__call__", lambda self, image: torch.ones(1)),
        (transforms.Normalize, "forward", lambda self, image: torch.ones(1)),
        (transforms.Compose, "__call__", lambda self, image: torch.ones(1)),
        (transforms.functional, "to_tensor", lambda image: torch.ones(1, 1, 1)),
        (transforms.functional, "normalize", lambda *_: torch.ones(1, 1, 1)),
        (torch.utils.data._utils.collate, "default_collate", lambda samples: samples),
        (torch.utils.data._utils.collate, "collate", lambda samples, collate_fn_map=None: samples),
    ],
)
def test_a_patched_method_runs(patch, monkeypatch):
    dataset = images(usual())
    owner, name, method = patch
    monkeypatch.setattr(owner, name, method, raising=False)
    assert not is_native(loader_of(dataset))


def test_a_registered_collate_function_runs(monkeypatch):
    functions = torch.utils.data._utils.collate.default_collate_fn_map
    monkeypatch.setitem(functions, torch.Tensor, lambda batch, *, collate_fn_map: "mine")
    assert next(iter(loader_of(tensors()))) == ["mine", "mine", "mine"]
    monkeypatch.undo()
    monkeypatch.setitem(functions, tuple, lambda batch, *, collate_fn_map: "mine")
    assert next(iter(loader_of(tensors()))) == "mine"


def test_collate_workers_and_batching_of_the_users():
    assert next(iter(loader_of(tensors(), collate_fn=len))) == 6
    started = loader_of(tensors(), num_workers=1, worker_init_fn=print, persistent_workers=False)
    assert not is_native(started)
    single = loader_of(tensors(), batch_size=None)
    assert not is_native(single)
    assert next(iter(single))[0].shape == (3, 2)


@pytest.mark.parametrize("workers", [0, 1])
def test_samplers_of_the_users_are_asked(workers):
    class Backwards(torch.utils.data.Sampler):
        def __init__(self):
            self.begun = 0

        def __iter__(self):
            self.begun += 1
            yield from range(COUNT - 1, -1, -1)

        def __len__(self):
            return COUNT

    sampler = Backwards()
    dataset = tensors()
    loader = loader_of(dataset, sampler=sampler, num_workers=workers)
    assert is_native(loader) and torch.equal(next(iter(loader))[1], dataset.tensors[1][-6:].flip(0))
    assert sampler.begun > 0
    batches = [[4, 2], [1, 1], [0, 3]]
    loader = poptorch.DataLoader(
        poptorch.Options(), dataset, batch_sampler=batches, num_workers=workers
    )
    assert is_native(loader)
    assert [batch[1].tolist() for batch in loader] == [
        dataset.tensors[1][batch].tolist() for batch in batches
    ]
    joined = loader_of(dataset, batch_size=1, batch_sampler=batches, num_workers=workers)
    assert not is_native(joined)
    assert [len(batch[0]) for batch in joined] == [4]


@pytest.mark.parametrize("workers", [0, 2])
def test_indices_that_are_none_are_left_to_the_dataset(workers):
    def load(batches):
        loader = poptorch.DataLoader(
            poptorch.Options(), dataset, batch_sampler=batches, num_workers=workers
        )
        assert is_native(loader)
        return next(iter(loader))

    dataset = tensors()
    assert same(load([[-1, 0]]), [tensor[[-1, 0]] for tensor in dataset.tensors])
    assert same(load([[torch.tensor(5)]]), [tensor[5:6] for tensor in dataset.tensors])
    with pytest.raises(IndexError):
        load([[COUNT]])


def test_a_dataset_that_changes_during_an_epoch():
    dataset = images(usual())
    iterator = iter(loader_of(dataset))
    next(iterator)
    dataset.transform.transforms[1].mean = (0.5,)
    assert same(next(iterator), next(iter(loader_of(dataset, sampler=range(6, 12)))))
    dataset.transform = lambda image: torch.ones(1)
    assert next(iterator)[0].shape == (6, 1)
    with_doubles = images(transforms.ToTensor())
    iterator = iter(loader_of(with_doubles))
    torch.set_default_dtype(torch.float64)
    try:
        assert next(iterator)[0].dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_cannot_be_loaded_is_refused_as_ever():
    with pytest.raises(TypeError, match="PIL"):
        next(iter(loader_of(images())))
    three = transforms.Normalize((0.5,) * 3, (0.5,) * 3)
    with pytest.raises(RuntimeError):
        next(iter(loader_of(images(transforms.Compose([transforms.ToTensor(), three])))))
