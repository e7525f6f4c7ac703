"""How a network ends: its loss, what it returns, and how it is run."""

from network import Network, Settings, returned_names
from operators import view_text

# Losses over values of any shape, with a target of the same shape.
ALIKE = [
    "F.mse_loss({x}, {y}{r})",
    "F.mse_loss({x}, {y}{r})",
    "F.l1_loss({x}, {y}{r})",
    "F.smooth_l1_loss({x}, {y}{r})",
    "F.huber_loss({x}, {y}{r}, delta=0.5)",
    "F.binary_cross_entropy_with_logits({x}, {y}.sigmoid(){r})",
    "F.binary_cross_entropy({x}.sigmoid(), {y}.sigmoid(){r})",
    "F.kl_div(F.logsigmoid({x}), {y}.sigmoid(){r})",
    "F.poisson_nll_loss({x}.clamp(-3, 3), {y}.abs(){r})",
    "F.hinge_embedding_loss({x}, torch.sign({y}){r})",
    "F.soft_margin_loss({x}.tanh() * 3, torch.sign({y}){r})",
    "F.margin_ranking_loss({x}, {y}, torch.sign({y}){r})",
]

# Losses over rows of scores, with a class for each row.
CLASSES = [
    "F.cross_entropy({x}, {i}{r})",
    "F.cross_entropy({x}, {i}{r})",
    "F.cross_entropy({x}, {i}{r}, label_smoothing=0.1)",
    "F.cross_entropy({x}, {i}{r}, ignore_index=0)",
    "F.nll_loss(F.log_softmax({x}, 1), {i}{r})",
    "F.multi_margin_loss({x}, {i}{r})",
    "F.cross_entropy({x}, F.one_hot({i}, {k}).to({x}.dtype){r})",
]

ROWS = [
    "F.multilabel_soft_margin_loss({x}, ({y} > 0).to({x}.dtype){r})",
    "F.cosine_embedding_loss({x}, {y}, torch.ones({n}){r})",
    "F.triplet_margin_loss({x}, {y}, {x} * 0.5 + 0.2{r})",
    "F.cross_entropy({x}, {y}.softmax(1){r})",
]


def loss_text(g, x):
    """A loss of one value, reduced or not."""
    shape = g.shape(x)
    reduction = g.pick(["", "", ', reduction="sum"', ', reduction="none"'])
    kind = g.pick(["alike", "alike", "classes", "classes", "rows", "value", "value"])
    if kind in ("classes", "rows") and len(shape) < 2:
        kind = "alike"
    if kind == "classes":
        if len(shape) == 3 or len(shape) > 4 or len(shape) == 4 and g.chance(0.7):
            x, shape = f"{x}.flatten(1)", (shape[0], numel(shape[1:]))
        sizes = (shape[0], *shape[2:])
        i, form = g.input(sizes, shape[1]), g.pick(CLASSES)
        if len(shape) > 2 and ("one_hot" in form or "multi_margin" in form):
            form = CLASSES[0]
        if "ignore_index" in form and not reduction:
            reduction = ', reduction="sum"'  # a mean over nothing is not a number
        return form.format(x=x, i=i, k=shape[1], r=reduction), reduction, [i]
    if kind == "rows":
        x, shape = f"{x}.flatten(1)", (shape[0], numel(shape[1:]))
        y = g.input(shape)
        return g.pick(ROWS).format(x=x, y=y, n=shape[0], r=reduction), reduction, [y]
    if kind == "alike":
        y = g.input(shape) if shape else x
        return g.pick(ALIKE).format(x=x, y=y, r=reduction), reduction, [y]
    return g.pick(["{x}", "{x}.square()", "{x} * 2", "{x}.tanh()"]).format(x=x), "none", []


def numel(shape):
    product = 1
    for size in shape:
        product *= size
    return product


def add_loss(g):
    """Adds the steps of a loss that weights have a part in; its name, or nothing."""
    names = g.trainable()
    if not names:
        return ""
    x = names[-1] if g.chance(0.7) else g.pick(names[-3:])
    text, reduction, read = loss_text(g, x)
    used = [x, *read]
    others = [n for n in names[-5:] if n != x]
    if others and g.chance(0.4):
        y = g.pick(others)
        text, reduction = f"({text}).mean() + 0.3 * {y}.square().mean()", "none"
        used.append(y)
    loss = g.fresh("loss")
    if "none" in reduction or g.chance(0.1):
        how = g.pick(["mean", "mean", "sum", "mean"])
        text = f'poptorch.identity_loss({text}, reduction="{how}")'
    return loss if g.add("loss", used, f"{loss} = {text}") else ""


