"""torch.unique in forward: the number of values comes from the batch that compiles the program."""

import copy

import numpy
import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

LABELS = torch.tensor([[3, 1, 1], [0, 3, 3]])


def wrapped(forward):
    module = nn.Module()
    module.forward = forward
    return poptorch.inferenceModel(module)


def narrowed(value):
    types = {torch.int64: torch.int32, torch.float64: torch.float32}
    return value.to(types.get(value.dtype, value.dtype))


def assert_as_eager(forward, *batches):
    executor = wrapped(forward)
    for batch in batches:
        ours, theirs = executor(batch), forward(batch)
        for one, other in zip(ours, theirs):
            assert torch.equal(one, narrowed(other)), (one, other)


@pytest.mark.parametrize(
    "batches",
    [
        (LABELS, LABELS.flip(0) * 7, LABELS - 5),
        (LABELS.float() / 3, -LABELS.float()),
        (LABELS.to(torch.uint8), LABELS.to(torch.uint8) + 1),
        (LABELS > 2, LABELS > 0),
        (torch.tensor(4), torch.tensor(-1)),
    ],
)
def test_all_results(batches):
    assert_as_eager(lambda x: torch.unique(x, return_inverse=True, return_counts=True), *batches)
    assert_as_eager(lambda x: x.unique(return_counts=True), *batches)
    assert_as_eager(lambda x: (torch.unique(x),), *batches)


def test_random_values():
    generator = torch.Generator().manual_seed(5)

    def draw():
        while True:
            x = torch.randint(-4, 5, (2, 3, 17), generator=generator)
            if len(x.unique()) == 9:
                return x

    assert_as_eager(
        lambda x: x.unique(return_inverse=True, return_counts=True), *[draw() for _ in range(10)]
    )


def test_of_what_is_computed_from_inputs():
    def forward(x):
        plane = x.chunk(2)[1].long().squeeze(0)[1:] * 2 + torch.arange(2)
        values, counts = torch.unique(plane, return_counts=True)
        return values, counts / len(counts)

    x = torch.tensor([[9.0, 9, 9], [1, 2, 3]])
    assert_as_eager(forward, x, x + 1)


def test_another_number_of_values_is_an_error_of_the_program():
    executor = wrapped(lambda x: torch.unique(x, return_counts=True))
    executor(LABELS)
    words = (
        "there are 2 different values in this batch.*a batch that has 3.*"
        r"torch.bincount\(x, minlength=n\)"
    )
    with pytest.raises(poptorch.Error, match=words):
        executor(LABELS.clamp(max=1))
    assert executor(LABELS + 1)[0].tolist() == [1, 2, 4]
    executor.destroy()
    assert executor(LABELS.clamp(max=1))[0].tolist() == [0, 1]


def test_the_number_alone_is_checked_too():
    executor = wrapped(lambda x: x * len(torch.unique(x)))
    assert torch.equal(executor(LABELS), (LABELS * 3).int())
    with pytest.raises(poptorch.Error, match="there are 1 different values"):
        executor(torch.zeros_like(LABELS))


def test_each_micro_batch_is_checked():
    module = nn.Module()
    module.forward = lambda x: torch.unique(x, return_counts=True)[1]
    executor = poptorch.inferenceModel(module, poptorch.Options().deviceIterations(2))
    x = torch.tensor([1, 2, 2, 5, 5, 6])
    assert executor(x).tolist() == [1, 2, 2, 1]
    with pytest.raises(poptorch.Error, match="there are 1 different values"):
        executor(torch.tensor([1, 2, 2, 5, 5, 5]))


REFUSED = "Operations using aten::_unique2 are unsupported because the output shape"


def test_what_depends_on_weights_is_refused():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return torch.unique(self.fc(x).argmax(-1))

    with pytest.raises(poptorch.Error, match=REFUSED):
        poptorch.inferenceModel(Model())(torch.randn(4, 3))


def test_what_is_random_is_refused():
    with pytest.raises(poptorch.Error, match=REFUSED):
        wrapped(lambda x: torch.unique((x + torch.rand(3) > 0.5)))(torch.zeros(3))


def test_in_a_training_step_before_and_after_weights_are_used():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 4)

        def forward(self, x, labels):
            y = self.fc(x)
            counts = torch.unique(labels, return_counts=True)[1]
            return F.cross_entropy(y, labels) * (1.0 / counts).sum()

    model = Model()
    executor = poptorch.trainingModel(model)
    x, labels = torch.randn(6, 3), torch.tensor([0, 3, 3, 1, 1, 1])
    wanted = model(x, labels).item()
    assert executor(x, labels).item() == pytest.approx(wanted, rel=1e-5)


