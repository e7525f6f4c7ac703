"""Optimisers whose weights, accumulators and moments are halves, against float64, step by step.

An update computes in float32 and rounds each of its results once, to the type of what it replaces.
So each step is compared with the exact update of what the program had before: the distance is at
most half of that between two neighbours of the type.
"""

import itertools
import math

import poptorch
import pytest
import torch
from torch import nn

HALF, FLOAT = torch.float16, torch.float32
STEPS = 4


class Recorded(nn.Module):
    """The gradient of each weight is the input of its name."""

    def __init__(self, dtype, loss_dtype=FLOAT):
        super().__init__()
        torch.manual_seed(3)
        self.a = nn.Parameter(torch.randn(8, 5).to(dtype))
        self.b = nn.Parameter(torch.randn(17).to(dtype))
        self.loss_dtype = loss_dtype

    def forward(self, a, b):
        # Products in half precision: the gradients of weights in float32 come through it.
        a = (self.a.half() * a[0]).to(self.loss_dtype)
        b = (self.b.half() * b[0]).to(self.loss_dtype)
        return poptorch.identity_loss(a.sum() + b.sum(), reduction="none")


def gradients(count):
    generator = torch.Generator().manual_seed(11)
    shapes = [p.shape for p in Recorded(FLOAT).parameters()]
    return [[torch.randn(s, generator=generator).half() for s in shapes] for _ in range(count)]


def quiet_options(accumulation=1, iterations=1):
    options = poptorch.Options().showCompilationProgressBar(False)
    options.deviceIterations(iterations)
    options.Training.gradientAccumulation(accumulation)
    return options


def call(executor, micro_batches):
    return executor(*[torch.stack(grads) for grads in zip(*micro_batches)])


# Each is (weight, gradient, what was remembered, number of the step) -> (weight, remembered).
def exact_sgd(w, g, s, t):
    lr, momentum, decay = 0.01, 0.9, 0.1
    d = g + decay * w
    v = d if t == 1 else momentum * s["Accl"] + d
    return w - lr * v, {"Accl": v}


def exact_adam(decoupled, lamb=False):
    def update(w, g, s, t):
        lr, b1, b2, eps, decay = 0.01, 0.9, 0.99, 1e-3, 0.1
        if not decoupled:
            g = g + decay * w
        m = b1 * s["Accl1"] + (1 - b1) * g
        v = b2 * s["Accl2"] + (1 - b2) * g * g
        way = (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + eps)
        if decoupled:
            way = way + decay * w
        if lamb:
            way = way * (w.norm() / way.norm())
        return w - lr * way, {"Accl1": m, "Accl2": v}

    return update


def exact_rmsprop(w, g, s, t):
    lr, alpha, eps, decay, momentum = 0.01, 0.9, 1e-3, 0.1, 0.9
    g = g + decay * w
    square = alpha * s["Accl1"] + (1 - alpha) * g * g
    mean = alpha * s["Accl2"] + (1 - alpha) * g
    buffer = momentum * s["Accl3"] + g / ((square - mean * mean).sqrt() + eps)
    return w - lr * buffer, {"Accl1": square, "Accl2": mean, "Accl3": buffer}


MOMENTS = ("first_order_momentum_accum_type", "second_order_momentum_accum_type")
ADAM = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.1}
KINDS = {
    "SGD": (
        exact_sgd,
        {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1},
        {"Accl": "velocity_accum_type"},
    ),
    "Adam": (exact_adam(False), ADAM, dict(zip(("Accl1", "Accl2"), MOMENTS))),
    "AdamW": (exact_adam(True), ADAM, dict(zip(("Accl1", "Accl2"), MOMENTS))),
    "LAMB": (exact_adam(True, lamb=True), ADAM, dict(zip(("Accl1", "Accl2"), MOMENTS))),
    "RMSprop": (
        exact_rmsprop,
        {
            **{"lr": 0.01, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1},
            **{"momentum": 0.9, "centered": True},
        },
        {"Accl1": MOMENTS[0], "Accl2": MOMENTS[1], "Accl3": MOMENTS[1]},
    ),
}


def half_a_step(exact, dtype):
    """How far the nearest number of a type may be away."""
    digits, least = (11, 2.0**-24) if dtype == HALF else (24, 2.0**-149)
    exponent = torch.floor(torch.log2(exact.abs().clamp(min=1e-300)))
    return (2.0 ** (exponent + 1 - digits)).clamp(min=least) / 2


def assert_rounded(ours, exact, dtype, name):
    assert ours.dtype == dtype, name
    # float32's own roundings inside the operator, which may cancel.
    inside = 2e-6 * exact.abs().max()
    distance = (ours.double() - exact).abs()
    assert (distance <= half_a_step(exact, dtype) + inside).all(), (name, distance.max())


