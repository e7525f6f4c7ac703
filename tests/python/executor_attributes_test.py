"""What an executor shows of its module: attributes, proxies of parameters."""

import poptorch
import pytest
import torch
import torch.nn as nn
from models import MLP
from wrapped import QUIET, Direct, train


@pytest.mark.spec("1.2 executor.model", "1.4 model")
def test_executor_model():
    model = Direct()
    assert poptorch.inferenceModel(model).model is not model
    assert poptorch.inferenceModel(model).model.sub is model.sub
    assert poptorch.trainingModel(model).model is model


@pytest.mark.spec("1.2 attribute forwarding")
def test_the_module_is_seen_through_the_executor():
    model = Direct()
    executor = train(model)
    assert executor.sub is model.sub and executor.flag == "at wrapping"
    assert executor.describe("seen") == "seen: at wrapping"
    assert list(executor.state_dict()) == list(model.state_dict())
    assert [n for n, _ in executor.named_parameters()] == ["scale", "sub.weight", "sub.bias"]
    assert executor.offset is model.offset  # buffers are themselves
    assert executor.eval() is model and not model.training
    model.flag = "later"
    assert executor.flag == "later"
    with pytest.raises(AttributeError):
        executor.no_such_thing
    assert not hasattr(executor, "__len__")
    with pytest.raises(TypeError):
        len(poptorch.inferenceModel(nn.Sequential(nn.ReLU())))


@pytest.mark.spec("1.2 attribute assignment")
def test_assignment_stays_on_the_executor():
    model = Direct()
    executor = poptorch.trainingModel(model)
    executor.flag = "mine"
    executor.brand_new = 3
    assert executor.flag == "mine" and executor.brand_new == 3
    assert model.flag == "at wrapping" and not hasattr(model, "brand_new")


@pytest.mark.spec("1.2 parameter proxies")
def test_parameters_of_the_module_itself_are_proxies():
    model = Direct()
    executor = train(model)
    proxy = executor.scale
    assert not isinstance(proxy, torch.Tensor)
    assert proxy.shape == (3,) and proxy.requires_grad and repr(proxy) == repr(model.scale)
    assert torch.equal(proxy.detach(), model.scale.detach())  # the trained value
    proxy.requires_grad = False
    assert not model.scale.requires_grad
    assert executor.sub.weight is model.sub.weight
    assert executor.model.scale is model.scale
    with pytest.raises(AttributeError):
        proxy.no_such_thing


class Grouped(nn.Module):
    def __init__(self, rows=1):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(rows, 3, 2))
        self.scalar = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return poptorch.identity_loss(x @ self.weight * self.scalar, "sum")


@pytest.mark.spec("1.2 parameter proxies")
def test_replica_grouping_takes_the_first_dimension():
    arguments = (
        poptorch.enums.CommGroupType.Consecutive,
        1,
        poptorch.enums.VariableRetrievalMode.OnePerGroup,
    )
    model = Grouped()
    executor = poptorch.trainingModel(
        model, QUIET.clone(), torch.optim.SGD(model.parameters(), lr=0.5)
    )
    executor.weight.replicaGrouping(*arguments)
    assert executor(torch.ones(1, 3)).item() == 6
    assert torch.equal(model.weight.detach(), torch.full((1, 3, 2), 0.5))
    assert model.weight.shape == (1, 3, 2) and "weight" not in vars(executor._traced)
    with pytest.raises(poptorch.Error, match="before the model is compiled"):
        executor.weight.replicaGrouping(*arguments)
    with pytest.raises(poptorch.Error, match="scalar"):
        poptorch.inferenceModel(model).scalar.replicaGrouping(*arguments)
    wrong = poptorch.inferenceModel(Grouped(rows=2))
    wrong.weight.replicaGrouping(*arguments)
    with pytest.raises(poptorch.Error, match="'weight' must have 1 in dimension 0"):
        wrong(torch.ones(1, 3))
    wrong.weight.replicaGrouping(poptorch.enums.CommGroupType.Orthogonal, 2, arguments[2])
    with pytest.raises(poptorch.Error, match="groups of 2"):
        wrong(torch.ones(1, 3))


@pytest.mark.spec("1.2 repr")
def test_repr():
    executor = train(MLP())
    assert repr(executor) == poptorch.module_repr(executor.model)


@pytest.mark.spec("1.2 attribute forwarding")
def test_to_gives_the_module_and_says_so(capfd):
    model = Direct()
    executor = train(model)
    assert executor.to("cpu") is model
    assert "outside of the executor" in capfd.readouterr().err
