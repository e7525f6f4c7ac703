"""Steps that are operators: element-wise ones, reductions, views, products, indexing."""

from generator import maker

UNARY = [
    "torch.relu({x})",
    "{x}.abs()",
    "-{x}",
    "{x} * 0.5",
    "{x} + 1",
    "1 - {x}",
    "2 / ({x}.abs() + 1)",
    "{x}.square()",
    "{x} ** 3",
    "({x}.abs() + 0.1) ** 0.5",
    "({x}.abs() + 0.1).sqrt()",
    "({x}.abs() + 0.1).rsqrt()",
    "({x}.abs() + 0.5).log()",
    "({x}.abs() + 0.5).log2()",
    "({x}.abs() + 0.5).log10()",
    "{x}.abs().log1p()",
    "({x} * 0.2).exp()",
    "({x} * 0.2).expm1()",
    "torch.exp2({x} * 0.2)",
    "{x}.sin()",
    "{x}.cos()",
    "({x} * 0.3).tan()",
    "torch.asin({x}.tanh() * 0.9)",
    "torch.acos({x}.tanh() * 0.9)",
    "{x}.atan()",
    "({x} * 0.3).sinh()",
    "({x} * 0.3).cosh()",
    "{x}.asinh()",
    "torch.acosh({x}.abs() + 1.5)",
    "torch.atanh({x}.tanh() * 0.8)",
    "{x}.erf()",
    "{x}.erfc()",
    "{x}.sigmoid()",
    "{x}.tanh()",
    "{x}.sign() * {x}",
    "{x}.reciprocal().clamp(-3, 3)",
    "{x}.clamp(-0.5, 0.7)",
    "{x}.clamp(min=0.1)",
    "{x}.clamp_max(0.3)",
    # Beside the whole numbers: layers that saturate make many of those, exactly.
    "{x} + ({x} + 0.375).floor()",
    "{x} + ({x} + 0.13).round()",
    "{x} - ({x} + 0.37).trunc()",
    "{x} + ({x} + 0.37).ceil()",
    "({x} + 0.37).frac()",
    "{x} % 0.75",
    "torch.fmod({x}, 0.875)",
    "{x} // 0.5 + {x}",
    "torch.lerp({x}, {x} * 2, 0.3)",
    "torch.logit({x}.sigmoid() * 0.9 + 0.05)",
    "F.softplus({x})",
    "torch.sinc({x})",
    "torch.nan_to_num({x})",
    "{x}.detach() + {x}",
    "{x}.detach() * {x}",
    "torch.zeros_like({x}) + {x}",
    "torch.full_like({x}, 0.5) * {x}",
    "{x} * torch.ones({shape})",
    "{x} + torch.arange({last})",
    "{x}.clone()",
    "{x}.contiguous() * 2",
    "torch.where({x} > 0.125, {x}, {x} * 0.2)",
    "{x}.masked_fill({x} < 0, 0.25)",
    "{x} * ({x} > 0)",
    "{x} * ({x} >= 0.25).to({x}.dtype)",
    "torch.logaddexp({x}, {x} * 0.5)",
    "torch.hypot({x}, {x} + 1)",
    "torch.special.expit({x})",
    "torch.lgamma({x}.abs() + 0.5)",
    "F.normalize({x}, dim={dim})",
    "F.glu(torch.cat([{x}, {x}], {dim}), {dim})",
]


@maker(6, 4)
def unary(g):
    x = g.value()
    shape, v = g.shape(x), g.fresh()
    form = g.pick(UNARY)
    if not shape and ("{dim}" in form or "{last}" in form):
        return
    text = form.format(
        x=x,
        shape=", ".join(map(str, shape)) if shape else "()",
        last=shape[-1] if shape else 1,
        dim=g.pick(range(-len(shape), len(shape))) if shape else 0,
    )
    g.add("unary", [x], f"{v} = {text}")


