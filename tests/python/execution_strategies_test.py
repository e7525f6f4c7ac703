"""Execution strategies: what they check, and that several stages run as one."""

import poptorch
import pytest
import torch


def test_strategies_of_one_stage_run(capfd):
    for strategy in (
        poptorch.PipelinedExecution(),
        poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
        poptorch.ShardedExecution(),
        poptorch.ShardedExecution("A"),
    ):
        opts = poptorch.Options().setExecutionStrategy(strategy)
        opts.showCompilationProgressBar(False)
        model = poptorch.inferenceModel(torch.nn.Linear(2, 2), opts)
        assert model(torch.ones(1, 2)).shape == (1, 2)
    assert capfd.readouterr().err == ""
    with pytest.raises(AssertionError, match="execution strategy"):
        poptorch.Options().setExecutionStrategy("pipelined")


def test_strategies_check_their_arguments():
    with pytest.raises(AssertionError, match="strings"):
        poptorch.Stage("A", 1)
    with pytest.raises(AssertionError):
        poptorch.Stage("A").ipu("0")
    assert list(poptorch.Stage("A", "B").ipu(1).blocks) == ["A", "B"]
    with pytest.raises(AssertionError, match="more than one stage"):
        poptorch.PipelinedExecution("A", ["B", "A"])
    with pytest.raises(AssertionError):
        poptorch.PipelinedExecution("A", 3)
    pipeline = poptorch.PipelinedExecution("A", ["B", "C"], poptorch.Stage("D"))
    assert pipeline.stage("C") is pipeline.stage("B")
    with pytest.raises(AssertionError, match="Unknown block"):
        pipeline.stage("E")
    phase = poptorch.Phase(poptorch.Stage("A"), poptorch.Stage("B"))
    with pytest.raises(AssertionError, match="2 stages"):
        phase.ipus(0)
    with pytest.raises(AssertionError):
        poptorch.Phase("A", poptorch.Stage("B"))
    assert len(poptorch.Phase("A", "B").stages) == 1
    with pytest.raises(AssertionError, match="at least one"):
        poptorch.SerialPhasedExecution()
    serial = poptorch.SerialPhasedExecution(phase, ["C"], [poptorch.Stage("D")])
    assert serial.phase(0) is phase and serial.useSeparateBackwardPhase() is serial
    assert serial.setTensorsLiveness(poptorch.Liveness.OffChipAfterFwd) is serial
    parallel = poptorch.ParallelPhasedExecution("A", "B")
    assert parallel.sendTensorsOffChipAfterFwd() is parallel


def test_several_stages_say_that_they_run_as_one(capfd):
    opts = poptorch.Options().setExecutionStrategy(poptorch.PipelinedExecution("A", "B"))
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), opts)
    assert model(torch.ones(1, 2)).shape == (1, 2)
    assert "2 stages run one after the other" in capfd.readouterr().err