def whole_gradient(micro_batches, weight_dtype, accum_type, scale, running):
    """Of one weight, as it is stored on the way: float32 between roundings."""

    def stored(gradient):
        return (gradient.float() * scale).half().to(weight_dtype)

    if len(micro_batches) == 1:
        return stored(micro_batches[0]).double() / scale
    total = torch.zeros(micro_batches[0].shape, dtype=accum_type)
    for k, gradient in enumerate(micro_batches):
        if running:
            count = torch.tensor(k + 1.0)
            kept, joining = torch.tensor(float(k)) / count, 1 / count
        else:
            kept, joining = 1.0, 1.0
        total = (total.float() * kept + stored(gradient).float() * joining).to(accum_type)
    share = 1.0 if running else 1.0 / len(micro_batches)
    return total.double() * share / scale


def combinations(names):
    for types in itertools.product((FLOAT, HALF), repeat=len(names)):
        yield dict(zip(names, types))


@pytest.mark.spec("4.2 accum types", "11 master weights", "4.5 names")
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("weights", [FLOAT, HALF], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_every_type_of_accumulators_and_moments(name, weights, accumulation):
    exact, numbers, states = KINDS[name]
    scale = 64.0
    for types in combinations(sorted({"accum_type", *states.values()})):
        model = Recorded(weights)
        optimizer = getattr(poptorch.optim, name)(
            model.parameters(), loss_scaling=scale, **numbers, **types
        )
        executor = poptorch.trainingModel(model, quiet_options(accumulation), optimizer)
        micro_batches = gradients(STEPS * accumulation)
        running = types["accum_type"] == HALF
        before = {n: p.detach().double() for n, p in model.named_parameters()}
        remembered = {
            f"{s}___{n}": torch.zeros_like(p, dtype=torch.double)
            for s in states
            for n, p in model.named_parameters()
        }
        for t in range(1, STEPS + 1):
            update = micro_batches[(t - 1) * accumulation : t * accumulation]
            call(executor, update)
            ipu_state = optimizer.state_dict()["ipu_state"]
            for i, (n, p) in enumerate(model.named_parameters()):
                g = whole_gradient(
                    [grads[i] for grads in update], weights, types["accum_type"], scale, running
                )
                kept = {s: remembered[f"{s}___{n}"] for s in states}
                w, new = exact(before[n], g, kept, t)
                assert_rounded(p.detach(), w, weights, f"{n} {types}")
                for s, value in new.items():
                    full = f"{s}___{n}"
                    assert_rounded(ipu_state[full], value, types[states[s]], f"{full} {types}")
                    remembered[full] = ipu_state[full].double()
                before[n] = p.detach().double()
                assert ipu_state[f"Step___{n}"] == t
                if accumulation > 1:
                    assert ipu_state[f"Accum___{n}"].dtype == types["accum_type"]


@pytest.mark.spec("4.3 SGD combined", "4.2 accum types")
@pytest.mark.parametrize("weights", [FLOAT, HALF], ids=str)
def test_combined_velocities_have_their_weights_type(weights):
    model = Recorded(weights)
    optimizer = poptorch.optim.SGD(
        model.parameters(),
        lr=0.1,
        momentum=0.5,
        use_combined_accum=True,
        accum_type=HALF,
        velocity_accum_type=HALF,
    )
    executor = poptorch.trainingModel(model, quiet_options(2), optimizer)
    call(executor, gradients(2))
    state = optimizer.state_dict()["ipu_state"]
    assert state["Accl___a"].dtype == weights and state["Accum___a"].dtype == weights


@pytest.mark.spec("4.5 load_state_dict", "4.2 accum types")
@pytest.mark.parametrize("name", KINDS)
def test_training_goes_on_from_states_in_half(name, tmp_path):
    _, numbers, states = KINDS[name]
    types = {t: HALF for t in {"accum_type", *states.values()}}
    micro_batches = gradients(4)

    def made():
        model = Recorded(HALF)
        return model, getattr(poptorch.optim, name)(model.parameters(), **numbers, **types)

    model, optimizer = made()
    executor = poptorch.trainingModel(model, quiet_options(), optimizer)
    for grads in micro_batches[:2]:
        call(executor, [grads])
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c")
    for grads in micro_batches[2:]:
        call(executor, [grads])

    resumed, again = made()
    checkpoint = torch.load(tmp_path / "c")
    assert checkpoint["optimizer"]["ipu_state"][f"{next(iter(states))}___a"].dtype == HALF
    resumed.load_state_dict(checkpoint["model"])
    again.load_state_dict(checkpoint["optimizer"])
    executor = poptorch.trainingModel(resumed, quiet_options(), again)
    for grads in micro_batches[2:]:
        call(executor, [grads])
    for ours, theirs in zip(model.parameters(), resumed.parameters()):
        assert torch.equal(ours, theirs)


@pytest.mark.spec("4.4 changed constant")
def test_types_cannot_change_once_compiled():
    model = Recorded(HALF)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, quiet_options(), optimizer)
    call(executor, gradients(1))
    optimizer.first_order_momentum_accum_type = HALF
    with pytest.raises(poptorch.Error, match="'first_order_momentum_accum_type' cannot change"):
        executor.setOptimizer(optimizer)


