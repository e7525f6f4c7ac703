"""Runs a network by us and by PyTorch in float64, and judges whether we are as near as we can be.

How near that is, float64 says itself: it is run again with each operator's result moved by as much
as float32 rounds, or half precision where the network has some. A network whose results jump when
they are moved (a maximum between equals, a division by nearly nothing) may thereby be as far off
with us; one that is well behaved may not.
"""

import dataclasses
import math
import os
import re
import warnings
from contextlib import contextmanager, nullcontext

import poptorch
import torch
import torch.nn as nn
import torch.nn.functional as F
from network import flat, returned_names
from torch.utils._python_dispatch import TorchDispatchMode


@dataclasses.dataclass(frozen=True)
class Precision:
    """How results of a type are rounded, and what is made of that."""

    dtype: torch.dtype
    rounding: float  # relative
    factor: float  # times what rounding explains is allowed
    floor: float  # of the largest element, that is always allowed
    nothing: float  # what may come for zero, where values are about one
    stored: float  # how a weight is rounded when it is stored, relative
    wide: tuple  # roundings that look for jumps


# Kernels add up in other orders, and fast ones round more.
SINGLE = Precision(torch.float32, 1.2e-7, 10, 3e-6, 1e-10, 2e-7, (5e-7, 2e-6, 8e-6))
# They do so in float32, of which a half shows little.
HALF = Precision(torch.float16, 5e-4, 3, 1e-3, 1e-6, 5e-4, (1e-3, 2e-3, 5e-3))
# A sum is rounded again after every 16 products.
HALF_SUMS = dataclasses.replace(HALF, factor=6)


def precision_of(network):
    if network.settings.halves == "sums":
        return HALF_SUMS
    return HALF if network.settings.halves else SINGLE


COMPILED = "TESSERA_FUZZ_COMPILED"  # set: by torch.compile(), not as a whole step


def slack():
    """How many times what rounding explains is let pass: TESSERA_FUZZ_SLACK, or 1."""
    return float(os.environ.get("TESSERA_FUZZ_SLACK") or 1)


# Their results are elements of their operands: nothing is rounded, and equals must stay equal.
EXACT = re.compile(
    r"aten::(clone|copy_|cat|stack|relu_?|max_pool|max|min|amax|amin|maximum|minimum|sort|topk"
    r"|index|gather|where|masked_fill|fill|zero|ones|full|neg|abs|sign|repeat|flip|roll|pad"
    r"|constant_pad|reflection|replication|floor|ceil|round|trunc|clamp|threshold|slice_backward"
    r"|select_backward|scatter_?\.|take|tril|triu|unfold$|arange|detach|_to_copy|lift_fresh|new_"
    r"|empty|embedding$)"
)


# These give wrong numbers for some strides that are neither of the two usual forms.
DOUBTFUL = re.compile(r"aten::native_(batch|group|layer)_norm")


# These take sums from what they are sums of: what little is left has the operands' rounding.
CANCELLING = re.compile(r"aten::(native_\w+_norm_backward|_(log_)?softmax|var|std|norm|linalg_vec)")


# These add up what may be much larger than the sum (gelu: one and erf): it is rounded by parts of
# its neighbours' size.
SUMMING = re.compile(
    r"aten::(\w*convolution\w*|(add|badd)?b?mm|mv|dot|addmv|sum|mean|cumsum|\w*avg_pool\w*"
    r"|_?cdist\w*|index_add|scatter_add|gelu|\w*_backward)$"
)


SQUARE_FITS = 1e19  # what is larger has no square, and thus no variance, in float32