BINARY = [
    "{x} + {y}",
    "{x} + {y}",
    "{x} + {y}",
    "{x} - {y}",
    "{x} * {y}",
    "{x} * {y}",
    "{x} / ({y}.abs() + 1)",
    "torch.maximum({x}, {y})",
    "torch.minimum({x}, {y})",
    "torch.atan2({x}, {y}.abs() + 1)",
    "torch.where({x} > {y}, {x}, {y})",
    "torch.add({x}, {y}, alpha=0.5)",
    "torch.sub({x}, {y}, alpha=2)",
    "torch.lerp({x}, {y}, 0.25)",
    "torch.addcmul({x}, {x}, {y}, value=0.5)",
    "torch.addcdiv({x}, {x}, {y}.abs() + 1, value=0.5)",
    "({x}.abs() + 0.2) ** ({y} * 0.2)",
    "torch.hypot({x}, {y} + 1)",
    "{x} * ({x} <= {y})",
    "torch.logaddexp({x}, {y})",
    "torch.xlogy({x}, {y}.abs() + 0.5)",
    "torch.fmod({x}, {y}.abs() + 1)",
    "torch.remainder({x}, {y}.abs() + 1)",
    "({x} - {y}).abs()",
    "F.silu({x}) * {y}",
    "torch.relu({x} + {y})",
]


@maker(6)
def binary(g):
    x = g.value()
    shape = g.shape(x)
    other = list(shape)
    if other and g.chance(0.4):  # broadcast
        for i in range(len(other)):
            if g.chance(0.5):
                other[i] = 1
        if g.chance(0.4):
            other = other[g.pick(range(len(other))) :]
    y, init = g.matching(other)
    if g.chance(0.3):
        x, y = y, x
    v = g.fresh()
    g.add("binary", [x, y], f"{v} = {g.pick(BINARY).format(x=x, y=y)}", init)


REDUCTIONS = [
    "{x}.sum({dims})",
    "{x}.sum({dims})",
    "{x}.mean({dims})",
    "{x}.mean({dims})",
    "{x}.mean({dims}, keepdim=True)",
    "{x}.sum({dims}, keepdim=True)",
    "{x}.amax({dims})",
    "{x}.amin({dims}, keepdim=True)",
    "{x}.var({dims}, unbiased=False)",
    "{x}.std({dims}, unbiased=False) + 0.1",
    "{x}.logsumexp({dims})",
    "{x}.norm(dim={dims})",
    "torch.linalg.vector_norm({x}, 1, {dims})",
    "{x}.max({dim}).values",
    "{x}.min({dim}, keepdim=True).values",
    "({x} * 0.5).prod({dim})",
    "{x}.cumsum({dim})",
    "({x} * 0.5).cumprod({dim})",
    "torch.logcumsumexp({x}, {dim})",
    "{x}.cummax({dim}).values",
    "{x}.median({dim}).values",
    "{x}.sort({dim}).values",
    "{x}.sort({dim}, descending=True).values",
    "{x}.topk(1, {dim}).values",
    "{x} - {x}.mean({dims}, keepdim=True)",
    "{x} / ({x}.abs().amax({dims}, keepdim=True) + 1)",
    "{x} * {x}.square().sum({dims}, keepdim=True)",
    "{x}.sum()",
    "{x}.mean()",
    "{x}.max()",
    "{x}.square().mean().sqrt()",
    "{x} * {x}.argmax({dim}, keepdim=True)",
    "{x} + ({x} > 0).sum({dims}, keepdim=True)",
    "{x} * ({x} > 0).any({dim}, keepdim=True)",
    "torch.std_mean({x}, {dims}, unbiased=False)[1]",
    "torch.var_mean({x}, {dims}, unbiased=False, keepdim=True)[0]",
    "torch.nansum({x}, {dims})",
    "torch.count_nonzero({x}, {dim}) + {x}.sum({dim})",
]


