"""Steps that are layers: convolutions, norms, pools, linear and recurrent ones, attention."""

import torch.nn.functional as F
from generator import maker


def layer(g, x, made, kind="layer", call="{layer}({x})"):
    """Adds `self.l = made; v = self.l(x)`."""
    name, v = f"self.{g.fresh('l')}", g.fresh()
    g.add(kind, [x], f"{v} = {call.format(layer=name, x=x)}", (f"{name} = {made}",))
    return v


def options_text(options):
    return "".join(f", {k}={v!r}" for k, v in options.items())


@maker(6, 25)
def convolution(g):
    x = g.of_rank(4) if g.chance(0.75) else g.of_rank(3, 5)
    if x is None:
        return
    n, c, *image = g.shape(x)
    rank = len(image)
    transposed = g.chance(0.15)
    out, options = g.channels(), {}
    if g.chance(0.15):
        groups = g.pick([k for k in range(1, c + 1) if c % k == 0])
        options["groups"], out = groups, groups * g.pick([1, 1, 2, 3])
    most = min(image)
    kernel = g.pick([1, 1, 2, 3, 3, 3, 3, 5, 7])
    if g.chance(0.1):
        kernel = tuple(g.pick([1, 2, 3, 5]) for _ in range(rank))
    if g.chance(0.65):
        options["padding"] = g.pick([0, 1, 1, 2, 3])
        if isinstance(kernel, int) and g.chance(0.5):
            options["padding"] = kernel // 2
        elif g.chance(0.1):
            options["padding"] = tuple(g.pick([0, 1, 2]) for _ in range(rank))
    if g.chance(0.25):
        options["stride"] = g.pick([2, 2, 3])
        if g.chance(0.2):
            options["stride"] = tuple(g.pick([1, 2, 3]) for _ in range(rank))
    if g.chance(0.12) and most > 2:
        options["dilation"] = g.pick([2, 2, 3])
    if g.chance(0.3):
        options["bias"] = False
    if transposed:
        if "stride" in options and g.chance(0.4):
            options["output_padding"] = 1
    elif g.chance(0.06):
        options["padding_mode"] = g.pick(["zeros", "circular", "reflect", "replicate"])
    elif g.chance(0.06) and "stride" not in options:
        options["padding"] = "same"
    word = "ConvTranspose" if transposed else "Conv"
    layer(g, x, f"nn.{word}{rank}d({c}, {out}, {kernel}{options_text(options)})", "conv")


@maker(1, 2)
def weight_used_twice(g):
    x = g.of_rank(4)
    if x is None:
        return
    c = g.shape(x)[1]
    kernel = g.pick([1, 3])
    made = f"nn.Conv2d({c}, {c}, {kernel}, padding={kernel // 2})"
    call = g.pick(
        [
            "{layer}({layer}({x}))",
            "{layer}({x}) + {layer}({x}.flip(2))",
            "F.conv2d({layer}({x}), {layer}.weight.transpose(0, 1))",
            "{layer}({x}) * {layer}.weight.mean()",
        ]
    )
    layer(g, x, made, "conv", call)


@maker(3, 2)
def linear(g):
    x = g.value(lambda t: t.dim() >= 1)
    if x is None:
        return
    width, out = g.shape(x)[-1], g.pick([1, 2, 3, 5, 7, 8, 9, 10, 16, 24])
    bias = ", bias=False" if g.chance(0.3) else ""
    call = "{layer}({x})"
    if out == width and g.chance(0.5):
        call = g.pick(["{layer}({layer}({x}))", "{x} + {layer}({x})", "{x} @ {layer}.weight"])
    layer(g, x, f"nn.Linear({width}, {out}{bias})", "linear", call)


@maker(1.5, 3)
def flattened_linear(g):
    x = g.of_rank(3, 4, 5)
    if x is None:
        return
    _, *rest = g.shape(x)
    width = 1
    for size in rest:
        width *= size
    if width <= 600:
        out = g.pick([1, 3, 8, 10, 16])
        layer(g, x, f"nn.Linear({width}, {out})", "linear", "{layer}({x}.flatten(1))")


