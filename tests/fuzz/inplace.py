"""Steps that change what is there: values, parts of values, inputs, buffers."""

from generator import maker

CHANGES = [
    "{t}.mul_(2)",
    "{t}.add_(0.5)",
    "{t}.relu_()",
    "{t}.tanh_()",
    "{t}.sigmoid_()",
    "{t}.neg_()",
    "{t}.clamp_(-1, 1)",
    "{t}.zero_()",
    "{t}.fill_(0.25)",
    "{t}.sub_(0.1)",
    "{t}.div_(3)",
    "{t}.masked_fill_({t} > 0.5, 0.1)",
    "{t}.copy_({t} * 2 + 1)",
    "{t}.mul_({t}.detach().mean())",
    "{t}.add_({t}.sum(), alpha=0.01)",
    "{t}.square_()",
    "F.relu({t}, inplace=True)",
    "F.elu_({t})",
    "F.leaky_relu_({t}, 0.1)",
    "F.hardtanh_({t})",
    "F.dropout({t}, 0.0, inplace=True)",
]


def part_text(g, x):
    """A part of a value that can be written to."""
    shape = g.shape(x)
    if not shape:
        return x
    dim = g.pick(range(len(shape)))
    size, before = shape[dim], ":, " * dim
    start = g.pick(range(size))
    stop = g.pick(range(start + 1, size + 1))
    return g.pick(
        [
            f"{x}[{before}{start}:{stop}]",
            f"{x}[{before}::2]",
            f"{x}[{before}{start}]",
            f"{x}.select({dim}, {start})",
            f"{x}.narrow({dim}, {start}, {stop - start})",
            f"{x}.transpose(0, {dim})[{start if dim else 0}]",
            f"{x}.flatten()[{g.pick([0, 1])}:]",
            f"{x}.chunk(2, {dim})[0]",
            f"{x}.unbind({dim})[{start}]",
            f"{x}[..., {g.pick(range(shape[-1]))}]",
            f"{x}.unsqueeze(0)",
            f"{x}.view(-1)",
        ]
    )


def own_copy(g):
    """A value that nothing needs as it is now, so that it may be changed."""
    x, v = g.value(), g.fresh()
    if g.chance(0.12):
        return x
    form = g.pick(["{x} * 1.5", "{x} + 0.25", "{x}.clone()", "{x} - 0.5", "{x}.detach().clone()"])
    return v if g.add("unary", [x], f"{v} = {form.format(x=x)}") else None


@maker(3)
def change_in_place(g):
    x = own_copy(g)
    if x is None:
        return
    for _ in range(g.pick([1, 1, 2, 3])):
        target = x if g.chance(0.35) else part_text(g, x)
        g.add("inplace", [x], g.pick(CHANGES).format(t=target), outputs=())


@maker(2)
def assign_part(g):
    x = own_copy(g)
    if x is None or not g.shape(x):
        return
    shape = g.shape(x)
    dim = g.pick(range(len(shape)))
    size, before = shape[dim], ":, " * dim
    start = g.pick(range(size))
    stop = g.pick(range(start + 1, size + 1))
    part = f"[{before}{start}:{stop}]"
    sizes = (*shape[:dim], stop - start, *shape[dim + 1 :])
    y, init = g.matching(sizes)
    line = g.pick(
        [
            f"{x}{part} = {y}",
            f"{x}{part} += {y}",
            f"{x}{part} *= {y}",
            f"{x}{part}.copy_({y})",
            f"{x}{part} = {x}{part} * 2 + {y}",
            f"{x}{part} = 0.5",
        ]
    )
    g.add("inplace", [x, y], line, init, outputs=())


@maker(1.5)
def add_in_place(g):
    x = own_copy(g)
    if x is None:
        return
    y, init = g.matching(g.shape(x))
    line = g.pick(["{x} += {y}", "{x}.add_({y}, alpha=0.5)", "{x} *= {y}", "{x} -= {y}"])
    g.add("inplace", [x, y], line.format(x=x, y=y), init, outputs=())


@maker(1)
def view_of_changed(g):
    """A view taken before a change, read after it."""
    x = own_copy(g)
    if x is None or not g.shape(x):
        return
    v, w = g.fresh(), g.fresh()
    if g.add("view", [x], f"{v} = {part_text(g, x)}"):
        changed = g.pick([x, v])
        g.add("inplace", [changed, x, v], g.pick(CHANGES).format(t=changed), outputs=())
        g.add("unary", [v], f"{w} = {v} * 2")


@maker(0.4)
def change_input(g):
    names = [i.name for i in g.inputs if i.kind == "float"]
    if names:
        x = g.pick(names)
        target = x if g.chance(0.5) else part_text(g, x)
        g.add("inplace_input", [x], g.pick(CHANGES).format(t=target), outputs=())


@maker(1)
def buffer(g):
    """A value that lives on between calls."""
    b = f"self.{g.fresh('b')}"
    name = b[len("self.") :]
    x, v = g.value(), g.fresh()
    kind = g.pick(["mean", "count", "last", "part"])
    if kind == "count":
        init = f'self.register_buffer("{name}", torch.zeros((), dtype=torch.long))'
        if g.add("buffer", [], f"{b} += 1", (init,), outputs=()) and g.chance(0.5):
            g.add("unary", [x], f"{v} = {x} * {b}")
        return
    shape = list(g.shape(x))
    listed = ", ".join(map(str, shape)) if shape else "()"
    if kind == "mean":
        init = f'self.register_buffer("{name}", torch.ones(()))'
        line = f"{b}.mul_(0.9).add_({x}.detach().mean(), alpha=0.1)"
    elif kind == "last":
        init = f'self.register_buffer("{name}", torch.ones({listed}))'
        line = f"{b}.copy_({x}.detach())"
    else:
        init = f'self.register_buffer("{name}", torch.ones({listed}))'
        line = f"{b}.add_({x}.detach())" if not shape else f"{b}[:1].add_({x}.detach()[:1])"
    before = g.chance(0.3)
    if before:
        g.add("unary", [x], f"{v} = {x} + {b}", (init,))
        g.add("buffer", [x], line, outputs=())
    elif g.add("buffer", [x], line, (init,), outputs=()) and g.chance(0.6):
        g.add("unary", [x], f"{v} = {x} + {b}")