def trained(scale, grads, name="SGD", weights=FLOAT, loss_dtype=FLOAT, torch_optimizer=False):
    model = Recorded(weights, loss_dtype)
    numbers = {"lr": 1.0} if name == "SGD" else {"lr": 0.01}
    if torch_optimizer:
        optimizer = getattr(torch.optim, name)(model.parameters(), **numbers)
        optimizer.loss_scaling = scale
    else:
        extra = {} if scale is None else {"loss_scaling": scale}
        optimizer = getattr(poptorch.optim, name)(model.parameters(), **numbers, **extra)
    executor = poptorch.trainingModel(model, quiet_options(), optimizer)
    call(executor, [grads])
    return model, optimizer, executor


@pytest.mark.spec("4.3 loss scaling")
@pytest.mark.parametrize("torch_optimizer", [False, True])
def test_loss_scaling_saves_small_gradients(torch_optimizer):
    tiny = [torch.full_like(g, 2.0**-20) for g in gradients(1)[0]]

    class Weak(Recorded):
        def forward(self, a, b):
            return poptorch.identity_loss(super().forward(a, b) * 2.0**-10, reduction="none")

    moved = {}
    for scale in (1.0, 2.0**12):
        model = Weak(FLOAT)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        if torch_optimizer:
            optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
            optimizer.loss_scaling = scale
        else:
            optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, loss_scaling=scale)
        call(poptorch.trainingModel(model, quiet_options(), optimizer), [tiny])
        moved[scale] = model.b.detach().clone()
    assert (moved[1.0] == 0).all()
    assert (moved[2.0**12] == -(2.0**-30)).all()


@pytest.mark.spec("4.3 loss scaling", "11 master weights")
@pytest.mark.parametrize("loss_dtype", [FLOAT, HALF], ids=str)
@pytest.mark.parametrize("weights", [FLOAT, HALF], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_powers_of_two_change_no_bit(name, weights, loss_dtype):
    grads = gradients(1)[0]
    plain, _, _ = trained(None, grads, name, weights, loss_dtype)
    for scale in (0.5, 2.0, 1024.0):
        model, _, _ = trained(scale, grads, name, weights, loss_dtype)
        for ours, theirs in zip(model.parameters(), plain.parameters()):
            assert torch.equal(ours, theirs), scale


@pytest.mark.spec("4.3 loss scaling", "4.4 variable_attrs")
def test_the_scale_changes_without_compiling():
    grads = gradients(2)
    model, optimizer, executor = trained(2.0, grads[0])
    reference, _, other = trained(None, grads[0])
    optimizer.loss_scaling = 512.0
    executor.setOptimizer(optimizer)
    assert executor.isCompiled()
    call(executor, grads[1:])
    call(other, grads[1:])
    assert torch.equal(model.a, reference.a)


@pytest.mark.spec("4.3 loss scaling")
def test_gradients_are_scaled_where_they_can_be_seen():
    grads = gradients(1)
    for scale in (1.0, 8.0):
        model = Recorded(HALF)
        options = quiet_options()
        options.anchorTensor("gradient", "Gradient___a")
        optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, loss_scaling=scale)
        executor = poptorch.trainingModel(model, options, optimizer)
        call(executor, grads)
        gradient = executor.getAnchoredTensor("gradient")
        assert gradient.dtype == HALF
        assert torch.equal(gradient.float(), grads[0][0].float() * scale)


@pytest.mark.spec("4.3 loss scaling")
def test_scales_that_have_no_meaning():
    params = list(Recorded(HALF).parameters())
    for scale in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="loss_scaling must be a number above zero"):
            poptorch.trainingModel(
                Recorded(HALF), None, poptorch.optim.SGD(params, lr=0.1, loss_scaling=scale)
            )
    with pytest.raises(ValueError, match="is beyond float16, which the loss is"):
        trained(1e5, gradients(1)[0], loss_dtype=HALF)
    trained(1e5, [g * 1e-3 for g in gradients(1)[0]])
    _, optimizer, executor = trained(2.0, gradients(1)[0], loss_dtype=HALF)
    optimizer.loss_scaling = 1e5
    with pytest.raises(ValueError, match="is beyond float16, which the loss is"):
        executor.setOptimizer(optimizer)
