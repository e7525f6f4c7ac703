"""A random network as data: what goes in, one line of forward after the other, what comes out.

Everything is kept as text, so that a network that is run and its printed source are the same thing.
"""

import dataclasses
import re
from typing import Tuple

HEADER = """\
import poptorch
import torch
import torch.nn as nn
import torch.nn.functional as F
"""

# Layers begin with ones and zeros, which hide mistakes.
MOVE_WEIGHTS = """\
        with torch.no_grad():
            for p in self.parameters():
                p.add_(torch.randn_like(p), alpha=0.1)
            for b in self.buffers():
                if b.is_floating_point():
                    b.uniform_(0.5, 1.5)
"""


# What of a network is in half precision; the rest is in float32.
HALVES = {
    "all": "weights and inputs",
    "inputs": "inputs, over weights in float32",
    "weights": "weights, under inputs in float32",
    "some": "every second layer and every second input",
    "sums": "weights and inputs, and the sums of their products on the way",
}


@dataclasses.dataclass(frozen=True)
class Input:
    """A tensor that the caller gives: `kind` is float, or how many integers there are."""

    name: str
    shape: Tuple[int, ...]
    kind: object = "float"
    transposed: bool = False  # not contiguous: the last dimension lies first in memory

    def text(self, factor=1):
        """The expression that makes a batch for `factor` micro-batches."""
        shape = list(self.shape)
        if factor > 1:
            shape[0] *= factor
        if self.transposed and len(shape) > 1:
            shape[0], shape[-1] = shape[-1], shape[0]
        listed = ", ".join(map(str, shape))
        if self.kind == "float":
            made = f"torch.randn({listed})" if shape else "torch.randn(())"
        else:
            made = f"torch.randint({self.kind}, ({listed}{',' if len(shape) == 1 else ''}))"
        if self.transposed and len(shape) > 1:
            made += f".transpose(0, {len(shape) - 1})"
        return made


@dataclasses.dataclass(frozen=True)
class Step:
    """A line of forward, and the lines of __init__ that make its layers."""

    kind: str
    outputs: Tuple[str, ...]
    inputs: Tuple[str, ...]
    line: str
    init: Tuple[str, ...] = ()

    def renamed(self, old, new):
        """Reads another value; what it makes keeps its name."""
        if old not in self.inputs:
            return self
        left, mark, right = self.line.partition(" = ")
        if mark and not set(self.inputs) & set(re.findall(r"\w+", left)):
            line = left + mark + substituted(right, old, new)
        else:
            line = substituted(self.line, old, new)
        inputs = tuple(new if name == old else name for name in self.inputs)
        return dataclasses.replace(self, line=line, inputs=inputs)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a network is run."""

    training: bool = True
    train_mode: bool = True
    calls: int = 1
    accumulation: int = 1
    iterations: int = 1
    reduction: str = "Mean"
    output_mode: str = ""  # as the options call it; the default where empty
    optimizer: str = "torch.optim.SGD"
    numbers: Tuple[Tuple[str, object], ...] = (("lr", 1.0),)
    precise: bool = False
    halves: str = ""  # what is in half precision: one of HALVES
    replicas: int = 1

    def factor(self):
        return self.accumulation * self.iterations * self.replicas


@dataclasses.dataclass(frozen=True)
class Network:
    seed: int
    inputs: Tuple[Input, ...]
    steps: Tuple[Step, ...]
    loss: str  # the value that is trained on; empty for inference
    returned: object  # names in tuples, lists and dicts
    settings: Settings = Settings()

    def source(self):
        """The class, as a user would write it."""
        made = [line for step in self.steps for line in step.init]
        lines = [step.line for step in self.steps]
        arguments = "".join(f", {i.name}" for i in self.inputs)
        text = "class Network(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        text += "".join(f"        {line}\n" for line in made)
        text += MOVE_WEIGHTS if made else ""
        text += f"\n    def forward(self{arguments}):\n"
        text += "".join(f"        {line}\n" for line in lines)
        return text + f"        return {printed(self.returned)}\n"

    def batch(self, factor=None):
        """The lines that make one call's inputs."""
        factor = self.settings.factor() if factor is None else factor
        step = {"all": 1, "sums": 1, "inputs": 1, "some": 2}.get(self.settings.halves)
        halves = [i.name for i in self.inputs if i.kind == "float"][::step] if step else []
        return [
            f"{i.name} = {i.text(factor)}" + (".half()" if i.name in halves else "")
            for i in self.inputs
        ]

    def conversion(self):
        """The lines that bring weights of `model` to half precision."""
        if self.settings.halves in ("all", "sums", "weights"):
            return ["model.half()"]
        if self.settings.halves == "some":
            return ["for layer in list(model.children())[::2]:", "    layer.half()"]
        return []

    def with_halves(self, halves):
        settings = dataclasses.replace(self.settings, halves=halves)
        return dataclasses.replace(self, settings=settings)

    def with_replicas(self, replicas):
        """The same with more replicas, and so with more micro-batches; None where an input has no
        dimension to count them."""
        if any(not given.shape for given in self.inputs):
            return None
        settings = dataclasses.replace(self.settings, replicas=int(replicas))
        return dataclasses.replace(self, settings=settings)

    def size(self):
        """What the shrinker makes small."""
        numbers = sum(len(i.shape) + sum(i.shape) for i in self.inputs)
        return (len(self.steps), len(self.source()), numbers, len(repr(self.settings)))