@maker(3.5)
def reduction(g):
    x = g.value(lambda t: t.dim() > 0)
    if x is None:
        return
    rank, v = len(g.shape(x)), g.fresh()
    dims = sorted(g.random.sample(range(rank), g.pick(range(1, rank + 1))))
    if g.chance(0.3):
        dims = [d - rank for d in dims]
    text = g.pick(REDUCTIONS).format(x=x, dims=tuple(dims), dim=g.pick(range(-rank, rank)))
    g.add("reduction", [x], f"{v} = {text}")


def listed(sizes):
    return ", ".join(map(str, sizes))


def view_text(g, x):
    """A view of a value, or something much like one."""
    shape = g.shape(x)
    rank = len(shape)
    forms = ["{x}.reshape(-1)", "{x}.unsqueeze(0)", "{x}.squeeze()", "{x}[None]", "{x}.view(-1)"]
    if rank:
        dim, other = g.pick(range(rank)), g.pick(range(-rank, rank))
        size = shape[dim]
        order = list(range(rank))
        g.random.shuffle(order)
        start = g.pick(range(size))
        stop = g.pick(range(start + 1, size + 1))
        step = g.pick([1, 1, 2, 3])
        before = ":, " * dim
        sizes = list(shape)
        g.random.shuffle(sizes)
        forms += [
            f"{{x}}.permute({listed(order)})",
            f"{{x}}.permute({listed(order)}).contiguous()",
            f"{{x}}.transpose({dim}, {other})",
            f"{{x}}.flatten({dim})",
            f"{{x}}.flatten(0, {dim})",
            f"{{x}}.unsqueeze({other})",
            f"{{x}}[{before}{start}:{stop}]",
            f"{{x}}[{before}{start}:{stop}:{step}]",
            f"{{x}}[{before}::{step}]",
            f"{{x}}[{before}{start}]",
            f"{{x}}[..., :{max(1, shape[-1] - 1)}]",
            f"{{x}}.select({dim}, {g.pick([start, start - size])})",
            f"{{x}}.narrow({dim}, {start}, {stop - start})",
            f"{{x}}.flip({dim})",
            f"{{x}}.roll({step}, {dim})",
            f"{{x}}.reshape({listed(sizes)})",
            f"{{x}}.unbind({dim})[{start}]",
            f"{{x}}.chunk(2, {dim})[0]",
            f"{{x}}.split({max(1, size // 2)}, {dim})[-1]",
            f"{{x}}.unsqueeze({dim}).expand({listed((*shape[:dim], 2, *shape[dim:]))})",
            f"{{x}}.repeat_interleave(2, {dim})",
            f"{{x}}.unfold({dim}, {g.pick(range(1, size + 1))}, 1)",
            f"{{x}}.movedim({dim}, 0)",
            f"{{x}}.diagonal(0, {dim}, {other})",
            f"{{x}}.repeat({', '.join(str(g.pick([1, 1, 2])) for _ in shape)})",
        ]
    if rank >= 2:
        forms += [
            "{x}.tril()",
            "{x}.triu(1)",
            "{x}.transpose(-1, -2)",
            "{x}.transpose(1, 0).contiguous()",
            f"{{x}}.view({shape[0]}, -1)",
            f"{{x}}.reshape({shape[0] * shape[1]}, -1)",
            "{x}.mT",
        ]
    return g.pick(forms).format(x=x)


@maker(6, 6)
def view(g):
    x, v = g.value(), g.fresh()
    g.add("view", [x], f"{v} = {view_text(g, x)}")