class EvenLoss(nn.Module):
    """Every class weighs the same, however many of its pixels there are: as CosmicTagger's."""

    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(1, 3, 3, padding=1)
        self.criterion = nn.CrossEntropyLoss(reduction="none")

    def count(self, plane):
        _, counts = torch.unique(plane, return_counts=True)
        if len(counts) < 3:
            counts = torch.cat((counts, torch.ones(1)), 0)
        return counts

    def forward(self, images, labels):
        total = None
        for logits, plane in zip(self.net(images).chunk(2), labels.chunk(2)):
            loss = self.criterion(input=logits, target=plane)
            with torch.no_grad():
                counts = self.count(plane)
                numpy.prod(plane.shape)
                torch.where(plane != 0)  # which nobody uses
                shares = 0.3333 / (counts + 1.0)
                weights = torch.full(plane.shape, shares[0], device=plane.device)
                weights[plane == 1] = shares[1]
                weights[plane == 2] = shares[2]
            loss = torch.mean(weights * loss)
            total = loss if total is None else total + loss
        return poptorch.identity_loss(total, "none")


def test_training_with_classes_of_even_weight():
    torch.manual_seed(2)
    model = EvenLoss()
    reference = copy.deepcopy(model).double()
    executor = poptorch.trainingModel(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=100.0)
    )
    optimizer = torch.optim.SGD(reference.parameters(), lr=100.0)
    first = None
    for _ in range(8):
        images = torch.randn(4, 1, 8, 8)
        labels = torch.bucketize(images.squeeze(1), torch.tensor([0.5, 1.3]))
        loss = reference(images.double(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(executor(images, labels).double(), loss.detach().double())
        first = first or loss.item()
    assert loss.item() < 0.8 * first
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach().double(), theirs.detach(), rtol=1e-4, atol=1e-5)


WHOLE = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])


@pytest.mark.parametrize(
    "full",
    [
        lambda x: torch.full((2, 3), x[0, 0]),
        lambda x: torch.full((2,), x[0, 2].long()),
        lambda x: torch.full(size=[2], fill_value=x[0, 2] > 1),
        lambda x: torch.full([2], x[0, 2], dtype=torch.int32),
        lambda x: torch.full((2,), x[0, 2].double()),
        lambda x: torch.full((2,), x[0, 2], out=torch.zeros(2, dtype=torch.int32)),
        lambda x: torch.full((2,), torch.tensor(3.0)) + x[0, 0],
        lambda x: torch.full((0,), x[0, 2]).sum() + x,
    ],
)
def test_full_of_a_number_in_a_tensor(full):
    assert_as_eager(lambda x: (full(x),), WHOLE, WHOLE + 1)


def test_full_of_a_vector_is_refused_as_in_eager():
    with pytest.raises(TypeError, match="must be Number, not Tensor"):
        wrapped(lambda x: torch.full((2,), x[0, 2:]))(WHOLE)


# Where a condition holds: of use to nobody, as long as nobody asks.


def test_places_that_nobody_uses():
    def forward(x):
        places = torch.where(x > 0)
        rows, columns = places
        return (x * 2,)

    assert_as_eager(forward, WHOLE, WHOLE - 1)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, places: x[places],
        lambda x, places: x[places[0]],
        lambda x, places: x.index_put(places, torch.tensor(1.0)),
        lambda x, places: places[0] + 1,
        lambda x, places: 1 + places[0],
        lambda x, places: x.long() + places[0],
        lambda x, places: torch.stack(places),
        lambda x, places: x * len(places[0]),
        lambda x, places: x * places[0].shape[0],
        lambda x, places: x * (places[0] == 1),
        lambda x, places: x if places[0] else -x,
        lambda x, places: x if isinstance(places[0], torch.Tensor) else -x,
        lambda x, places: [x * place for place in places[0]],
        lambda x, places: places[0],
        lambda x, places: (x, places),
    ],
)
def test_places_that_are_used_are_refused(use):
    with pytest.raises(poptorch.Error, match="Operations using aten::nonzero are unsupported"):
        wrapped(lambda x: use(x, torch.where(x > 0)))(WHOLE)