def structure(g, names):
    """Names in some nested form."""
    kind = g.pick(["tuple", "tuple", "list", "dict", "nested", "deep"])
    if len(names) == 1 and g.chance(0.5):
        return names[0]
    if kind == "list":
        return list(names)
    if kind == "dict":
        return {f"key{k}": name for k, name in enumerate(names)}
    if kind == "nested" and len(names) > 1:
        return (names[0], list(names[1:]))
    if kind == "deep":
        return {"a": [(names[0],)], "rest": tuple(names[1:])} if names[1:] else [(names[0],)]
    return tuple(names)


def returned(g, loss):
    values = list(g.values)
    names = [n for n in values[-4:] if g.chance(0.5) and not n.startswith("loss")]
    if not names and not loss or g.chance(0.3):
        names.append(g.pick(values[-6:]))
    if values[-1] not in names and not loss:
        names.append(values[-1])
    if g.chance(0.3):
        x, v = g.value(), g.fresh()
        if g.add("view", [x], f"{v} = {view_text(g, x)}"):
            names.append(v)
    if g.chance(0.08):
        names.append(g.pick(g.inputs).name)
    if g.chance(0.06):
        weights = [line.split(" = ")[0] for s in g.steps for line in s.init if "Parameter" in line]
        if weights:
            v = g.fresh()
            weight = g.pick(weights)
            if g.add("view", [], f"{v} = {weight}{g.pick(['', '.flatten()', '[:1]'])}"):
                names.append(v)
    if names and g.chance(0.1):
        names.append(names[0])
    if loss:
        names.insert(g.pick([len(names), len(names), 0]), loss)
    return structure(g, names)


# With a small eps they divide what rounding leaves of a gradient by itself.
OPTIMIZERS = [
    ("SGD", {"lr": 1.0}),
    ("SGD", {"lr": 0.5}),
    ("SGD", {"lr": 0.5}),
    ("SGD", {"lr": 0.5, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.2, "momentum": 0.9}),
    ("SGD", {"lr": 0.2, "momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.2, "momentum": 0.9, "dampening": 0.1}),
    ("SGD", {"lr": 0.2, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.05, "eps": 1e-4}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.99), "eps": 1e-3, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.05, "eps": 1e-4}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.5, "eps": 1e-2}),
    ("RMSprop", {"lr": 0.01, "eps": 1e-3}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "eps": 1e-2}),
    ("RMSprop", {"lr": 0.01, "centered": True, "weight_decay": 0.1, "eps": 1e-2}),
    ("LAMB", {"lr": 0.05, "eps": 1e-3}),
    ("LAMB", {"lr": 0.05, "weight_decay": 0.1, "eps": 1e-2}),
    ("LAMB", {"lr": 0.05, "bias_correction": False, "eps": 1e-2}),
]


def settings(g, training, names):
    s = {"training": training, "precise": g.chance(0.15)}
    s["train_mode"] = g.chance(0.85 if training else 0.3)
    s["calls"] = g.pick([1] * 6 + [2, 3])
    repeatable = all(i.shape for i in g.inputs)
    if repeatable and g.chance(0.2):
        s["iterations"] = g.pick([2, 3])
    if training:
        if repeatable and g.chance(0.2):
            s["accumulation"] = g.pick([2, 3])
            s["reduction"] = g.pick(["Mean", "Mean", "Sum"])
        name, numbers = g.pick(OPTIMIZERS)
        module = "poptorch" if name == "LAMB" or g.chance(0.5) else "torch"
        s["optimizer"], s["numbers"] = f"{module}.optim.{name}", tuple(numbers.items())
    if s.get("iterations", 1) * s.get("accumulation", 1) > 1 and g.chance(0.5):
        sums = ["Sum"] if all(g.values[n].is_floating_point() for n in names) else []
        s["output_mode"] = g.pick(["All", "Final", *sums])
    return Settings(**s)


def finish(g):
    """The network that a generator has grown; None where there is nothing to run."""
    import poptorch

    g.scope["poptorch"] = poptorch
    if not g.steps:
        return None
    loss = add_loss(g) if g.chance(0.8) else ""
    result = returned(g, loss)
    inputs, steps = tuple(g.inputs), tuple(g.steps)
    return Network(
        g.seed, inputs, steps, loss, result, settings(g, bool(loss), returned_names(result))
    )
