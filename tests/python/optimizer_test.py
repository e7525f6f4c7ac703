"""Optimisers: steps on recorded gradients follow PyTorch; arguments, groups, refusals."""

import copy
import inspect
import logging
import math

import numpy as np
import poptorch
import pytest
import torch
from models import MLP, batch
from recorded import (
    STEPS,
    Recorded,
    assert_same_weights,
    recorded_gradients,
    train,
    train_eagerly,
)

VARIANTS = [
    ("SGD", {"lr": 0.01}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.1}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.1, "betas": (0.8, 0.9999), "eps": 1e-4}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.5}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.001, "alpha": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.9}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "weight_decay": 0.01}),
]


@pytest.mark.spec("4.1 accepted types", "4.3 SGD separate", "4.3 Adam", "4.3 AdamW", "4.3 RMSprop")
@pytest.mark.parametrize("module", [torch.optim, poptorch.optim], ids=["torch", "poptorch"])
@pytest.mark.parametrize("name, numbers", VARIANTS, ids=lambda v: str(v).replace(" ", ""))
def test_twenty_steps_follow_pytorch(name, numbers, module):
    model, gradients = Recorded(), recorded_gradients()
    reference = copy.deepcopy(model)
    theirs = getattr(torch.optim, name)(reference.parameters(), **numbers, foreach=False)
    train_eagerly(reference, theirs, gradients)
    train(model, getattr(module, name)(model.parameters(), **numbers), gradients)
    assert_same_weights(model, reference)


@pytest.mark.spec("4.3 LAMB", "4.2 LAMB step")
@pytest.mark.parametrize(
    "numbers",
    [{}, {"lr": 0.05, "weight_decay": 0.1}, {"bias_correction": False}, {"max_weight_norm": 2.0}],
    ids=str,
)
def test_lamb_follows_its_own_step(numbers):
    model, gradients = Recorded(), recorded_gradients()
    reference = copy.deepcopy(model)
    train_eagerly(reference, poptorch.optim.LAMB(reference.parameters(), **numbers), gradients)
    train(model, poptorch.optim.LAMB(model.parameters(), **numbers), gradients)
    assert_same_weights(model, reference)


@pytest.mark.spec("4.3 LAMB", "4.2 LAMB step")
def test_lambs_own_step_is_the_formula():
    lr, b1, b2, eps, decay = 0.05, 0.9, 0.999, 1e-8, 0.1
    model, gradients = Recorded(), recorded_gradients()
    expected = []
    for i, parameter in enumerate(model.parameters()):
        w = parameter.detach().double().numpy().copy()
        m, v = np.zeros_like(w), np.zeros_like(w)
        for t, grads in enumerate(gradients, 1):
            g = grads[i].double().numpy()
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            way = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * w
            w = w - lr * np.sqrt((w * w).sum()) / np.sqrt((way * way).sum()) * way
        expected.append(w)
    optimizer = poptorch.optim.LAMB(model.parameters(), lr=lr, weight_decay=decay)
    train_eagerly(model, optimizer, gradients)
    for parameter, w in zip(model.parameters(), expected):
        np.testing.assert_allclose(parameter.detach().numpy(), w, rtol=1e-4, atol=1e-5)


@pytest.mark.spec("4.3 RMSprop tf variant")
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_tensorflow_variant_of_rmsprop(momentum, centered):
    lr, alpha, eps, decay = 0.01, 0.9, 1e-3, 0.1
    model, gradients = Recorded(), recorded_gradients()
    optimizer = poptorch.optim.RMSprop(
        model.parameters(),
        lr=lr,
        alpha=alpha,
        eps=eps,
        weight_decay=decay,
        momentum=momentum,
        centered=centered,
        use_tf_variant=True,
    )
    reference = copy.deepcopy(model)
    for i, parameter in enumerate(reference.parameters()):
        w = parameter.detach().double().numpy().copy()
        v, mean, buffer = np.ones_like(w), np.zeros_like(w), np.zeros_like(w)
        for grads in gradients:
            g = grads[i].double().numpy() + decay * w
            v = alpha * v + (1 - alpha) * g * g
            mean = alpha * mean + (1 - alpha) * g
            spread = v - mean * mean if centered else v
            buffer = momentum * buffer + lr * g / np.sqrt(spread + eps)
            w = w - buffer
        parameter.data = torch.from_numpy(np.asarray(w)).float()
    train(model, optimizer, gradients)
    assert_same_weights(model, reference)