class Careful(TorchDispatchMode):
    """Calls what cannot be trusted with any strides with contiguous tensors."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if DOUBTFUL.match(function._schema.name):
            args = [a.contiguous() if isinstance(a, torch.Tensor) else a for a in args]
            if args[0].numel() and args[0].abs().max() > SQUARE_FITS:
                raise OverflowError("a variance does not fit float32")
        return function(*args, **(kwargs or {}))


class Moved(Careful):
    """Moves what every operator computes, forward and backward, by a little."""

    def __init__(self, amount, seed, dtype=torch.float32):
        super().__init__()
        self.amount, self.dtype = amount, dtype
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        schema = function._schema
        result = super().__torch_dispatch__(function, types, args, kwargs)
        if CANCELLING.match(schema.name):
            self.shift(result, super().__torch_dispatch__, function, types, args, kwargs)
        if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
            return result
        for t in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(t, torch.Tensor) and t.dtype == torch.float64:
                if not EXACT.match(schema.name):
                    self.move(t, together=SUMMING.match(schema.name))
                elif self.dtype == torch.float16:  # numbers of the network's own are no halves
                    self.store(t)
        return result

    def shift(self, results, call, function, types, args, kwargs):
        """Moves all elements together by as much as moved operands move one."""
        others = call(function, types, [self.moved(a) for a in args], kwargs)
        if isinstance(results, torch.Tensor):
            results, others = [results], [others]
        for t, other in zip(results, others):
            if isinstance(t, torch.Tensor) and t.dtype == torch.float64 and t.numel():
                far = (t - other).abs().max()
                t.add_(far * (2 * torch.rand((), generator=self.generator).double() - 1))

    def moved(self, a):
        if not isinstance(a, torch.Tensor) or a.dtype != torch.float64:
            return a
        a = a.clone()
        self.move(a)
        return a

    def move(self, t, together=False):
        """Each element by a part of itself, or all by parts of the largest."""
        noise = torch.rand(t.shape, dtype=t.dtype, generator=self.generator)
        noise = noise.sub_(0.5).mul_(2 * self.amount)
        with torch.no_grad():
            if together and t.numel():
                t.add_(noise * t.abs().max())
            else:
                t.mul_(noise.add_(1))
            self.store(t)

    def store(self, t):
        """What is too large or too small for the type is so here."""
        with torch.no_grad():
            t.copy_(t.to(self.dtype))


@dataclasses.dataclass
class Run:
    """What can be seen of a run, by name."""

    values: dict = dataclasses.field(default_factory=dict)
    weights_before: dict = dataclasses.field(default_factory=dict)


class Illegal(Exception):
    """PyTorch itself does not run the network."""


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def environment(changes):
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def made(network):
    """A new module and the inputs of all calls, the same each time."""
    scope = {"poptorch": poptorch, "torch": torch, "nn": nn, "F": F, "__name__": "fuzz"}
    torch.manual_seed(network.seed)
    exec(network.source(), scope)
    model = scope["model"] = scope["Network"]().train(network.settings.train_mode)
    exec("\n".join(network.conversion()), scope)
    batches = []
    for _ in range(network.settings.calls):
        for line in network.batch():
            exec(line, scope)
        batches.append([scope[i.name] for i in network.inputs])
    return model, batches


def lamb(parameters, state, numbers):
    """One step of LAMB, by its formula."""
    lr, decay = numbers["lr"], numbers.get("weight_decay", 0.01)
    (b1, b2), eps = numbers.get("betas", (0.9, 0.999)), numbers.get("eps", 1e-8)
    state["step"] = t = state.get("step", 0) + 1
    for p in parameters:
        if p.grad is None:
            continue
        m, v = state.get(p, (torch.zeros_like(p), torch.zeros_like(p)))
        m, v = b1 * m + (1 - b1) * p.grad, b2 * v + (1 - b2) * p.grad**2
        state[p] = (m, v)
        right = numbers.get("bias_correction", True)
        c1, c2 = (1 - b1**t, 1 - b2**t) if right else (1, 1)
        way = (m / c1) / ((v / c2).sqrt() + eps) + decay * p
        norm, length = p.norm(), way.norm()
        trust = norm / length if norm > 0 and length > 0 else 1.0
        p.sub_(lr * trust * way)


def stepper(network, parameters):
    """A function that applies gradients, as the network's optimiser would."""
    name = network.settings.optimizer.rsplit(".", 1)[1]
    numbers, state = dict(network.settings.numbers), {}
    if name == "LAMB":
        return lambda: lamb(parameters, state, numbers)
    return getattr(torch.optim, name)(parameters, **numbers, foreach=False).step


def exact(network, moving=None):
    """The network by PyTorch in float64; `moving` moves what it computes."""
    return by_pytorch(network, torch.float64, lambda: moving or Careful())


def through_compile(network):
    """The network in float32 by PyTorch, whose torch.compile() has programs of ours made."""
    torch._dynamo.reset()
    # By any backend they get gradients of zeros, and an update with weight decay moves them.
    untouched = without_gradient(network)
    return by_pytorch(
        network,
        torch.float32,
        nullcontext,
        lambda model: torch.compile(model, backend="tessera"),
        untouched,
    )