def substituted(text, old, new):
    return re.sub(rf"(?<![\w.]){re.escape(old)}\b", new, text)


def printed(returned):
    if isinstance(returned, str):
        return returned
    if isinstance(returned, dict):
        return "{" + ", ".join(f'"{k}": {printed(v)}' for k, v in returned.items()) + "}"
    inner = ", ".join(map(printed, returned))
    if isinstance(returned, list):
        return f"[{inner}]"
    return f"({inner},)" if len(returned) == 1 else f"({inner})"


def returned_names(returned):
    """The names in a structure, in the order in which flat() lists their values."""
    if isinstance(returned, str):
        return [returned]
    parts = returned.values() if isinstance(returned, dict) else returned
    return [name for part in parts for name in returned_names(part)]


def without(returned, name):
    """The structure without one name; None where nothing is left."""
    if isinstance(returned, str):
        return None if returned == name else returned
    if isinstance(returned, dict):
        kept = {k: without(v, name) for k, v in returned.items()}
        return {k: v for k, v in kept.items() if v is not None} or None
    kept = [part for part in (without(v, name) for v in returned) if part is not None]
    return type(returned)(kept) or None


def flat(result):
    """The tensors of a nested result."""
    if isinstance(result, dict):
        return [t for v in result.values() for t in flat(v)]
    if isinstance(result, (list, tuple)):
        return [t for v in result for t in flat(v)]
    return [result]


def program(network, variant=None):
    """A program that stands alone: the first call's results and the weights after it, by us and by
    PyTorch in float64."""
    environment = dict(variant or {})
    if "halves" in environment:
        network = network.with_halves(environment.pop("halves"))
    if "replicas" in environment:
        network = network.with_replicas(environment.pop("replicas"))
    s = network.settings
    lines = ["import copy", "import os", "", HEADER]
    if s.precise:
        environment["TESSERA_PRECISION"] = "precise"
    lines += [f'os.environ["{name}"] = "{value}"' for name, value in environment.items()]
    lines += ["", "", network.source(), "", f"torch.manual_seed({network.seed})"]
    lines += [f"model = Network().train({s.train_mode})", *network.conversion()]
    lines.append("exact = copy.deepcopy(model).double()")
    lines += network.batch()
    lines.append("options = poptorch.Options().showCompilationProgressBar(False)")
    if s.iterations > 1:
        lines.append(f"options.deviceIterations({s.iterations})")
    if s.replicas > 1:
        lines.append(f"options.replicationFactor({s.replicas}).broadcastBuffers(False)")
        lines.append("options.autoRoundNumIPUs()")
    if s.training and s.accumulation > 1:
        lines.append(f"options.Training.gradientAccumulation({s.accumulation})")
    if s.training and s.accumulation * s.replicas > 1 and s.reduction != "Mean":
        kind = f"poptorch.ReductionType.{s.reduction}"
        lines.append(f"options.Training.accumulationAndReplicationReductionType({kind})")
    if s.halves == "sums":
        lines.append("options.Precision.setPartialsType(torch.half)")
    if s.output_mode:
        lines.append(f"options.outputMode(poptorch.OutputMode.{s.output_mode})")
    names = ", ".join(i.name for i in network.inputs)
    if s.training:
        numbers = "".join(f", {k}={v!r}" for k, v in s.numbers)
        lines.append(f"optimizer = {s.optimizer}(model.parameters(){numbers})")
        lines.append("executor = poptorch.trainingModel(model, options, optimizer)")
    else:
        lines.append("executor = poptorch.inferenceModel(model, options)")
    doubled = ", ".join(
        f"{i.name}.double()" if i.kind == "float" else f"{i.name}.clone()" for i in network.inputs
    )
    lines.append("torch.set_default_dtype(torch.float64)")
    if s.factor() == 1:
        lines.append(f"expected = exact({doubled})")
    lines.append("torch.set_default_dtype(torch.float32)")
    for call in range(s.calls):
        lines += network.batch() if call else []
        lines.append(f'print("ours", executor({names}))')
    if s.factor() == 1:
        lines.append('print("float64", expected)')
    if s.training:
        if s.factor() == 1 and s.calls == 1:
            position = returned_names(network.returned).index(network.loss)
            lines += ["def leaves(value):"]
            lines += ["    if isinstance(value, torch.Tensor):", "        return [value]"]
            lines += ["    parts = value.values() if isinstance(value, dict) else value"]
            lines += ["    return [leaf for part in parts for leaf in leaves(part)]"]
            lines += [f"leaves(expected)[{position}].sum().backward()"]
            lines += ["for name, p in exact.named_parameters():"]
            lines += ["    ours = model.get_parameter(name).detach()"]
            lines += ['    print(name, "moved by", ours - p.detach(), "gradient", p.grad)']
        else:
            lines.append('print("weights", dict(model.named_parameters()))')
    return "\n".join(lines) + "\n"