@maker(3, 7)
def norm(g):
    x = g.of_rank(2, 3, 4, 4, 4, 5)
    if x is None:
        return
    shape = g.shape(x)
    c, rank = shape[1], len(shape)
    kind = g.pick(["batch", "batch", "batch", "group", "layer", "instance", "local"])
    options = {}
    if g.chance(0.2):
        options["eps"] = g.pick([1e-3, 0.1])
    if kind == "batch":
        if g.chance(0.2):
            options["momentum"] = 0.5
        if g.chance(0.2):
            options["affine"] = False
        if g.chance(0.15):
            options["track_running_stats"] = False
        made = f"nn.BatchNorm{max(rank - 2, 1)}d({c}{options_text(options)})"
    elif kind == "group":
        groups = g.pick([k for k in range(1, c + 1) if c % k == 0])
        if g.chance(0.2):
            options["affine"] = False
        made = f"nn.GroupNorm({groups}, {c}{options_text(options)})"
    elif kind == "layer":
        dims = list(shape[-g.pick(range(1, rank)) :])
        if g.chance(0.2):
            options["elementwise_affine"] = False
        made = f"nn.LayerNorm({dims}{options_text(options)})"
    elif kind == "instance" and rank > 2:
        if g.chance(0.5):
            options["affine"] = True
        if g.chance(0.3):
            options["track_running_stats"] = True
        made = f"nn.InstanceNorm{rank - 2}d({c}{options_text(options)})"
    else:
        made = f"nn.LocalResponseNorm({g.pick([1, 2, 3, 5])}, alpha=0.1)"
    layer(g, x, made, "norm")


@maker(2.5, 5)
def pool(g):
    x = g.of_rank(3, 4, 4, 4, 5)
    if x is None:
        return
    rank = len(g.shape(x)) - 2
    kind = g.pick(["Max", "Max", "Avg", "Avg", "AdaptiveAvg", "AdaptiveMax", "LP"])
    options = {}
    if kind.startswith("Adaptive"):
        size = g.pick([1, 1, 2, 3, 5])
        made = f"nn.{kind}Pool{rank}d({size})"
    elif kind == "LP":
        made = f"nn.LPPool{min(rank, 2)}d(2, {g.pick([1, 2, 3])})"
    else:
        kernel = g.pick([1, 2, 2, 3, 3, 5])
        if g.chance(0.5):
            options["stride"] = g.pick([1, 2, 3])
        if g.chance(0.4):
            options["padding"] = kernel // 2
        if g.chance(0.2):
            options["ceil_mode"] = True
        if kind == "Max" and g.chance(0.1):
            options["dilation"] = 2
        if kind == "Avg" and g.chance(0.3):
            options["count_include_pad"] = False
        if kind == "Avg" and rank > 1 and g.chance(0.1):
            options["divisor_override"] = 3
        made = f"nn.{kind}Pool{rank}d({kernel}{options_text(options)})"
    layer(g, x, made, "pool")


@maker(0.4)
def unpool(g):
    x = g.of_rank(4)
    if x is None:
        return
    v, i, w = g.fresh(), g.fresh("i"), g.fresh()
    line = f"{v}, {i} = F.max_pool2d({x}, 2, return_indices=True)"
    if g.add("pool", [x], line, outputs=(v, i)):
        size = tuple(g.shape(x)[2:])
        g.add("pool", [v, i], f"{w} = F.max_unpool2d({v}, {i}, 2, output_size={size})")


ACTIVATIONS = [
    "nn.ReLU()",
    "nn.ReLU()",
    "nn.ReLU()",
    "nn.ReLU(inplace=True)",
    "nn.LeakyReLU(0.1)",
    "nn.ELU()",
    "nn.CELU(0.5)",
    "nn.SELU()",
    "nn.GELU()",
    "nn.GELU('tanh')",
    "nn.SiLU()",
    "nn.Mish()",
    "nn.Sigmoid()",
    "nn.Tanh()",
    "nn.Hardtanh()",
    "nn.Hardswish()",
    "nn.Hardsigmoid()",
    "nn.ReLU6()",
    "nn.Softplus(2.0)",
    "nn.Softsign()",
    "nn.LogSigmoid()",
    "nn.Tanhshrink()",
    "nn.Softshrink(0.2)",
    "nn.Hardshrink(0.2)",
    "nn.Threshold(0.1, 0.2)",
    "nn.PReLU()",
    "nn.RReLU(0.2, 0.2)",
    "nn.Dropout(0.0)",
    "nn.Dropout2d(0.0)",
    "nn.Identity()",
]