def without_gradient(network):
    """The names of weights that the loss does not depend on."""
    if not network.settings.training:
        return set()
    model, (batch, *_) = made(network)
    pieces = [t.contiguous().chunk(network.settings.factor())[0] if t.dim() else t for t in batch]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        micro_batch(network, model, pieces, returned_names(network.returned))
    return {name for name, p in model.named_parameters() if p.grad is None}


def by_pytorch(network, dtype, watched, prepared=lambda model: model, untouched=frozenset()):
    """The network by PyTorch, in that type; each micro-batch while it is `watched`. No update sees
    the weights that are `untouched`."""
    s = network.settings
    try:
        model, batches = made(network)
    except Exception as error:
        raise Illegal(str(error)) from error
    model = model.to(dtype)
    called = prepared(model)
    run = Run(weights_before={n: p.detach().clone() for n, p in model.named_parameters()})
    parameters = [p for name, p in model.named_parameters() if name not in untouched]
    update = stepper(network, parameters) if s.training and parameters else None
    names = returned_names(network.returned)
    buffers = Buffers(model, s.replicas)
    with default_dtype(dtype), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, batch in enumerate(batches):
            # A program gets contiguous inputs, whatever the caller has.
            batch = [t.contiguous() for t in batch]
            batch = [t.to(dtype if t.is_floating_point() else t.dtype, copy=True) for t in batch]
            pieces = [t.chunk(s.factor()) if s.factor() > 1 else (t,) for t in batch]
            results = []
            for i in range(s.iterations):
                for p in parameters:
                    p.grad = None
                for k in range(s.accumulation * s.replicas):
                    piece = [t[i * s.accumulation * s.replicas + k] for t in pieces]
                    with buffers.of(k % s.replicas), watched():
                        results.append(micro_batch(network, called, piece, names))
                if update:
                    finish_step(network, parameters, update)
            for name, value in gathered(network, results).items():
                run.values[f"output {name} of call {call}"] = value
            for given, t in zip(network.inputs, batch):
                run.values[f"input {given.name} after call {call}"] = t
    for name, p in model.named_parameters():
        run.values[f"parameter {name}"] = p.detach().clone()
    with buffers.of(0):
        for name, b in model.named_buffers():
            run.values[f"buffer {name}"] = b.detach().clone()
    return run


class Buffers:
    """The buffers of a module, of which each replica has its own."""

    def __init__(self, model, replicas):
        self.model = model
        self.values = [[b.detach().clone() for b in model.buffers()] for _ in range(replicas)]

    @contextmanager
    def of(self, replica):
        """While it lasts, the module has those of a replica."""
        if len(self.values) == 1:
            yield
            return
        for b, value in zip(self.model.buffers(), self.values[replica]):
            b.detach().copy_(value)
        yield
        self.values[replica] = [b.detach().clone() for b in self.model.buffers()]


def micro_batch(network, model, piece, names):
    try:
        if network.settings.training:
            results = flat(model(*piece))
            kept = [t.detach().clone() for t in results]
            loss = results[names.index(network.loss)]
            torch.autograd.backward([loss], [torch.ones_like(loss)])
        else:
            with torch.no_grad():
                kept = [t.detach().clone() for t in flat(model(*piece))]
    except Exception as error:
        raise Illegal(str(error)) from error
    return dict(enumerate(kept))


def finish_step(network, parameters, update):
    if network.settings.reduction == "Mean":
        for p in parameters:
            if p.grad is not None:
                p.grad /= network.settings.accumulation * network.settings.replicas
    with torch.no_grad():
        update()


def gathered(network, results):
    """The outputs of a call's micro-batches, as the output mode says."""
    s = network.settings
    names = returned_names(network.returned)
    mode = s.output_mode or ("Final" if s.training else "All")
    answer = {}
    for k, name in enumerate(names):
        parts = [r[k] for r in results]
        if mode == "Final":
            parts = parts[-s.replicas :]
        elif mode == "Sum":
            parts = [torch.stack(parts[r :: s.replicas]).sum(0) for r in range(s.replicas)]
        if len(parts) > 1:
            parts = [torch.cat([p.reshape(1) if p.dim() == 0 else p for p in parts])]
        answer[f"{k} ({name})"] = parts[0]
    return answer