@pytest.mark.spec("4.3 AdamW bias_correction")
def test_adamw_without_bias_correction():
    lr, b1, b2, eps, decay = 0.01, 0.9, 0.999, 1e-8, 0.1
    model, gradients = Recorded(), recorded_gradients()
    reference = copy.deepcopy(model)
    optimizer = poptorch.optim.AdamW(
        model.parameters(), lr=lr, weight_decay=decay, bias_correction=False
    )
    for i, parameter in enumerate(reference.parameters()):
        w = parameter.detach().double()
        m, v = torch.zeros_like(w), torch.zeros_like(w)
        for grads in gradients:
            g = grads[i].double()
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            w = w * (1 - lr * decay) - lr * m / (v.sqrt() + eps)
        parameter.data = w.float()
    train(model, optimizer, gradients)
    assert_same_weights(model, reference)


@pytest.mark.spec("4.2 group attributes")
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "LAMB"])
def test_groups_have_their_own_numbers_and_change_them_without_compiling(name):
    def groups(m):
        numbers = {"betas": (0.8, 0.99)} if "A" in name else {"momentum": 0.5}
        return [
            {"params": [m.a], "lr": 0.05, "name": "first"},
            {"params": [m.c], "weight_decay": 0.2, **numbers},
        ]  # b is in no group

    def schedule(step, optimizer):
        optimizer.param_groups[0]["lr"] = np.float32(0.05) if step < 8 else np.float64(0.01)
        optimizer.param_groups[1]["weight_decay"] = 0.2 if step < 12 else 0.0
        optimizer.param_groups[0]["initial_lr"] = 0.05  # as schedulers do

    model, gradients = Recorded(), recorded_gradients()
    reference = copy.deepcopy(model)
    cls = getattr(poptorch.optim, name)
    numbers = {"lr": 0.02, **({"momentum": 0.9} if name in ("SGD", "RMSprop") else {})}
    kept = {} if name == "LAMB" else {"foreach": False}
    theirs = (cls if name == "LAMB" else getattr(torch.optim, name))(
        groups(reference), **numbers, **kept
    )
    train_eagerly(reference, theirs, gradients, each_step=schedule)
    ours = cls(groups(model), **numbers)
    ours.variable_attrs.markAsVariable("weight_decay")
    executor = train(model, ours, gradients, each_step=schedule)
    assert_same_weights(model, reference)
    assert torch.equal(model.b, Recorded().b)
    assert executor.isCompiled()


@pytest.mark.spec("4.2 max_grad_norm")
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_gradients_are_clipped_together(name, max_norm):
    model, gradients = Recorded(), recorded_gradients()
    assert 50 < torch.cat([g.flatten() for g in gradients[0]]).norm() < 150
    reference = copy.deepcopy(model)
    theirs = getattr(torch.optim, name)(reference.parameters(), lr=0.01, foreach=False)
    train_eagerly(reference, theirs, gradients, max_grad_norm=max_norm)
    ours = getattr(poptorch.optim, name)(model.parameters(), lr=0.01, max_grad_norm=max_norm)
    train(model, ours, gradients)
    assert_same_weights(model, reference)


@pytest.mark.spec("4.3 SGD separate", "4.3 Adam", "4.2 max_grad_norm", "16 trap 3")
@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
@pytest.mark.parametrize("max_norm", [None, 5.0])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_micro_batches_share_an_update(name, max_norm, reduction):
    model, gradients = Recorded(), recorded_gradients(2 * STEPS)
    reference = copy.deepcopy(model)
    pairs = [list(zip(*gradients[i : i + 2])) for i in range(0, 2 * STEPS, 2)]
    theirs = getattr(torch.optim, name)(reference.parameters(), lr=0.01, foreach=False)
    share = 0.5 if reduction == "Mean" else 1.0
    whole = [[(first + second) * share for first, second in pair] for pair in pairs]
    train_eagerly(reference, theirs, whole, max_grad_norm=max_norm)
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    options.Training.accumulationAndReplicationReductionType(
        getattr(poptorch.ReductionType, reduction)
    )
    ours = getattr(poptorch.optim, name)(
        model.parameters(), lr=0.01, max_grad_norm=max_norm, loss_scaling=64.0
    )
    executor = poptorch.trainingModel(model, options, ours)
    for pair in pairs:
        executor(*[torch.stack(grads) for grads in pair])
    assert_same_weights(model, reference)


def test_frozen_and_unused_weights_stay():
    model, gradients = Recorded(), recorded_gradients(3)
    model.a.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    train(model, torch.optim.Adam(model.parameters(), weight_decay=0.5), gradients)
    assert torch.equal(model.a, before["a"])
    assert not torch.equal(model.b, before["b"])