@maker(2.5, 4)
def joined(g):
    x = g.value(lambda t: t.dim() > 0)
    if x is None:
        return
    shape, v = list(g.shape(x)), g.fresh()
    dim = g.pick(range(len(shape)))
    if g.chance(0.25):
        y, init = g.matching(shape)
        text = f"torch.stack([{x}, {y}], {dim})"
    else:
        fits = [
            n
            for n in g.floats(lambda t: t.dim() == len(shape))
            if all(a == b or i == dim for i, (a, b) in enumerate(zip(g.shape(n), shape)))
        ]
        y, init = (g.pick(fits), ()) if g.chance(0.7) else g.matching(shape)
        parts = [x, y] if g.chance(0.5) else [y, x]
        if g.chance(0.2):
            parts.append(g.pick([f"{x} * 2", f"{x}.flip({dim})", x]))
        text = f"torch.cat([{', '.join(parts)}], {dim})"
    g.add("cat", [x, y], f"{v} = {text}", init)


@maker(2)
def taken_apart(g):
    """Parts of a value that go different ways."""
    x = g.value(lambda t: t.dim() > 0 and max(t.shape) > 1)
    if x is None:
        return
    dim = g.pick([d for d, size in enumerate(g.shape(x)) if size > 1])
    a, b = g.fresh(), g.fresh()
    size = g.shape(x)[dim]
    first = g.pick(range(1, size))
    text = g.pick([f"{x}.split([{first}, {size - first}], {dim})", f"{x}.chunk(2, {dim})"])
    if g.add("view", [x], f"{a}, {b} = {text}", outputs=(a, b)) and g.chance(0.5):
        v, w, y = g.fresh(), g.fresh(), g.pick([a, b])
        g.add("unary", [y], f"{v} = {g.pick(['torch.relu', '-', 'torch.tanh'])}({y})")
        order = [v, b] if y == a else [a, v]
        g.add("cat", order, f"{w} = torch.cat([{', '.join(order)}], {dim})")


@maker(4, 5)
def product(g):
    x = g.value(lambda t: t.dim() > 0)
    if x is None:
        return
    shape, v = g.shape(x), g.fresh()
    rank, k, n = len(shape), shape[-1], g.pick([1, 2, 3, 5, 8, 9, 16])
    init, y = (), x
    forms = []
    if rank == 1:
        forms += ["torch.outer({x}, {x})", "torch.dot({x}, {x})", "{x}[:, None] * {x}[None]"]
    if rank >= 2:
        forms += ["{x} @ {x}.transpose(-1, -2)", "{x}.transpose(-1, -2) @ {x}"]
        right = [
            n
            for n in g.floats(lambda t: t.dim() in (1, 2))
            if g.shape(n)[0] == k and g.shape(n) != ()
        ]
        if right and g.chance(0.5):
            y, forms = g.pick(right), ["{x} @ {y}"]
    if rank == 3:
        forms += ["torch.einsum('bij,bkj->bik', {x}, {x})", "torch.bmm({x}, {x}.transpose(1, 2))"]
    if rank == 4:
        forms += [
            "torch.bmm({x}.flatten(2), {x}.flatten(2).transpose(1, 2))",
            "torch.bmm({x}.flatten(2).transpose(1, 2), {x}.flatten(2))",
            "torch.einsum('nchw,ncij->nhwij', {x}, {x}[:, :, :2, :2])",
        ]
    if g.chance(0.5) or not forms:
        forms = ["{x} @ {y}"]
        sizes = (k, n)
        if rank >= 3 and g.chance(0.25):
            sizes = (*shape[:-2], k, n)
        elif g.chance(0.1):
            sizes = (k,)
        elif rank == 2 and g.chance(0.2):
            forms, sizes = ["torch.addmm({x}.sum(), {x}, {y})", "torch.mm({x}, {y})"], (k, n)
        elif rank >= 2 and g.chance(0.3):
            forms, sizes = ["{y} @ {x}"], (n, shape[-2])
        elif rank == 4 and g.chance(0.5):
            forms, sizes = ["torch.einsum('nchw,cd->ndhw', {x}, {y})"], (shape[1], n)
        y, init = g.matching(sizes)
    g.add("product", [x, y], f"{v} = {g.pick(forms).format(x=x, y=y)}", init)