def options_of(network, instance=0, instances=1):
    """For one of several instances, which share the replicas."""
    s = network.settings
    options = poptorch.Options().showCompilationProgressBar(False)
    options.deviceIterations(s.iterations).replicationFactor(s.replicas // instances)
    options.autoRoundNumIPUs().broadcastBuffers(s.replicas == 1)
    options.Distributed.configureProcessId(instance, instances)
    if s.training:
        options.Training.gradientAccumulation(s.accumulation)
        options.Training.accumulationAndReplicationReductionType(
            getattr(poptorch.ReductionType, s.reduction)
        )
    if s.halves == "sums":
        options.Precision.setPartialsType(torch.half)
    if s.output_mode:
        options.outputMode(getattr(poptorch.OutputMode, s.output_mode))
    return options


def part_of_instance(values, micro_batches, instance, instances):
    """Of values that are ordered by micro-batch and then by replica."""
    if instances == 1:
        return values
    return values.unflatten(0, (micro_batches, instances, -1))[:, instance].flatten(0, 1)


def ours(network, variables=None, instance=0, instances=1):
    """The network by us, in an environment with these variables, or one instance's part of it."""
    s = network.settings
    variables = {"TESSERA_PRECISION": "precise" if s.precise else "fast", **(variables or {})}
    if variables.pop(COMPILED, None):
        with environment(variables):
            return through_compile(network)
    with environment(variables), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, batches = made(network)
        run = Run()
        if s.training:
            module = {"torch": torch.optim, "poptorch": poptorch.optim}[s.optimizer.split(".")[0]]
            optimizer = getattr(module, s.optimizer.rsplit(".", 1)[1])(
                model.parameters(), **dict(s.numbers)
            )
            options = options_of(network, instance, instances)
            executor = poptorch.trainingModel(model, options, optimizer)
        else:
            executor = poptorch.inferenceModel(model, options_of(network))
        names = returned_names(network.returned)
        rounds = s.iterations * s.accumulation
        for call, batch in enumerate(batches):
            batch = [part_of_instance(t, rounds, instance, instances) for t in batch]
            for k, (name, t) in enumerate(zip(names, flat(executor(*batch)))):
                run.values[f"output {k} ({name}) of call {call}"] = t.clone()
            for given, t in zip(network.inputs, batch):
                run.values[f"input {given.name} after call {call}"] = t.clone()
        executor.copyWeightsToHost()
        for name, p in model.named_parameters():
            run.values[f"parameter {name}"] = p.detach().clone()
        for name, b in model.named_buffers():
            run.values[f"buffer {name}"] = b.detach().clone()
        executor.destroy()
    return run


NARROWED = {torch.float64: torch.float32, torch.int64: torch.int32}
ONE_UP = {torch.float16: torch.float32, torch.float32: torch.float64}


def type_in_program(dtype):
    """Programs have no float64 and no int64."""
    return NARROWED.get(dtype, dtype)


def types_of_results(network):
    """The types of outputs by PyTorch's own rules, which are those of one size up, where it has
    kernels. None where PyTorch refuses the network there."""
    model, (batch, *_) = made(network)
    for t in [*model.parameters(), *model.buffers()]:
        t.data = t.data.to(ONE_UP.get(t.dtype, t.dtype))
    batch = [t.to(ONE_UP.get(t.dtype, t.dtype)) for t in batch]
    batch = [t.chunk(network.settings.factor())[0] if t.dim() else t for t in batch]
    with default_dtype(torch.float64), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            results = flat(model(*batch))
        except Exception:
            return None
    back = {up: dtype for dtype, up in ONE_UP.items()}
    return [back.get(t.dtype, type_in_program(t.dtype)) for t in results]


def differing(name, ours_value, expected, allowed, types):
    """A sentence about how ours is wrong, or None."""
    if ours_value is None:
        return f"{name} is missing"
    if ours_value.shape != expected.shape:
        return f"{name} has shape {tuple(ours_value.shape)}, not {tuple(expected.shape)}"
    if type_in_program(ours_value.dtype) not in types or ours_value.dtype == torch.double:
        return f"{name} is {ours_value.dtype}, not {' or '.join(map(str, types))}"
    if expected.numel() == 0 or allowed is None:
        return None
    a, b = ours_value.double(), expected.double()
    finite = torch.isfinite(b)
    if not bool(torch.isfinite(a)[finite].all()):
        return f"{name} has elements that are not finite"
    if not bool(finite.any()):
        return None
    error = ((a - b)[finite]).abs().max().item()
    if error <= allowed:
        return None
    size = b[finite].abs().max().item()
    return f"{name} is off by {error:.3g} where {allowed:.3g} is allowed; its size is {size:.3g}"


def distance(a, b):
    """The largest difference; infinite where one is not finite or of another form."""
    if a.shape != b.shape or a.numel() == 0:
        return math.inf if a.shape != b.shape else 0.0
    difference = (a.double() - b.double()).abs().max().item()
    return difference if math.isfinite(difference) else math.inf


class Judge:
    """What is right for one network, and how much may differ from it."""

    def __init__(self, network):
        self.network, self.precision = network, precision_of(network)
        self.legal = True  # by PyTorch's rules for the types of operands
        self.expected = exact(network)
        self.types = self.types_of_values()
        self.distances = {name: 0.0 for name in self.expected.values}
        self.wide = {name: 0.0 for name in self.expected.values}
        self.move(2, self.precision.rounding, self.distances)

    def types_of_values(self):
        """The types that each may have."""
        if not self.network.settings.halves:
            return {n: (type_in_program(t.dtype),) for n, t in self.expected.values.items()}
        model, (batch, *_) = made(self.network)
        results = types_of_results(self.network)
        self.legal = results is not None
        types = {f"parameter {n}": (p.dtype,) for n, p in model.named_parameters()}
        types |= {f"buffer {n}": (type_in_program(b.dtype),) for n, b in model.named_buffers()}
        given = {i.name: (type_in_program(t.dtype),) for i, t in zip(self.network.inputs, batch)}
        for name, t in self.expected.values.items():
            kind, which, *_ = name.split()
            if kind == "input":
                types[name] = given[which]
            elif kind == "output" and results is not None:
                types[name] = (results[int(which)],)
            elif kind == "output":
                either = t.is_floating_point()
                types[name] = tuple(ONE_UP)[:2] if either else (type_in_program(t.dtype),)
        return types

    def move(self, times, amount, distances, seed=0):
        for k in range(times):
            moving = Moved(amount, 1000 * seed + k, self.precision.dtype)
            moved = exact(self.network, moving).values
            for name, value in self.expected.values.items():
                distances[name] = max(distances[name], distance(moved[name], value))

    def widen(self):
        """Looks harder for jumps, before a verdict."""
        self.move(8, self.precision.rounding, self.distances, seed=1)
        for k, amount in enumerate(self.precision.wide):
            self.move(8, amount, self.wide, seed=2 + k)

    def allowed(self, name):
        """None where anything may come."""
        rounding = self.rounding(name)
        return None if rounding is None else rounding * slack()

    def rounding(self, name):
        """How far rounding may have gone."""
        t = self.expected.values[name]
        if not bool(torch.isfinite(t.double()).all()):
            return None
        size = t.double().abs().max().item() if t.numel() else 0.0
        p = self.precision
        moved = max(p.factor * self.distances[name], 2 * self.wide[name])
        if not math.isfinite(moved) or size > 1e30:
            return None
        if not t.is_floating_point():
            return moved
        rounds = self.network.settings.calls * self.network.settings.iterations
        before = self.expected.weights_before.get(name[len("parameter ") :])
        if before is None:
            return moved + p.floor * size + p.nothing
        change = (t - before).abs().max().item()
        start = before.abs().max().item()
        return moved + rounds * (p.stored * max(size, start) + 2 * p.floor * change) + p.nothing

    def verdicts(self, run):
        found = [
            differing(name, run.values.get(name), value, self.allowed(name), self.types[name])
            for name, value in self.expected.values.items()
        ]
        found = [sentence for sentence in found if sentence]
        extra = set(run.values) - set(self.expected.values)
        return found + [f"{name} is too many" for name in sorted(extra)]

    def judge(self, run):
        """Sentences about what is wrong with a run."""
        found = self.verdicts(run)
        if found and not any(self.wide.values()):
            self.widen()
            found = self.verdicts(run)
        return found


def same_bits(first, second):
    """Sentences about what differs at all between two runs."""
    wrong = []
    for name, value in first.values.items():
        other = second.values.get(name)
        if other is None or not torch.equal(nothing_special(value), nothing_special(other)):
            wrong.append(f"{name} depends on the number of threads")
    return wrong


def nothing_special(t):
    return torch.nan_to_num(t) if t.is_floating_point() else t


__all__ = """
Illegal Judge Moved Run exact made ours part_of_instance same_bits
""".split()
