"""What options change in a program: reductions, names, devices."""

import copy

import poptorch
import pytest
import torch
from models import LinearWithLoss


@pytest.mark.spec("2.3 accumulationAndReplicationReductionType")
def test_reduction_type_is_mean_or_sum():
    training = poptorch.Options().Training
    assert training.accumulation_and_replication_reduction_type is poptorch.ReductionType.Mean
    training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    assert training.accumulation_and_replication_reduction_type is poptorch.ReductionType.Sum
    for wrong in (poptorch.ReductionType.NoReduction, "sum", 1):
        with pytest.raises(ValueError, match="ReductionType"):
            training.accumulationAndReplicationReductionType(wrong)


@pytest.mark.spec("2.3 setMeanAccumulationAndReplicationReductionStrategy")
def test_mean_strategy(capfd):
    training = poptorch.Options().Training
    strategy = "meanAccumulationAndReplicationReductionStrategy"
    assert getattr(training, strategy) == poptorch.MeanReductionStrategy.Post
    training.setMeanAccumulationAndReplicationReductionStrategy(
        poptorch.MeanReductionStrategy.Running
    )
    assert getattr(training, strategy) == poptorch.MeanReductionStrategy.Running
    with pytest.raises(AssertionError):
        training.setMeanAccumulationAndReplicationReductionStrategy(0)
    training.setMeanAccumulationAndReplicationReductionStrategy(
        poptorch.MeanReductionStrategy.PostAndLoss
    )
    assert "deprecated" in capfd.readouterr().err


def trained_weight(reduction, accumulation, lr):
    """The weight after one update over `accumulation` micro-batches, by us and by PyTorch."""
    torch.manual_seed(1)
    model = LinearWithLoss()
    reference = copy.deepcopy(model)
    x, y = torch.randn(accumulation, 4), torch.randn(accumulation, 2)
    opts = poptorch.Options()
    opts.Training.gradientAccumulation(accumulation)
    opts.Training.accumulationAndReplicationReductionType(reduction)
    training = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=lr))
    training(x, y)
    for i in range(accumulation):
        _, loss = reference(x[i : i + 1], y[i : i + 1])
        loss.backward()
    parameter = next(reference.parameters())
    share = accumulation if reduction == poptorch.ReductionType.Mean else 1
    with torch.no_grad():
        parameter -= lr * parameter.grad / share
    return next(model.parameters()).detach(), parameter.detach()


@pytest.mark.parametrize("reduction", [poptorch.ReductionType.Mean, poptorch.ReductionType.Sum])
@pytest.mark.spec("2.3 accumulationAndReplicationReductionType")
def test_gradients_of_micro_batches_are_averaged_or_added(reduction):
    ours, reference = trained_weight(reduction, accumulation=4, lr=0.05)
    torch.testing.assert_close(ours, reference)


@pytest.mark.spec("2.3 setMeanAccumulationAndReplicationReductionStrategy")
def test_a_running_mean_does_not_overflow():
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(0.0)

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = model

        def forward(self, x):
            return poptorch.identity_loss(self.fc(x), "sum")

    results = {}
    for strategy in (poptorch.MeanReductionStrategy.Post, poptorch.MeanReductionStrategy.Running):
        model.weight.data.fill_(0.0)
        opts = poptorch.Options()
        opts.Training.gradientAccumulation(4)
        opts.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
        wrapped = Scaled()
        training = poptorch.trainingModel(wrapped, opts, torch.optim.SGD([model.weight], lr=1.0))
        training(torch.full((4, 1), 2e38))
        results[strategy.name] = model.weight.item()
        training.destroy()
    assert results["Post"] == float("-inf")
    assert results["Running"] == pytest.approx(-2e38)


class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())

    def forward(self, x):
        return self.layer1(x)


def graph_of(opts):
    model = poptorch.inferenceModel(Named(), opts.showCompilationProgressBar(False))
    model.compile(torch.zeros(1, 4))
    return model._core.graph_text()


@pytest.mark.spec("2.2 modelName")
def test_the_model_has_its_name():
    assert '"inference"' in graph_of(poptorch.Options())
    assert '"tommy flowers"' in graph_of(poptorch.Options().modelName("tommy flowers"))


@pytest.mark.spec("2.2 disableModuleNamescope")
def test_operators_are_named_after_their_module_unless_told_not_to():
    assert 'in "layer1.0"' in graph_of(poptorch.Options())
    assert 'layer1.0"' not in graph_of(poptorch.Options().disableModuleNamescope())


@pytest.mark.spec("2.2 sourceLocationExcludes", "2.2 appendToLocationExcludes")
def test_excluded_files_are_not_named():
    assert "options_effect_test.py" in graph_of(poptorch.Options())
    hidden = graph_of(poptorch.Options().appendToLocationExcludes("options_effect_test"))
    assert "options_effect_test.py" not in hidden
    hidden = graph_of(poptorch.Options().sourceLocationExcludes(["tests/python"]))
    assert "options_effect_test.py" not in hidden


@pytest.mark.spec("2.2 useIpuId")
def test_a_device_must_be_there_and_large_enough(capfd, monkeypatch):
    monkeypatch.delenv("TESSERA_NUM_IPUS", raising=False)
    graph_of(poptorch.Options().useIpuId(15))
    assert capfd.readouterr().err == ""
    graph_of(poptorch.Options().useIpuId(16))  # the first pair
    assert "has 2 IPUs, but the model needs only 1" in capfd.readouterr().err
    graph_of(poptorch.Options().useIpuId(30))
    assert "has 16 IPUs" in capfd.readouterr().err
    with pytest.raises(poptorch.Error, match="no device of this number"):
        graph_of(poptorch.Options().useIpuId(31))
    with pytest.raises(ValueError, match="negative"):
        poptorch.Options().useIpuId(-1)
    with pytest.raises(AssertionError):
        poptorch.Options().useIpuId("0")
