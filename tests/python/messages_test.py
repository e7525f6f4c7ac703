"""The words that programs look for in our errors and warnings, as PopTorch has them."""

import re
import warnings

import numpy as np
import poptorch
import pytest
import torch
import torch.nn as nn

pytestmark = pytest.mark.spec("7 words of messages")


class Add(nn.Module):
    def forward(self, x, y=None, z=None):
        result = 2 * x
        if isinstance(y, torch.Tensor):
            result = result + y
        return result if z is None else result + z


class Forwards(Add):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return poptorch.identity_loss(self.layer(x), "mean")


def message_of(function, error=poptorch.Error):
    with pytest.raises(error) as caught:
        function()
    message = getattr(caught.value, "message", str(caught.value))
    assert str(caught.value).count(message) == 1
    return message


def refusal(forward, *inputs, training=False):
    """What running a model with this forward says."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.register_buffer("y", torch.ones(2))

    Model.forward = forward
    wrap = poptorch.trainingModel if training else poptorch.inferenceModel
    return message_of(lambda: wrap(Model())(*inputs))


def test_accumulation_in_inference():
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    assert (
        "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its "
        "default value (1) when running a poptorch.inferenceModel()"
    ) in message_of(lambda: poptorch.inferenceModel(Add(), options))


@pytest.mark.spec("1.1 trainingModel already wrapped")
def test_wrapped_already():
    model = WithLoss()
    executor = poptorch.trainingModel(model)
    assert (
        "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the "
        "model to unwrap before wrapping again"
    ) in message_of(lambda: poptorch.trainingModel(model), RuntimeError)
    assert executor


ONE, TWO = torch.ones(1), torch.ones(2)


@pytest.mark.spec("1.5 changed inputs")
@pytest.mark.parametrize(
    "first, then, words",
    [
        (
            ((ONE,), {"z": ONE}),
            ((ONE,), {}),
            "Type mismatch for z: expected <class 'torch.Tensor'> but got <class 'NoneType'>",
        ),
        (
            ((ONE, 3), {}),
            ((ONE, "3"), {}),
            "Type mismatch for y: expected <class 'int'> but got <class 'str'>",
        ),
        (((ONE, 3), {}), ((ONE, 4), {}), "Value mismatch for y: expected 3 but got 4"),
        (((ONE, ONE), {}), ((ONE, TWO), {}), "expected torch.Size([1]) but got torch.Size([2])"),
        (((ONE,), {}), ((TWO,), {}), "Shape mismatch for x: "),
        (((ONE,), {}), ((ONE.long(),), {}), "expected torch.float32 but got torch.int64"),
        (((ONE,), {}), ((ONE.long(),), {}), "Data type mismatch for x: "),
        (
            ((ONE, [1, (2, ONE)]), {}),
            ((ONE, [1, (2, 5)]), {}),
            "Type mismatch for y.1.1: expected <class 'torch.Tensor'> but got <class 'int'>",
        ),
        (
            ((ONE, [ONE, ONE]), {}),
            ((ONE, [ONE]), {}),
            "Length mismatch for y: expected 2 elements but got 1",
        ),
        (
            ((ONE, [ONE]), {}),
            ((ONE, (ONE,)), {}),
            "Type mismatch for y: expected <class 'list'> but got <class 'tuple'>",
        ),
        (
            ((ONE, {"a": ONE, "b": ONE}), {}),
            ((ONE, {"a": ONE, "c": ONE}), {}),
            "Keys mismatch for y: Unexpected arguments: c. Missing arguments: b.",
        ),
        (
            ((ONE, {"a": ONE, "b": 2}), {}),
            ((ONE, {"a": ONE, "b": 3}), {}),
            "Value mismatch for y.b: expected 2 but got 3",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_argument_after_compiling(first, then, words):
    executor = poptorch.inferenceModel(Add())
    executor(*first[0], **first[1])
    message = message_of(lambda: executor(*then[0], **then[1]))
    assert words in message
    assert "destroy()" in message
    executor(*first[0], **first[1])  # it still runs


@pytest.mark.spec("1.5 changed inputs")
def test_arguments_that_are_missing_or_too_many():
    executor = poptorch.inferenceModel(Forwards())
    executor(ONE, y=ONE)
    assert "Unexpected arguments: z." in message_of(lambda: executor(ONE, y=ONE, z=ONE))
    assert "Missing arguments: y." in message_of(lambda: executor(ONE))
    assert (
        "Number of positional arguments mismatch: expected 1 arguments but got 2"
    ) in message_of(lambda: executor(ONE, ONE, y=ONE))


@pytest.mark.parametrize("size", [3, 100000])
def test_arrays_are_not_printed(size):
    executor = poptorch.inferenceModel(Add())
    executor(ONE, np.arange(size))
    message = message_of(lambda: executor(ONE, np.arange(size) + 1))
    assert f"Value mismatch for y: expected numpy.ndarray(shape=({size},), dtype=int64)" in message
    assert "other values" in message and "tensor" in message
    assert len(message) < 500
    message = message_of(lambda: executor(ONE, np.zeros((2, size), "float32")))
    assert f"but got numpy.ndarray(shape=(2, {size}), dtype=float32)" in message
    executor = poptorch.inferenceModel(Add())
    executor(ONE, list(range(size)))
    assert len(message_of(lambda: executor(ONE, list(range(size + 1))))) < 500


@pytest.mark.spec("1.6 parameter assignment")
def test_buffers_and_parameters_of_forward():
    def reassign(self, x):
        self.y = self.y + x
        return x

    def remove(self, x):
        del self.y
        return x

    def replace(self, x):
        self.weight = nn.Parameter(torch.zeros(2))
        return x

    message = refusal(reassign, TWO)
    assert "Buffer y is reassigned" in message and "self.y.copy_" in message
    assert re.search("Buffer y is removed.*when calling the forward method", refusal(remove, TWO))
    assert "Parameter weight is reassigned" in refusal(replace, TWO)


def test_two_losses():
    def forward(self, x):
        loss = nn.functional.mse_loss
        return loss(self.weight, x) + loss(2 * self.weight, x)

    message = refusal(forward, TWO, training=True)
    assert (
        "Multiple independent losses found in graph. Graph must have one final loss. Wrap final "
        "graph loss in poptorch.identity_loss."
    ) in message
    assert message.count("messages_test.py:") == 2


def test_one_hot_without_classes():
    words = "OneHot num classes must be specified and must be constant."
    assert words in refusal(lambda self, x: nn.functional.one_hot(x), TWO.long())


@pytest.mark.parametrize(
    "name, function",
    [
        ("nonzero", torch.nonzero),
        ("masked_select", lambda x: x.masked_select(x > 0)),
        ("_unique2", lambda x: torch.unique(torch.rand_like(x))),
        ("unique_dim", lambda x: torch.unique(x, dim=0)),
    ],
)
def test_shapes_that_depend_on_values(name, function):
    assert (
        f"Operations using aten::{name} are unsupported because the output shape is determined by "
        "the tensor values"
    ) in refusal(lambda self, x: function(x), TWO)


def test_outputs_that_were_not_computed():
    constant = torch.ones(3)

    class Constant(nn.Module):
        def forward(self, x):
            return x, constant

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        poptorch.inferenceModel(Constant())(ONE)
    expected = "Output expected to be on the IPU but is on cpu"
    assert [expected in str(warning.message) for warning in caught].count(True) == 1


def test_wrong_dimensions_have_pytorchs_words():
    def forward(self, x):
        return torch.softmax(x, -4)

    words = "Dimension out of range (expected to be in range of [-3, 2], but got -4)"
    for function in (forward, lambda self, x: x.sum(-4), lambda self, x: x.transpose(-4, 0)):
        with pytest.raises((IndexError, poptorch.Error), match=re.escape(words)):
            refusing = type("Refusing", (nn.Module,), {"forward": function})
            poptorch.inferenceModel(refusing())(torch.ones(2, 2, 2))


def test_wrong_log_levels():
    for level in ("wibble", "warn", ""):
        words = f"Unknown log level: {level}. Valid values are"
        assert words in message_of(lambda: poptorch.setLogLevel(level), ValueError)


@pytest.mark.spec("1.5 zero elements")
def test_inputs_without_elements():
    message = message_of(lambda: poptorch.inferenceModel(Add())(torch.ones(0, 2, 5, 5)))
    assert "Zero-sized tensors are unsupported (Got shape [0, 2, 5, 5])" in message
    assert "'x'" in message


def test_backward_of_a_result():
    result = poptorch.inferenceModel(Add())(ONE)
    message = message_of(result.backward)
    assert re.search("backward\\(\\) cannot be called explicitly.*If you're using a", message)
    assert "If you're using a trainingModel," in message


def test_cycles_that_were_not_counted():
    executor = poptorch.inferenceModel(Add())
    executor(ONE)
    message = message_of(executor.cycleCount)
    assert "Cycle count logging is disabled" in message and "logCycleCount(True)" in message


def test_detaching_twice():
    executor = poptorch.inferenceModel(Add())
    executor(ONE)
    executor.detachFromDevice()
    assert "Device is not attached" in message_of(executor.detachFromDevice)


@pytest.mark.spec("4.1 subclasses")
def test_every_derived_optimiser_is_told_of(capfd):
    class Mine(torch.optim.SGD):
        pass

    model = WithLoss()
    for _ in range(6):  # more often than one and the same message is shown
        poptorch.trainingModel(model, optimizer=Mine(model.parameters(), lr=0.1))
        text = capfd.readouterr().err
        assert text.count("Poptorch does not run Python optimizer code directly") == 1
        assert "Mine" in text


def runs(executor, capfd):
    executor(TWO)
    return capfd.readouterr().err.count("Poptorch does not run Python optimizer code directly")


@pytest.mark.spec("4.4 changed without setOptimizer")
def test_changes_of_an_optimiser_that_nobody_was_told_of(capfd):
    options = poptorch.Options().showCompilationProgressBar(False)
    for _ in range(6):
        model = WithLoss()
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, loss_scaling=2.0)
        executor = poptorch.trainingModel(model, options, optimizer)
        assert runs(executor, capfd) == 0
        optimizer.param_groups[0]["lr"] = 0.2
        assert runs(executor, capfd) == 1
        assert runs(executor, capfd) == 0  # once is enough
        executor.setOptimizer(optimizer)
        assert runs(executor, capfd) == 0
        optimizer.loss_scaling = 4.0
        assert runs(executor, capfd) == 1
        executor.setOptimizer(optimizer)
        optimizer.param_groups[0]["lr"] = 0.3
        executor.setOptimizer(optimizer)
        optimizer.param_groups[0]["initial_lr"] = 0.3  # which no program knows
        assert runs(executor, capfd) == 0


@pytest.mark.spec("4.4 new attributes", "2.2 maxRepeatLogs")
def test_warnings_about_optimisers_are_no_repetitions(capfd):
    options = poptorch.Options().maxRepeatLogs(1).showCompilationProgressBar(False)
    for _ in range(3):
        model = WithLoss()
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
        executor = poptorch.trainingModel(model, options, optimizer)
        executor(TWO)
        optimizer.lr = 0.5
        executor.setOptimizer(optimizer)
        assert "Ignoring unexpected optimizer attribute 'lr'" in capfd.readouterr().err
    poptorch.poptorch_core.limit_repeated_logs(4)


@pytest.mark.spec("4.4 explicit attributes are variable")
@pytest.mark.parametrize(
    "numbers, shown",
    [
        ({"loss_scaling": 4.0}, "velocityScaling=4"),
        ({"use_combined_accum": True, "velocity_scaling": 3.0}, "velocityScaling=3"),
        ({"use_combined_accum": True}, "velocityScaling=1 (const)"),
        ({}, "velocityScaling=1 (const)"),
    ],
    ids=str,
)
def test_velocity_scaling_is_as_constant_as_it_is(capfd, numbers, shown):
    poptorch.setLogLevel("DEBUG")
    try:
        model = WithLoss()
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, **numbers)
        poptorch.trainingModel(model, optimizer=optimizer)(TWO)
    finally:
        poptorch.setLogLevel("WARN")
    (line,) = re.findall("group 0 optimizer with SGD.*", capfd.readouterr().err)
    assert re.search(re.escape(shown) + "(,|$)", line)


def test_names_that_helpers_of_tests_reach():
    core = poptorch.poptorch_core
    seen = []

    class Looks(nn.Module):
        def forward(self, x):
            seen.append(core.isCompilingWithDispatcher())
            return 2 * x

    assert core.isCompilingWithDispatcher() is False
    poptorch.inferenceModel(Looks())(ONE)
    assert seen == [True] and core.isCompilingWithDispatcher() is False


@pytest.mark.parametrize(
    "name, error, kind",
    [
        ("Poptorch", poptorch.Error, "poptorch_cpp_error"),
        ("Popart", poptorch.Error, "popart_exception"),
        ("PopartInternal", poptorch.Error, "popart_internal_exception"),
        ("Poplibs", poptorch.Error, "poplibs_exception"),
        ("PoplarUnrecoverable", poptorch.UnrecoverableError, "poplar_unrecoverable_runtime_error"),
        ("PoplarUnknown", poptorch.Error, "poplar_unknown_runtime_error"),
        (
            "PoplarRecoverableFullReset",
            poptorch.RecoverableError,
            "poplar_recoverable_runtime_error",
        ),
        ("PoplarLinkError", poptorch.Error, "poplar_link_error"),
    ],
)
def test_errors_to_try(name, error, kind):
    core = poptorch.poptorch_core
    with pytest.raises(poptorch.Error) as caught:
        core._throwTestError(getattr(core.TestErrorType, name))
    assert type(caught.value) is error and caught.value.type == kind
    assert caught.value.message and caught.value.location
    if error is poptorch.RecoverableError:
        assert caught.value.recovery_action == "FULL_RESET"


def test_wrapping_can_be_undone_and_restored():
    from poptorch import _impl

    model = WithLoss()
    executor = poptorch.trainingModel(model)
    wrapped = type(model).__name__, type(model.layer.weight)
    _impl.unwrapIfWrapped(model)
    assert type(model) is WithLoss and type(model.layer.weight) is nn.Parameter
    assert _impl._restoreWrapperIfNecessary(model) is model
    assert (type(model).__name__, type(model.layer.weight)) == wrapped
    executor(TWO)
    other = nn.Linear(1, 1)
    assert _impl._restoreWrapperIfNecessary(other) is other and type(other) is nn.Linear


@pytest.mark.spec("6 BeginBlock")
def test_blocks_know_their_ids():
    layer = poptorch.BeginBlock(nn.Linear(1, 1), user_id="head", ipu_id=3)
    assert (layer._user_id, layer._ipu_id) == ("head", 3)
    function = poptorch.BeginBlock(lambda x: x, "tail")
    assert (function._user_id, function._ipu_id) == ("tail", None)
    poptorch.removeBlocks(layer)
    assert not hasattr(layer, "_user_id")
    poptorch.BeginBlock(layer, "other")


def blocks(*ipus):
    class Stages(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in ipus)

        def forward(self, x):
            for i, (layer, ipu) in enumerate(zip(self.layers, ipus)):
                with poptorch.Block(str(i), ipu_id=ipu):
                    x = layer(x)
            return poptorch.identity_loss(x, "mean")

    return Stages()


@pytest.mark.parametrize(
    "ipus, stages", [((0, 1), 2), ((0, 0, 1, 1, 2), 3), ((0, 1, 0), 3), ((0, 0), 1), ((), 1)]
)
def test_pipelines_need_enough_micro_batches(ipus, stages):
    options = poptorch.Options().showCompilationProgressBar(False).autoRoundNumIPUs()
    if stages > 1:
        message = message_of(
            lambda: poptorch.inferenceModel(blocks(*ipus), options)(torch.ones(2, 2))
        )
        assert "poptorch.Options().deviceIterations" in message
        assert f"at least {stages}" in message and "set to 1" in message
        message = message_of(
            lambda: poptorch.trainingModel(blocks(*ipus), options)(torch.ones(2, 2))
        )
        assert "poptorch.Options().Training.gradientAccumulation" in message
        assert f"at least {2 * stages - 1} (" in message and "set to 1" in message
    enough = options.clone().deviceIterations(stages)
    poptorch.inferenceModel(blocks(*ipus), enough)(torch.ones(2 * stages, 2))
    enough = options.clone()
    enough.Training.gradientAccumulation(2 * stages - 1)
    if ipus:
        poptorch.trainingModel(blocks(*ipus), enough)(torch.ones(2 * stages - 1, 2))
    sharded = options.clone().setExecutionStrategy(poptorch.ShardedExecution())
    poptorch.inferenceModel(blocks(*ipus), sharded)(torch.ones(2, 2))


def test_the_strategy_says_where_blocks_are():
    strategy = poptorch.PipelinedExecution(poptorch.Stage("0", "1").ipu(3))
    options = poptorch.Options().setExecutionStrategy(strategy)
    poptorch.inferenceModel(blocks(0, 1), options)(torch.ones(2, 2))
    strategy = poptorch.PipelinedExecution("0", "1")
    options = poptorch.Options().setExecutionStrategy(strategy)
    message = message_of(lambda: poptorch.inferenceModel(blocks(None, None), options)(TWO))
    assert "deviceIterations must be at least 2" in message
