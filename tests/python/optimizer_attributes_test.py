"""Which attributes of an optimiser may change after compiling, and what becomes of unknown ones."""

import copy
import pickle

import poptorch
import pytest
import torch
from recorded import Recorded, recorded_gradients, step, train

GRADS = recorded_gradients(1)[0]

EXPLICIT = {
    "SGD": {"lr": 0.1, "momentum": 0.5, "dampening": 0.25, "weight_decay": 0.1},
    "Adam": {"lr": 0.1, "betas": (0.5, 0.75), "eps": 1e-4, "weight_decay": 0.1},
    "AdamW": {"lr": 0.1, "betas": (0.5, 0.75), "eps": 1e-4, "weight_decay": 0.1},
    "RMSprop": {"lr": 0.1, "alpha": 0.5, "eps": 1e-4, "weight_decay": 0.1, "momentum": 0.5},
    "LAMB": {"lr": 0.1, "betas": (0.5, 0.75), "eps": 1e-4, "max_weight_norm": 10.0},
}


def optimizer_of(name, model, **numbers):
    if name == "SGD":
        numbers.setdefault("lr", 0.1)
    return getattr(poptorch.optim, name)(model.parameters(), **numbers)


@pytest.mark.spec("4.4 explicit attributes are variable", "4.4 variable_attrs")
@pytest.mark.parametrize("name", EXPLICIT)
def test_what_is_given_is_variable(name):
    model = Recorded()
    given = optimizer_of(name, model, **EXPLICIT[name], loss_scaling=2.0)
    left_out = optimizer_of(name, model)
    for attribute in (*EXPLICIT[name], "loss_scaling"):
        assert not given.variable_attrs.isConstant(attribute)
        assert left_out.variable_attrs.isConstant(attribute) == ((name, attribute) != ("SGD", "lr"))
    none = optimizer_of(name, model, weight_decay=None)
    assert none.variable_attrs.isConstant("weight_decay")


@pytest.mark.spec("4.4 variable_attrs")
def test_marks_are_kept_and_unknown_names_refused():
    optimizer = poptorch.optim.AdamW(Recorded().parameters(), lr=0.1)
    attributes = optimizer.variable_attrs
    attributes.markAsVariable("betas")
    attributes.markAsVariable("betas")
    attributes.markAsConstant("lr")
    assert attributes.isConstant("lr") and not attributes.isConstant("betas")
    attributes.markAsConstant("betas")
    assert attributes.isConstant("betas")
    for mark in (attributes.markAsConstant, attributes.markAsVariable):
        with pytest.raises(AssertionError, match="Unknown attribute momentum"):
            mark("momentum")
    for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert again.variable_attrs.isConstant("lr")
        again.variable_attrs.markAsVariable("lr")
    assert attributes.isConstant("lr")


@pytest.mark.spec("4.4 changed constant")
@pytest.mark.parametrize("name", EXPLICIT)
def test_constants_cannot_change_after_compiling(name):
    for attribute, value in EXPLICIT[name].items():
        if (name, attribute) == ("SGD", "lr"):
            continue
        model = Recorded()
        optimizer = optimizer_of(name, model)
        executor = train(model, optimizer, [GRADS])
        optimizer.param_groups[0][attribute] = value
        with pytest.raises(poptorch.Error, match=f"{attribute} of group 0 is constant.*markAsVar"):
            executor.setOptimizer(optimizer)
        step(executor, GRADS)  # it goes on with what it had
        executor.destroy()
        executor.setOptimizer(optimizer)
        step(executor, GRADS)


@pytest.mark.spec("4.4 explicit attributes are variable", "4.4 variable_attrs")
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("name", EXPLICIT)
def test_variables_change_without_compiling(name, marked):
    model = Recorded()
    optimizer = optimizer_of(name, model, **({} if marked else EXPLICIT[name]))
    if marked:
        for attribute in EXPLICIT[name]:
            optimizer.variable_attrs.markAsVariable(attribute)
    executor = train(model, optimizer, [GRADS])
    compiled = executor._core
    halved = {
        attribute: tuple(v / 2 for v in value) if attribute == "betas" else value / 2
        for attribute, value in EXPLICIT[name].items()
    }
    optimizer.param_groups[0].update(halved)
    optimizer.loss_scaling = 1.0
    executor.setOptimizer(optimizer)
    step(executor, GRADS)
    assert executor._core is compiled
    other = optimizer_of(name, model, **EXPLICIT[name])
    executor.setOptimizer(other)
    step(executor, GRADS)