@maker(4, 8)
def activation(g):
    x = g.value()
    made = g.pick(ACTIVATIONS)
    if made == "nn.PReLU()" and len(g.shape(x)) > 1 and g.chance(0.6):
        made = f"nn.PReLU({g.shape(x)[1]})"
    layer(g, x, made, "inplace_layer" if "inplace" in made else "layer")


@maker(1)
def soft(g):
    x = g.of_rank(1, 2, 3, 4)
    if x is None:
        return
    dim = g.pick(range(-len(g.shape(x)), len(g.shape(x))))
    name = g.pick(["softmax", "softmax", "log_softmax", "softmin"])
    v = g.fresh()
    g.add("softmax", [x], f"{v} = F.{name}({x}, {dim})")


@maker(1, 1.5)
def resampled(g):
    x = g.of_rank(3, 4, 4, 4, 5)
    if x is None:
        return
    rank = len(g.shape(x)) - 2
    smooth = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[rank]
    mode = g.pick(["nearest", *smooth] + (["area"] if rank < 3 else []))
    if g.chance(0.5):
        options = f"scale_factor={g.pick([2, 2, 3, 0.5, 1.5])}"
    else:
        options = f"size={tuple(g.pick([1, 2, 5, 8]) for _ in range(rank))}"
    options += f", mode='{mode}'"
    if mode in smooth and g.chance(0.4):
        options += ", align_corners=True"
    v = g.fresh()
    g.add("resample", [x], f"{v} = F.interpolate({x}, {options})")


@maker(1)
def padded(g):
    x = g.of_rank(2, 3, 4, 4, 5)
    if x is None:
        return
    rank, v = len(g.shape(x)), g.fresh()
    if g.chance(0.6) or rank < 3:
        dims = g.pick(range(1, rank + 1))
        sides = tuple(g.pick([0, 0, 1, 2, -1]) for _ in range(2 * dims))
        options = f", value={g.pick([0.5, -1.0])}" if g.chance(0.4) else ""
    else:
        sides = tuple(g.pick([0, 1, 2]) for _ in range(2 * (rank - 2)))
        options = f", mode='{g.pick(['reflect', 'replicate', 'circular'])}'"
    g.add("pad", [x], f"{v} = F.pad({x}, {sides}{options})")


@maker(0.5)
def shuffled_channels(g):
    x = g.of_rank(4)
    if x is None:
        return
    form = g.pick(
        ["F.pixel_shuffle({x}, 2)", "F.pixel_unshuffle({x}, 2)", "F.channel_shuffle({x}, 2)"]
    )
    v = g.fresh()
    g.add("view", [x], f"{v} = {form.format(x=x)}")


@maker(0.5)
def unfolded(g):
    x = g.of_rank(4)
    if x is None:
        return
    v, w = g.fresh(), g.fresh()
    n, c, height, width = g.shape(x)
    if g.add("unfold", [x], f"{v} = F.unfold({x}, 2, padding=1)") and g.chance(0.5):
        g.add("unfold", [v], f"{w} = F.fold({v}, ({height}, {width}), 2, padding=1)")


@maker(0.6)
def recurrent(g):
    x = g.of_rank(3)
    if x is None or max(g.shape(x)) > 16:
        return
    width, hidden = g.shape(x)[-1], g.pick([1, 3, 8])
    kind = g.pick(["LSTM", "GRU", "RNN"])
    options = {}
    if g.chance(0.6):
        options["batch_first"] = True
    if g.chance(0.2):
        options["bidirectional"] = True
    if g.chance(0.1):
        options["num_layers"] = 2
    if g.chance(0.1):
        options["bias"] = False
    if kind == "RNN" and g.chance(0.3):
        options["nonlinearity"] = "relu"
    name, v, h = f"self.{g.fresh('l')}", g.fresh(), g.fresh()
    made = f"{name} = nn.{kind}({width}, {hidden}{options_text(options)})"
    target = f"{v}, ({h}, _)" if kind == "LSTM" else f"{v}, {h}"
    g.add("recurrent", [x], f"{target} = {name}({x})", (made,), outputs=(v, h))