@pytest.mark.spec("1.4 detachFromDevice")
def test_state_survives_detaching():
    model, gradients = Recorded(), recorded_gradients(4)
    reference = copy.deepcopy(model)
    train_eagerly(reference, torch.optim.Adam(reference.parameters(), foreach=False), gradients)
    executor = poptorch.trainingModel(model, None, torch.optim.Adam(model.parameters()))
    for grads in gradients:
        executor(*[g.unsqueeze(0) for g in grads])
        executor.detachFromDevice()
    assert_same_weights(model, reference)


def test_a_model_learns_with_adam():
    model = MLP().train()
    executor = poptorch.trainingModel(model, None, torch.optim.Adam(model.parameters(), lr=0.01))
    losses = [executor(*batch("MLP"))[1].item() for _ in range(30)]
    assert losses[-1] < 0.3 * losses[0]


def test_momentum_can_be_switched_off_and_on():
    def schedule(step, optimizer):
        optimizer.param_groups[0]["momentum"] = 0.0 if 5 <= step < 9 else 0.9

    for name in ("SGD", "RMSprop"):
        model, gradients = Recorded(), recorded_gradients()
        reference = copy.deepcopy(model)
        numbers = {"lr": 0.01, "momentum": 0.9}
        theirs = getattr(torch.optim, name)(reference.parameters(), **numbers, foreach=False)
        train_eagerly(reference, theirs, gradients, each_step=schedule)
        train(
            model,
            getattr(torch.optim, name)(model.parameters(), **numbers),
            gradients,
            each_step=schedule,
        )
        assert_same_weights(model, reference)


@pytest.mark.spec("1.4 setOptimizer")
@pytest.mark.parametrize(
    "first, second, message",
    [
        (lambda p: torch.optim.SGD(p, 0.1), lambda p: torch.optim.Adam(p), "from SGD to Adam"),
        (
            lambda p: torch.optim.SGD(p, 0.1),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
            "momentum of group 0 is constant: it was 0",
        ),
        (
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
            "'nesterov' of group 0",
        ),
        (
            lambda p: torch.optim.RMSprop(p),
            lambda p: torch.optim.RMSprop(p, centered=True),
            "'centered' of group 0",
        ),
        (
            lambda p: poptorch.optim.LAMB(p),
            lambda p: poptorch.optim.LAMB(p, bias_correction=False),
            "'bias_correction' of group 0",
        ),
        (
            lambda p: poptorch.optim.Adam(p),
            lambda p: poptorch.optim.Adam(p, max_grad_norm=1.0),
            "max_grad_norm of group 0 is constant",
        ),
        (
            lambda p: torch.optim.Adam(p),
            lambda p: torch.optim.Adam([{"params": p[:1]}, {"params": p[1:]}]),
            "number of parameter groups cannot change from 1 to 2",
        ),
        (lambda p: torch.optim.Adam(p), lambda p: torch.optim.Adam(p[:2]), "parameters of group 0"),
    ],
    ids=range(8),
)
def test_what_needs_another_program_is_refused_by_name(first, second, message):
    model, gradients = Recorded(), recorded_gradients(1)
    executor = train(model, first(list(model.parameters())), gradients)
    with pytest.raises(poptorch.Error, match=message):
        executor.setOptimizer(second(list(model.parameters())))
    executor.destroy()
    executor.setOptimizer(second(list(model.parameters())))
    executor(*[g.unsqueeze(0) for g in gradients[0]])


@pytest.mark.spec(
    "4.1 unsupported type", "4.1 amsgrad", "4.2 max_grad_norm", "4.2 group attributes"
)
def test_optimizers_that_cannot_be_used():
    def wrap(optimizer):
        poptorch.trainingModel(model, None, optimizer)

    model = Recorded()
    for cls in (torch.optim.Adam, torch.optim.AdamW, poptorch.optim.Adam, poptorch.optim.AdamW):
        optimizer = cls(model.parameters(), amsgrad=True)
        with pytest.raises(ValueError, match="amsgrad"):
            wrap(optimizer)
    with pytest.raises(AssertionError, match="Unsupported optimizer type Adagrad"):
        wrap(torch.optim.Adagrad(model.parameters()))
    with pytest.raises(AssertionError, match="centered must be the same"):
        groups = [{"params": [model.a]}, {"params": [model.b], "centered": True}]
        wrap(torch.optim.RMSprop(groups))
    with pytest.raises(ValueError, match="max_grad_norm"):
        wrap(poptorch.optim.SGD(model.parameters(), 0.1, max_grad_norm=math.nan))
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.param_groups[0]["eps"] = -1
    with pytest.raises(ValueError, match="Adam's eps must not be negative"):
        wrap(optimizer)
    optimizer.param_groups[0]["eps"] = None
    with pytest.raises(ValueError, match="Adam's eps is missing"):
        wrap(optimizer)


