"""Types of the user's own as arguments, results and elements of loaders."""

import collections

import poptorch
import pytest
import torch
import torch.nn as nn


class Box:
    """Neither tensor nor container."""

    def __init__(self, first, label, second):
        self.first, self.label, self.second = first, label, second


class BoxParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.first
        yield struct.second

    def reconstruct(self, original_structure, tensor_iterator):
        return type(original_structure)(
            next(tensor_iterator), original_structure.label, next(tensor_iterator)
        )


@pytest.fixture
def boxes():
    poptorch.registerCustomArgParser(Box, BoxParser())
    yield
    poptorch.registerCustomArgParser(Box, None)


class Boxes(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return Box(torch.full((3,), float(index)), "label", torch.zeros(3))


class Unpacks(nn.Module):
    def forward(self, box, extra):
        assert box.label == "label"
        return Box(box.first + extra, "out", box.second * 2), [box.first - box.second]


@pytest.mark.spec("1.1 registerCustomArgParser", "1.1 ICustomArgParser", "1.5 custom types")
def test_registered_types_are_arguments_and_results(boxes):
    executor = poptorch.inferenceModel(Unpacks(), poptorch.Options().deviceIterations(2))
    for value in (1.0, 2.0):
        box = Box(torch.full((4,), value), "label", torch.full((2,), 3.0))
        result, [difference] = executor(box, torch.arange(4.0))
        assert type(result) is Box and result.label == "out"
        assert torch.equal(result.first, torch.arange(4.0) + value)
        assert torch.equal(result.second, torch.full((2,), 6.0))
        assert difference.shape == (4,)

    class Derived(Box):
        pass

    other = poptorch.inferenceModel(Unpacks())
    made, _ = other(Derived(torch.ones(2), "label", torch.ones(2)), torch.ones(2))
    assert torch.equal(made.first, torch.full((2,), 2.0))
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(torch.ones(4), torch.ones(4))


@pytest.mark.spec("1.1 registerCustomArgParser", "1.5 custom types", "3.4 custom types")
@pytest.mark.parametrize("strategy", ["Fork", "ForkServer"])
def test_registered_types_pass_through_the_loaders(boxes, strategy):
    def collate(items):
        return Box(
            torch.stack([item.first for item in items]),
            "label",
            torch.stack([item.second for item in items]),
        )

    accessor = poptorch.AsynchronousDataAccessor(
        Boxes(), sharing_strategy=poptorch.SharingStrategy[strategy]
    )
    try:
        seen = [(type(element), element.label, element.first.tolist()) for element in accessor]
    finally:
        accessor.terminate()
    assert seen == [(Box, "label", [float(i)] * 3) for i in range(4)]
    options = poptorch.Options().deviceIterations(2)
    sampler = torch.utils.data.BatchSampler(range(4), batch_size=1, drop_last=True)
    joined = list(poptorch.DataLoader(options, Boxes(), batch_sampler=sampler, collate_fn=collate))
    assert [type(box) for box in joined] == [Box, Box]
    assert joined[1].first[:, 0].tolist() == [2.0, 3.0]


def joined(items):
    return Box(
        torch.stack([item.first for item in items]),
        "label",
        torch.stack([item.second for item in items]),
    )


@pytest.mark.spec("1.5 custom types", "3.4 custom types", "3.1 batch_sampler modes")
@pytest.mark.parametrize("mode", list(poptorch.DataLoaderMode))
@pytest.mark.parametrize("samples", ["batch_size", "batch_sampler"])
def test_registered_types_in_every_mode(boxes, mode, samples):
    batches = torch.utils.data.BatchSampler(range(4), batch_size=1, drop_last=True)
    loader = poptorch.DataLoader(
        poptorch.Options().deviceIterations(2),
        Boxes(),
        mode=mode,
        collate_fn=joined,
        num_workers=2,
        async_options={"sharing_strategy": poptorch.SharingStrategy.Fork},
        batch_sampler=batches if samples == "batch_sampler" else None,
    )
    seen = [(type(box), box.label, box.first[:, 0].tolist()) for box in loader]
    loader.terminate()
    assert seen == [(Box, "label", [0.0, 1.0]), (Box, "label", [2.0, 3.0])]


@pytest.mark.spec("1.1 registerCustomArgParser", "1.1 ICustomArgParser")
def test_parsers_are_checked_and_removed(boxes):
    for wrong in (BoxParser, object(), "parser"):
        with pytest.raises(poptorch.Error, match="ICustomArgParser"):
            poptorch.registerCustomArgParser(Box, wrong)
    with pytest.raises(TypeError):
        poptorch.ICustomArgParser()
    poptorch.registerCustomArgParser(Box, None)
    poptorch.registerCustomArgParser(Box, None)

    class Returns(nn.Module):
        def forward(self, x):
            return Box(x + 1, "out", x)

    with pytest.raises(poptorch.Error, match="Box.*registerCustomArgParser"):
        poptorch.inferenceModel(Returns())(torch.ones(2))

    class Wrong(BoxParser):
        def yieldTensors(self, struct):
            yield struct.label

    poptorch.registerCustomArgParser(Box, Wrong())
    with pytest.raises(poptorch.Error, match="yieldTensors.*str"):
        poptorch.inferenceModel(Unpacks())(Box(torch.ones(1), "label", torch.ones(1)), None)


@pytest.mark.spec("1.5 custom types")
def test_a_registered_container_is_parsed_by_its_parser():
    Point = collections.namedtuple("Point", "x name")

    class PointParser(poptorch.ICustomArgParser):
        def yieldTensors(self, struct):
            return [struct.x]

        def reconstruct(self, original_structure, tensor_iterator):
            return Point(next(tensor_iterator), original_structure.name + "!")

    class Model(nn.Module):
        def forward(self, point):
            assert point.name == "a!"
            return point.x + 1

    poptorch.registerCustomArgParser(Point, PointParser())
    try:
        executor = poptorch.inferenceModel(Model())
        assert executor(Point(torch.zeros(1), "a")).item() == 1
    finally:
        poptorch.registerCustomArgParser(Point, None)
