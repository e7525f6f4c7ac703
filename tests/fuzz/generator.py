"""Makes a network from a seed: steps that PyTorch accepts, whose values stay moderate."""

import contextlib
import random
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from network import Input, Network, Settings, Step

CHANNELS = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 24]
# Fast kernels for images take channels by eights.
IMAGE_CHANNELS = [8, 8, 8, 16, 16, 16, 24, 32, 1, 3, 7, 9, 12, 17]
MOST_ELEMENTS = 6000

MAKERS = []  # (weight, weight in networks of images, function); the modules of steps add theirs


def maker(weight=1.0, of_images=None):
    def add(function):
        MAKERS.append((weight, weight if of_images is None else of_images, function))
        return function

    return add


class Generator:
    """Builds a network step by step, running each one in PyTorch to learn its shape."""

    def __init__(self, seed):
        self.seed = seed
        self.random = random.Random(seed)
        self.inputs, self.steps = [], []
        self.values = {}  # what each name holds, in PyTorch
        self.module = nn.Module()
        self.scope = {"self": self.module, "torch": torch, "nn": nn, "F": F}
        self.count = 0
        self.batch = self.random.choice([1, 2, 3, 4, 5, 7, 8, 9, 16])
        self.of_images = self.random.random() < 0.5
        self.most = 20000 if self.of_images and self.random.random() < 0.3 else MOST_ELEMENTS
        torch.manual_seed(seed)

    # What makers ask for.

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, options):
        return self.random.choice(list(options))

    def fresh(self, letter="v"):
        self.count += 1
        return f"{letter}{self.count}"

    def channels(self):
        return self.pick(IMAGE_CHANNELS if self.of_images else CHANNELS)

    def shape(self, name):
        return tuple(self.values[name].shape)

    def floats(self, where=lambda t: True):
        """Names of values of float type that fulfil a condition, the latest last."""
        return [n for n, t in self.values.items() if t.is_floating_point() and where(t)]

    def value(self, where=lambda t: True):
        """A value of float type, more likely a late one; None where there is none."""
        names = self.floats(where)
        if not names:
            return None
        return names[-1] if self.chance(0.6) else self.pick(names[-6:])

    def of_rank(self, *ranks):
        return self.value(lambda t: t.dim() in ranks and t.numel() > 0)

    def input(self, shape, kind="float"):
        name = self.fresh("x")
        made = Input(name, tuple(shape), kind, kind == "float" and self.chance(0.08))
        self.inputs.append(made)
        self.values[name] = self.scope[name] = eval(made.text(), self.scope)
        return name

    def parameter(self, shape):
        """A weight that forward uses by name."""
        listed = ", ".join(map(str, shape)) if shape else "()"
        name = f"self.{self.fresh('p')}"
        return name, f"{name} = nn.Parameter(torch.randn({listed}) * 0.5)"

    def matching(self, shape):
        """Something float of this shape: another value, a weight, or a new input. With the line
        that makes it, if any."""
        same = self.floats(lambda t: tuple(t.shape) == tuple(shape))
        if same and self.chance(0.75):
            return self.pick(same), ()
        if self.chance(0.75) or len(self.inputs) > 4:
            name, line = self.parameter(shape)
            return name, (line,)
        return self.input(shape), ()

    # What makers do.

    def add(self, kind, inputs, line, init=(), outputs=None):
        """Runs the step; False where PyTorch does not take it or its values are of no use."""
        outputs = tuple([line.split(" = ")[0]] if outputs is None else outputs)
        inputs = tuple(n for n in inputs if n in self.values)
        keep = {n: t.detach().clone() for n, t in self.values.items()} if "inplace" in kind else {}
        try:
            for text in init:
                exec(text, self.scope)
            exec(line, self.scope)
            made = {n: self.scope[n] for n in outputs}
            fine = all(isinstance(t, torch.Tensor) and self.usable(t) for t in made.values())
            fine = fine and (not keep or all(self.usable(self.scope[n]) for n in inputs))
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            made, fine = {}, False
        if not fine:
            for n, t in keep.items():
                with torch.no_grad(), contextlib.suppress(RuntimeError):
                    self.values[n].copy_(t)
            return False
        self.values.update(made)
        self.values.update({n: self.scope[n] for n in inputs})
        self.steps.append(Step(kind, outputs, inputs, line, tuple(init)))
        for name in outputs:
            self.keep_moderate(name)
        return True

    def keep_moderate(self, name):
        t = self.values[name]
        if not t.is_floating_point() or t.numel() == 0:
            return
        size = t.abs().max().item()
        if size > 30:
            new = self.fresh()
            self.add("scale", [name], f"{new} = {name} * {float(f'{4 / size:.1g}')}")

    def grow(self, steps):
        makers = [(images if self.of_images else w, make) for w, images, make in MAKERS]
        total = sum(weight for weight, _ in makers)
        for _ in range(4 * steps):
            if len(self.steps) >= steps:
                break
            at = self.random.random() * total
            for weight, make in makers:
                at -= weight
                if at <= 0:
                    break
            make(self)

    def trainable(self):
        """Names of values that a weight has a part in: where there is one, it can be trained."""
        return [n for n, t in self.values.items() if t.requires_grad]

    def usable(self, t):
        if t.numel() == 0 or t.numel() > self.most or t.dim() > 6:
            return False
        if not t.is_floating_point():
            return True
        return bool(torch.isfinite(t).all()) and t.abs().max().item() < 1e6


def first_inputs(g):
    """What the network begins with: images, rows, sequences, volumes or indices."""
    n = g.batch
    kind = g.pick(["image"] * 4 + ["rows"] * 2 + ["sequence"] * 2 + ["volume", "tokens"])
    kind = "image" if g.of_images else kind
    if kind == "image":
        side = g.pick([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 16, 17])
        other = side if g.chance(0.6) else g.pick([1, 2, 3, 5, 7, 8, 12])
        c = g.channels()
        while n * c * side * other > g.most:
            n, side = max(1, n // 2), max(1, side - 1)
        g.batch = n
        g.input((n, c, side, other))
    elif kind == "rows":
        g.input((n, g.pick([1, 2, 3, 5, 8, 9, 16, 24, 33])))
    elif kind == "sequence":
        g.input((n, g.channels(), g.pick([1, 2, 3, 5, 8, 11, 16])))
    elif kind == "volume":
        g.input((min(n, 4), g.pick([1, 2, 3, 4, 8]), *[g.pick([1, 2, 3, 4, 5]) for _ in range(3)]))
    else:
        count, width = g.pick([3, 7, 10]), g.channels()
        name, v = g.input((n, g.pick([1, 2, 4, 7])), count), g.fresh()
        layer = f"self.{g.fresh('l')}"
        options = ", padding_idx=1" if g.chance(0.3) else ""
        line = f"{layer} = nn.Embedding({count}, {width}{options})"
        g.add("layer", [name], f"{v} = {layer}({name})", (line,))


def generate(seed):
    """The network of a seed; None where nothing came of it."""
    import operators  # noqa: F401
    import layers
    import endings
    import inplace  # noqa: F401

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        g = Generator(seed)
        first_inputs(g)
        if g.of_images:
            layers.convolution(g)
        g.grow(g.pick([1, 2, 3, 4, 5, 6, 8, 10, 14]))
        return endings.finish(g)


__all__ = ["Generator", "Network", "Settings", "generate", "maker"]