@pytest.mark.spec("4.1 subclasses", "4.2 group attributes")
def test_subclasses_and_group_entries_that_are_ignored_warn(caplog, capfd):
    class Mine(torch.optim.Adam):
        pass

    with caplog.at_level(logging.WARNING, "poptorch::python"):
        for _ in range(2):
            poptorch.trainingModel(MLP(), None, Mine(MLP().parameters()))
        assert caplog.text.count("Mine is a subclass") == 2
        caplog.clear()
        poptorch.optim.SGD(MLP().parameters(), 0.1, velocity_scaling=2.0)
        assert "velocity_scaling" in caplog.text
        caplog.clear()
        capfd.readouterr()
        poptorch.trainingModel(MLP(), None, poptorch.optim.AdamW(MLP().parameters()))
        groups = [{"params": MLP().parameters(), "name": "all"}]
        poptorch.trainingModel(MLP(), None, torch.optim.AdamW(groups))
        assert not caplog.text and not capfd.readouterr().err
    groups = [{"params": MLP().parameters(), "max_grad_norm": 1.0}]
    poptorch.trainingModel(MLP(), None, poptorch.optim.AdamW(groups))
    assert "unexpected group 0 attribute 'max_grad_norm'" in capfd.readouterr().err


ORDER = {
    "SGD": "params lr momentum dampening weight_decay nesterov maximize foreach differentiable "
    "loss_scaling velocity_scaling use_combined_accum accum_type velocity_accum_type max_grad_norm",
    "Adam": "params lr betas eps weight_decay amsgrad foreach maximize capturable differentiable "
    "fused loss_scaling accum_type first_order_momentum_accum_type "
    "second_order_momentum_accum_type max_grad_norm",
    "AdamW": "params lr betas eps weight_decay amsgrad maximize foreach capturable differentiable "
    "fused loss_scaling bias_correction accum_type first_order_momentum_accum_type "
    "second_order_momentum_accum_type max_grad_norm",
    "RMSprop": "params lr alpha eps weight_decay momentum centered foreach maximize differentiable "
    "loss_scaling accum_type first_order_momentum_accum_type second_order_momentum_accum_type "
    "use_tf_variant",
    "LAMB": "params lr betas eps weight_decay bias_correction loss_scaling max_weight_norm "
    "accum_type first_order_momentum_accum_type second_order_momentum_accum_type",
}


@pytest.mark.spec(
    "4.2 positional order",
    "4.2 accum types",
    "4.2 SGD",
    "4.2 Adam",
    "4.2 AdamW",
    "4.2 RMSprop",
    "4.2 LAMB",
)
@pytest.mark.parametrize("name", ORDER)
def test_arguments_have_the_order_that_programs_use(name):
    cls = getattr(poptorch.optim, name)
    names = list(inspect.signature(cls).parameters)
    assert names == ORDER[name].split()
    params = list(MLP().parameters())
    required = {"params": params, "lr": 0.1}
    default = cls(params, 0.1)
    explicit = cls(*[required.get(n) for n in names])
    assert default.param_groups[0].keys() == explicit.param_groups[0].keys()
    assert default.param_groups[0]["weight_decay"] == (1e-2 if name in ("AdamW", "LAMB") else 0)
    for argument in [n for n in names if n.endswith("accum_type")]:
        assert getattr(cls(params, 0.1, **{argument: torch.float16}), argument) == torch.float16
        with pytest.raises(AssertionError, match=argument):
            cls(params, 0.1, **{argument: torch.int32})


@pytest.mark.spec("4.3 loss scaling")
def test_loss_scaling_does_not_change_results():
    results = []
    for scale in (None, 1024.0, 3.0):
        model = Recorded()
        train(
            model,
            poptorch.optim.Adam(model.parameters(), loss_scaling=scale),
            recorded_gradients(3),
        )
        results.append(model.a.detach().clone())
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.spec("4.3 AdamW bias_correction")
def test_adamw_without_bias_correction_is_the_same_on_the_host():
    model, gradients = Recorded(), recorded_gradients()
    reference = copy.deepcopy(model)
    train_eagerly(
        reference, poptorch.optim.AdamW(reference.parameters(), bias_correction=False), gradients
    )
    train(model, poptorch.optim.AdamW(model.parameters(), bias_correction=False), gradients)
    assert_same_weights(model, reference)