@maker(0.6)
def attention(g):
    x = g.of_rank(3)
    if x is None or max(g.shape(x)) > 24:
        return
    width = g.shape(x)[-1]
    heads = g.pick([k for k in (1, 2, 3, 4) if width % k == 0])
    v = g.fresh()
    if g.chance(0.4):
        name = f"self.{g.fresh('l')}"
        made = f"{name} = nn.MultiheadAttention({width}, {heads}, batch_first=True)"
        call = f"{v} = {name}({x}, {x}, {x}, need_weights={g.chance(0.5)})[0]"
        g.add("attention", [x], call, (made,))
    elif g.chance(0.3):
        made = f"nn.TransformerEncoderLayer({width}, {heads}, 8, 0.0, batch_first=True)"
        layer(g, x, made, "attention")
    elif hasattr(F, "scaled_dot_product_attention") and g.chance(0.6):
        length = g.shape(x)[1]
        seen = f"torch.ones({length}, {length}, dtype=torch.bool).triu({g.pick([-2, -1, 0, 1])})"
        options = ["", "is_causal=True", "scale=0.4", f"attn_mask={seen}"]
        options.append(f"attn_mask={x} @ {x}.transpose(1, 2)")
        call = f"F.scaled_dot_product_attention({x}, {x}, {x}, {g.pick(options)})"
        g.add("attention", [x], f"{v} = {call}")
    else:
        scores = f"torch.softmax({x} @ {x}.transpose(1, 2) / {max(1, width)}, -1)"
        g.add("attention", [x], f"{v} = {scores} @ {x}")


@maker(0.5)
def embedded(g):
    """Values made indices."""
    x = g.of_rank(1, 2)
    if x is None:
        return
    count, v = g.pick([3, 5, 8]), g.fresh()
    i = g.input(g.shape(x)[:1] + (2,), count) if g.chance(0.6) else None
    name = f"self.{g.fresh('l')}"
    made = f"{name} = nn.Embedding({count}, {g.channels()})"
    if i:
        g.add("layer", [i], f"{v} = {name}({i})", (made,))
    else:
        call = f"{v} = {name}(({x}.detach() * 2).long().clamp(0, {count - 1}))"
        g.add("layer", [x], call, (made,))


@maker(0.8)
def frozen(g):
    """A layer that is not trained, or is left out of what gradients see."""
    x = g.of_rank(2, 4)
    if x is None:
        return
    name, v, c = f"self.{g.fresh('l')}", g.fresh(), g.shape(x)[1]
    if len(g.shape(x)) == 2:
        made = f"{name} = nn.Linear({c}, {g.channels()})"
    else:
        made = f"{name} = nn.Conv2d({c}, {g.channels()}, 3, padding=1)"
    if g.chance(0.6):
        g.add("layer", [x], f"{v} = {name}({x})", (made, f"{name}.requires_grad_(False)"))
    else:
        g.add("layer", [x], f"with torch.no_grad(): {v} = {name}({x})", (made,), outputs=(v,))


@maker(0.8)
def tied(g):
    """Two layers with one weight."""
    x = g.of_rank(2, 3, 4)
    if x is None:
        return
    a, b, v = f"self.{g.fresh('l')}", f"self.{g.fresh('l')}", g.fresh()
    if len(g.shape(x)) == 4:
        c = g.shape(x)[1]
        layer_text = f"nn.Conv2d({c}, {c}, 3, padding=1)"
    else:
        width = g.shape(x)[-1]
        layer_text = f"nn.Linear({width}, {width})"
    made = (f"{a} = {layer_text}", f"{b} = {layer_text}", f"{b}.weight = {a}.weight")
    g.add("layer", [x], f"{v} = {b}(torch.relu({a}({x})))", made)


@maker(0.6)
def residual(g):
    """A block with a way around it."""
    x = g.of_rank(4)
    if x is None:
        return
    n, c = f"self.{g.fresh('l')}", g.shape(x)[1]
    v = g.fresh()
    inner = f"nn.Conv2d({c}, {c}, 3, padding=1, bias=False), nn.BatchNorm2d({c})"
    made = f"{n} = nn.Sequential({inner}, nn.ReLU(), {inner})"
    g.add("conv", [x], f"{v} = F.relu({x} + {n}({x}))", (made,))
