"""The names that programs find in the package."""
import collections
import types

import poptorch
import pytest
import torch
from poptorch.testing import allclose


@pytest.mark.spec("1.1 submodules")
@pytest.mark.parametrize(
    "name", ["enums", "ops", "optim", "options", "poptorch_core", "profiling", "testing"]
)
def test_submodules(name):
    assert isinstance(getattr(poptorch, name), types.ModuleType)
    assert name in poptorch.__all__


@pytest.mark.spec("1.1 submodules")
def test_inner_names():
    assert poptorch.options._TrainingOptions
    assert poptorch.enums.OutputMode is poptorch.OutputMode
    assert poptorch.options.Options is poptorch.Options
    assert poptorch.poptorch_core.Error is poptorch.Error
    assert poptorch._impl.PoplarExecutor is poptorch.PoplarExecutor
    assert poptorch._logging.logger is poptorch.logger
    assert poptorch.ops.identity_loss is poptorch.identity_loss
    assert poptorch.optim.SGD
    assert poptorch.profiling.Channel


def test_all_names_exist_and_have_a_docstring():
    assert sorted(poptorch.__all__) == poptorch.__all__
    for name in poptorch.__all__:
        assert getattr(poptorch, name).__doc__, name


@pytest.mark.spec("1.1 submodules")
def test_unwrapping():
    model = torch.nn.Linear(1, 1)
    model.register_buffer("count", torch.zeros(1))
    executor = poptorch.trainingModel(model)
    assert type(model).__name__ == "PoptorchLinear"
    assert poptorch._impl.unwrapIfWrapped(model) is model
    assert type(model) is torch.nn.Linear
    assert type(model.weight) is torch.nn.Parameter and type(model.count) is torch.Tensor
    assert poptorch._impl.unwrapIfWrapped(model) is model
    assert not poptorch._impl.isDispatchTracing()
    del executor


Pair = collections.namedtuple("Pair", "x y")
ONE, TWO = torch.ones(2), torch.full((2,), 2.0)


@pytest.mark.spec("1.1 testing.allclose")
@pytest.mark.parametrize(
    "one, other",
    [
        (ONE, ONE + 1e-9),
        ((ONE, [TWO]), (ONE, [TWO])),
        ({"a": ONE, "b": (TWO,)}, {"a": ONE, "b": (TWO,)}),
        (Pair(ONE, TWO), Pair(ONE, TWO)),
        (torch.tensor([3]), torch.tensor([3], dtype=torch.int32)),
        (ONE.double(), ONE),
        (ONE.half(), ONE.half()),
        (TWO > 1, TWO > 1),
        ((ONE, None, "text"), (ONE, None, "text")),
    ],
)
def test_close(one, other):
    assert allclose(one, other) is True


@pytest.mark.spec("1.1 testing.allclose")
@pytest.mark.parametrize(
    "one, other",
    [
        (ONE, TWO),
        (ONE, ONE.reshape(2, 1)),
        (ONE, [ONE]),
        ((ONE,), [ONE]),
        ((ONE, TWO), (ONE,)),
        ((ONE, (TWO,)), (ONE, (ONE,))),
        ({"a": ONE}, {"b": ONE}),
        ({"a": ONE}, ONE),
        ((ONE, 1), (ONE, 2)),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")])),
        (ONE, None),
    ],
)
def test_not_close(one, other):
    assert allclose(one, other) is False


@pytest.mark.spec("1.1 testing.allclose")
def test_tolerances():
    assert allclose(ONE, ONE + 0.01, atol=0.1)
    assert allclose((TWO,), (TWO * 1.01,), rtol=0.1)
    nan = torch.tensor([float("nan")])
    assert allclose(nan, nan, equal_nan=True)


@pytest.mark.spec("1.4 options")
def test_the_options_of_an_executor_are_its_own_and_frozen():
    options = poptorch.Options().deviceIterations(2)
    executor = poptorch.inferenceModel(torch.nn.Identity(), options)
    assert executor.options is not options
    assert executor.options.device_iterations == 2
    with pytest.raises(AttributeError, match="frozen"):
        executor.options.deviceIterations(3)
    assert executor.options.clone().deviceIterations(3).device_iterations == 3