@pytest.mark.spec("4.3 SGD combined", "4.3 loss scaling")
@pytest.mark.parametrize("accumulation", [1, 4])
def test_combined_velocities_and_scales_do_not_change_results(accumulation):
    numbers = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}
    extras = {"use_combined_accum": True, "velocity_scaling": 64.0, "loss_scaling": 128.0}
    model, gradients = Recorded(), recorded_gradients(5 * accumulation)
    reference = copy.deepcopy(model)
    updates = [gradients[i : i + accumulation] for i in range(0, len(gradients), accumulation)]
    means = [[torch.stack(grads).mean(0) for grads in zip(*update)] for update in updates]
    theirs = torch.optim.SGD(reference.parameters(), **numbers, foreach=False)
    train_eagerly(reference, theirs, means)
    options = poptorch.Options()
    options.Training.gradientAccumulation(accumulation)
    ours = poptorch.optim.SGD(model.parameters(), **numbers, **extras)
    executor = poptorch.trainingModel(model, options, ours)
    for update in updates:
        executor(*[torch.stack(grads) for grads in zip(*update)])
    assert_same_weights(model, reference)


@pytest.mark.spec("4.3 one update per device iteration")
@pytest.mark.parametrize("name", ["SGD", "Adam", "LAMB"])
def test_each_device_iteration_is_an_update(name):
    results = []
    for iterations in (1, 4):
        model, gradients = Recorded(), recorded_gradients(8)
        options = poptorch.Options()
        options.deviceIterations(iterations)
        numbers = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(poptorch.optim, name)(model.parameters(), lr=0.01, **numbers)
        executor = poptorch.trainingModel(model, options, optimizer)
        for i in range(0, 8, iterations):
            executor(*[torch.stack(grads) for grads in zip(*gradients[i : i + iterations])])
        results.append(model.state_dict())
    assert all(torch.equal(results[0][n], results[1][n]) for n in results[0])


@pytest.mark.spec("4.2 SGD", "4.2 Adam")
def test_numbers_may_be_of_numpy_or_tensors():
    weights = {}
    for kind, convert in {"float": float, "numpy": np.float32, "tensor": torch.tensor}.items():
        model = Recorded()
        ours = poptorch.optim.SGD(
            model.parameters(), lr=convert(0.5), momentum=convert(0.25), loss_scaling=convert(2.0)
        )
        executor = train(model, ours, recorded_gradients(2))
        ours.param_groups[0]["lr"] = convert(0.125)
        executor.setOptimizer(ours)
        executor(*[g.unsqueeze(0) for g in recorded_gradients(3)[2]])
        weights[kind] = model.a.detach().clone()
    assert torch.equal(weights["float"], weights["numpy"])
    assert torch.equal(weights["float"], weights["tensor"])
    model = Recorded()
    betas = np.array([0.5, 0.75])
    train(model, poptorch.optim.Adam(model.parameters(), betas=betas), recorded_gradients(1))


@pytest.mark.spec("4.1 ignored arguments")
def test_arguments_of_the_host_step_are_ignored():
    model, reference = Recorded(), Recorded()
    numbers = {"foreach": True, "fused": True, "capturable": False, "differentiable": False}
    train(model, poptorch.optim.Adam(model.parameters(), **numbers), recorded_gradients(3))
    train(reference, poptorch.optim.Adam(reference.parameters()), recorded_gradients(3))
    assert torch.equal(model.a, reference.a)


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_maximize_climbs(kind, clipped):
    model, reference = Recorded(), Recorded()
    numbers = {"lr": 0.01, "weight_decay": 0.1, "maximize": True}
    norm = 0.5 if clipped and kind != "RMSprop" else None
    theirs = getattr(torch.optim, kind)(reference.parameters(), **numbers)
    train_eagerly(reference, theirs, recorded_gradients(4), max_grad_norm=norm)
    ours = getattr(poptorch.optim, kind)(
        model.parameters(), **numbers, **({"max_grad_norm": norm} if norm else {})
    )
    executor = train(model, ours, recorded_gradients(4))
    assert_same_weights(model, reference)
    ours.param_groups[0]["maximize"] = False
    with pytest.raises(poptorch.Error, match="'maximize' of group 0 cannot change"):
        executor.setOptimizer(ours)


def test_learning_rate_is_required_for_sgd():
    with pytest.raises(TypeError, match="lr"):
        poptorch.optim.SGD(MLP().parameters())