@maker(0.6)
def outer(g):
    x = g.value(lambda t: 0 < t.numel() <= 60)
    y = g.value(lambda t: 0 < t.numel() <= 60)
    if x is None or y is None:
        return
    v = g.fresh()
    form = g.pick(
        [
            "torch.outer({x}.reshape(-1), {y}.reshape(-1))",
            "{x}.reshape(-1, 1) * {y}.reshape(1, -1)",
            "{x}.reshape(-1, 1) @ {y}.reshape(1, -1)",
            "torch.cdist({x}.reshape(-1, 1), {y}.reshape(-1, 1), p=1.0)",
        ]
    )
    g.add("product", [x, y], f"{v} = {form.format(x=x, y=y)}")


@maker(2, 1)
def indexed(g):
    x = g.value(lambda t: t.dim() > 0)
    if x is None:
        return
    shape, v = g.shape(x), g.fresh()
    dim = g.pick(range(len(shape)))
    size, before = shape[dim], ":, " * dim
    some = [g.pick(range(size)) for _ in range(g.pick([1, 2, 3, 5]))]
    whole = f"{x}.sort(stable=True, dim={dim}).indices"
    forms = [
        f"{x}.index_select({dim}, torch.tensor({some}))",
        f"{x}[{before}torch.tensor({some})]",
        f"{x}[{before}{some}]",
        f"{x}.gather({dim}, {whole})",
        f"torch.take_along_dim({x}, {whole}, {dim})",
        f"torch.zeros_like({x}).scatter_add({dim}, {whole}, {x})",
        f"{x}.scatter({dim}, {whole}, {x} * 2)",
        f"{x}.scatter({dim}, {whole}[{before}:1], 0.5)",
        f"{x}.index_add({dim}, torch.tensor({some[:1]}), {x}.narrow({dim}, 0, 1))",
        f"{x}.index_fill({dim}, torch.tensor({some}), 0.5)",
        f"{x}.index_copy({dim}, torch.tensor({some[:1]}), {x}.narrow({dim}, 0, 1) * 2)",
        f"torch.take({x}, torch.tensor({some}))",
    ]
    if size >= 2:
        forms.append(f"{x}.masked_fill(torch.arange({shape[-1]}) > 0, -0.5)")
    if g.chance(0.3) and dim == 0:
        i = g.input((g.pick([1, 2, 3]),), size)
        g.add("index", [x, i], f"{v} = {x}[{i}]")
        return
    g.add("index", [x], f"{v} = {g.pick(forms)}")


@maker(1)
def chain(g):
    """What an element-wise kernel of its own is made for."""
    x, v = g.value(), g.fresh()
    text = x
    for _ in range(g.pick([3, 5, 8])):
        text = g.pick(
            [
                f"torch.relu({text})",
                f"torch.tanh({text})",
                f"({text} * 0.7 + 0.1)",
                f"({text} + {x})",
                f"({text}).sigmoid()",
                f"({text}).abs()",
                f"({text}).clamp(-2, 2)",
                f"torch.maximum({text}, {x})",
                f"F.leaky_relu({text}, 0.1)",
            ]
        )
    g.add("unary", [x], f"{v} = {text}")


@maker(0.6)
def masked(g):
    """A comparison that several steps use."""
    x = g.value()
    m, v, w = g.fresh("m"), g.fresh(), g.fresh()
    test = g.pick(["{x} > 0", "{x} <= 0.25", "({x} > -0.5) & ({x} < 0.5)", "~({x} >= 0.125)"])
    if not g.add("mask", [x], f"{m} = {test.format(x=x)}"):
        return
    if g.add("mask", [x, m], f"{v} = torch.where({m}, {x}, {x}.mean())"):
        g.add("mask", [v, m], f"{w} = {v} * {m} + (~{m}).sum()")