@pytest.mark.spec("4.4 torch optimizers")
@pytest.mark.parametrize(
    "name, numbers, changes, refused",
    [
        ("SGD", {"lr": 0.1}, {"lr": 0.2}, None),
        ("SGD", {"lr": 0.1}, {"momentum": 0.9}, "momentum"),
        ("SGD", {"lr": 0.1}, {"weight_decay": 0.1}, "weight_decay"),
        ("SGD", {"lr": 0.1, "momentum": 0.9}, {"momentum": 0.0}, None),
        ("SGD", {"lr": 0.1, "momentum": 0.9}, {"dampening": 0.5}, "dampening"),
        ("Adam", {}, {"lr": 0.2}, None),
        ("Adam", {}, {"betas": (0.8, 0.9)}, "betas"),
        ("Adam", {"betas": (0.8, 0.9)}, {"betas": (0.7, 0.9)}, "betas"),
        ("Adam", {}, {"eps": 1e-3}, "eps"),
        ("Adam", {"eps": 1e-3}, {"eps": 1e-4}, None),
        ("AdamW", {}, {"weight_decay": 0.1}, "weight_decay"),
        ("AdamW", {"weight_decay": 0.0}, {"weight_decay": 0.1}, None),
        ("RMSprop", {"alpha": 0.9}, {"alpha": 0.8}, "alpha"),
        ("RMSprop", {"momentum": 0.9}, {"momentum": 0.8}, None),
    ],
    ids=str,
)
def test_pytorchs_defaults_are_constant(name, numbers, changes, refused):
    model = Recorded()
    optimizer = getattr(torch.optim, name)(model.parameters(), **numbers)
    executor = train(model, optimizer, [GRADS])
    optimizer.param_groups[0].update(changes)
    if refused:
        with pytest.raises(poptorch.Error, match=f"{refused} of group 0 is constant"):
            executor.setOptimizer(optimizer)
    else:
        executor.setOptimizer(optimizer)
    step(executor, GRADS)


@pytest.mark.spec("4.4 changed constant")
def test_loss_scaling_is_an_attribute_too():
    model = Recorded()
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.1)
    executor = train(model, optimizer, [GRADS])
    optimizer.loss_scaling = 8.0
    with pytest.raises(poptorch.Error, match="loss_scaling of group 0 is constant"):
        executor.setOptimizer(optimizer)
    model = Recorded()
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.1, loss_scaling=2.0)
    executor = train(model, optimizer, [GRADS])
    optimizer.loss_scaling = 8.0
    executor.setOptimizer(optimizer)
    assert optimizer.state_dict()["ipu_param"]["lossScaling_FLOAT"] == 8.0


@pytest.mark.spec("4.4 new attributes")
def test_new_attributes_warn_once(capfd):
    model = Recorded()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, loss_scaling=2.0)
    optimizer.note = "from the beginning"
    optimizer.param_groups[0]["initial_lr"] = 0.1
    executor = train(model, optimizer, [GRADS])
    assert "unexpected" not in capfd.readouterr().err

    optimizer.lr = 0.5
    optimizer.param_groups[0]["learning_rate"] = 0.5
    executor.setOptimizer(optimizer)
    text = capfd.readouterr().err
    assert "Ignoring unexpected optimizer attribute 'lr'" in text
    assert "Ignoring unexpected group 0 attribute 'learning_rate'" in text

    optimizer.loss_scaling = 3.0
    executor.setOptimizer(optimizer)
    step(executor, GRADS)
    assert "unexpected" not in capfd.readouterr().err


@pytest.mark.spec("4.4 new attributes")
def test_schedulers_made_later_warn_once_and_work(capfd):
    model = Recorded()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    executor = train(model, optimizer, [GRADS])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(3):
        schedule.step()
        executor.setOptimizer(optimizer)
    text = capfd.readouterr().err
    assert text.count("unexpected group 0 attribute 'initial_lr'") == 1
    lr = optimizer.state_dict()["ipu_param"]["scaledLearningRate0___specific___a"]
    assert lr.item() == pytest.approx(0.0125)


@pytest.mark.spec("4.4 new attributes", "2.2 relaxOptimizerAttributesChecks")
def test_relaxed_checks_do_not_warn(capfd):
    model = Recorded()
    options = poptorch.Options()
    options.relaxOptimizerAttributesChecks()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    executor = train(model, optimizer, [GRADS], options)
    optimizer.note = 1
    optimizer.param_groups[0]["initial_lr"] = 0.1
    executor.setOptimizer(optimizer)
    assert "unexpected" not in capfd.readouterr().err


@pytest.mark.spec("2.3 setMeanAccumulationAndReplicationReductionStrategy", "4.2 accum types")
def test_half_accumulators_take_running_means():
    strategies = poptorch.MeanReductionStrategy

    def strategy_of(executor):
        return executor.options.Training.meanAccumulationAndReplicationReductionStrategy

    model = Recorded()
    halves = poptorch.optim.Adam(model.parameters(), lr=0.1, accum_type=torch.float16)
    executor = train(model, halves, [GRADS])
    assert strategy_of(executor) == strategies.Running
    halves.param_groups[0]["lr"] = 0.2
    executor.setOptimizer(halves)

    model = Recorded()
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    executor = train(model, optimizer, [GRADS])
    assert strategy_of(executor) == strategies.Post
    optimizer.accum_type = torch.float16
    with pytest.raises(ValueError, match="is already compiled"):
        executor.setOptimizer(optimizer)

    model = Recorded()
    combined = poptorch.optim.SGD(
        model.parameters(), lr=0.1, use_combined_accum=True, accum_type=torch.float16
    )
    assert strategy_of(train(model, combined, [GRADS])) == strategies.Post
