"""torch.compile(model, backend="tessera"): what AOTAutograd captures runs as programs of ours.

TorchDynamo finds this module by its entry point. It hands over the graph of a stretch of Python;
AOTAutograd makes two of it, forward and backward, in which parameters are inputs and nothing is
changed in place. Each becomes a program, and another one for other shapes.
"""

import collections
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from ._executor import PoplarExecutor, inferenceModel
from ._logging import logger
from .options import Options
from .poptorch_core import Error

# Programs of a graph that are kept: the one that was used longest ago makes room.
MOST_PROGRAMS = 16

# What a program has of its own; with other types PyTorch runs the graph itself.
_TYPES = {
    torch.float32,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
}


def tessera(graph: torch.fx.GraphModule, example_inputs: List[Any], **settings: Any) -> Callable:
    """The backend: a function that runs `graph`, with gradients where they are asked for."""
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch.nn.attention import SDPBackend, sdpa_kernel

    options = _options_of(settings)

    def compiler(part: torch.fx.GraphModule, _examples: List[Any]) -> Callable:
        return make_boxed_func(Programs(part, options))

    # Fewer values pass from forward to backward than autograd itself would keep: each is copied.
    compiled = aot_autograd(fw_compiler=compiler, partition_fn=min_cut_rematerialization_partition)
    with sdpa_kernel(SDPBackend.MATH):  # attention in parts that have rows
        return compiled(graph, example_inputs)


def _options_of(settings: Dict[str, Any]) -> Options:
    """What stands behind options= of torch.compile(); mode= chooses among compilers we are not."""
    mode = settings.pop("mode", None)
    if mode not in (None, "default"):
        logger.warning("torch.compile(backend='tessera') has one mode; '%s' changes nothing", mode)
    given = settings.pop("options", None)
    if settings:
        raise Error(f"torch.compile(backend='tessera') knows no {', '.join(map(repr, settings))}")
    given = dict(given or {})
    options = given.pop("poptorch", None)
    if given:
        raise Error(
            "torch.compile(backend='tessera') takes options={'poptorch': poptorch.Options()}, not "
            f"{', '.join(map(repr, given))}"
        )
    if options is None:
        return Options().showCompilationProgressBar(False)
    if not isinstance(options, Options):
        raise Error(f"options['poptorch'] must be poptorch.Options, not {type(options).__name__}")
    return options


class Programs:
    """A graph of AOTAutograd, with a program for each set of shapes it was called with."""

    def __init__(self, graph: torch.fx.GraphModule, options: Options):
        self._graph = graph
        self._options = options
        self._by_shapes: Dict[tuple, Program] = collections.OrderedDict()
        self._only: Optional[Program] = None  # where TorchDynamo guards the shapes
        self._lock = threading.Lock()  # a program runs one call at a time
        refusal = _refusal(graph)
        if refusal:
            logger.warning("PyTorch runs a graph of torch.compile() itself: %s", refusal)
        self._runs_eagerly = bool(refusal) or not _computes(graph)
        if not self._runs_eagerly and _has_fixed_shapes(graph):
            self._only = Program(graph, options)

    def __call__(self, *args: Any) -> Tuple[Any, ...]:
        if self._runs_eagerly:
            return self._graph(*args)
        with self._lock, torch.no_grad():
            return (self._only or self._program(args))(args)

    def _program(self, args) -> "Program":
        key = tuple(
            (arg.dtype, arg.shape, arg.stride()) if isinstance(arg, torch.Tensor) else arg
            for arg in args
        )
        program = self._by_shapes.pop(key, None)
        if program is None:
            if len(self._by_shapes) == MOST_PROGRAMS:
                self._by_shapes.pop(next(iter(self._by_shapes))).executor.destroy()
            program = Program(self._graph, self._options)
        self._by_shapes[key] = program
        return program


class Program:
    """The graph for arguments of one shape."""

    def __init__(self, graph: torch.fx.GraphModule, options: Options):
        self._passed_on = _passed_on(graph)
        self._types = [_type_of(output) for output in _outputs(graph)]
        self._step = _Step(graph, self._passed_on)
        # Users of torch.compile() know no devices, and a model may have dozens of graphs: for the
        # model of an IPU they take none.
        options = options.clone().useIpuModel(True)
        self.executor: PoplarExecutor = inferenceModel(self._step, options)
        # Known once it is compiled, so that a call asks for little: which arguments are inputs,
        # with their strides where they are not dense, and what gives each result.
        self._inputs: List[Tuple[int, Optional[tuple]]] = []
        self._results: List[Callable] = []
        self._compiled = False

    def __call__(self, args: Tuple[Any, ...]) -> Tuple[Any, ...]:
        computed = self._run(args) if self._compiled else self._compiled_and_run(args)
        rest = iter(computed)
        return tuple([result(args, rest) for result in self._results])

    def _run(self, args):
        return self.executor(*[_memory_of(args[i], strides) for i, strides in self._inputs])

    def _compiled_and_run(self, args):
        self._inputs = [
            (i, None if arg.is_contiguous() else arg.stride())
            for i, arg in enumerate(args)
            if _is_input(arg)
        ]
        self._step.args[:] = args
        try:
            computed = self._run(args)
        finally:
            self._step.args.clear()  # not ours to keep
        rest = iter(computed)
        self._results = [self._result(place, rest) for place in range(len(self._passed_on))]
        self._compiled = True
        return computed

    def _result(self, place, computed):
        """A function of the arguments and of the rest of what was computed: the result."""
        given = self._passed_on[place]
        if given is not None:
            return lambda args, _: args[given]
        if place in self._step.constants:
            constant = self._step.constants[place]
            return lambda _, __: constant
        order, dtype = self._step.orders[place], self._types[place]
        if next(computed).dtype == dtype and order == sorted(order):
            return lambda _, rest: next(rest)
        return lambda _, rest: next(rest).permute(order).to(dtype)  # there are no 64-bit types


class _Step(torch.nn.Module):
    """The graph as a module of which only tensors are arguments and results."""

    def __init__(self, graph, passed_on):
        super().__init__()
        self.graph = graph
        # All are shared with the executor's copy of this module.
        self.args = []  # of the call that is captured
        self.constants = {}  # results that are no tensors
        self.orders = {}  # of the other results' dimensions
        self._passed_on = passed_on

    def forward(self, *tensors):
        given = iter(tensors)
        args = [_seen_as(arg, next(given)) if _is_input(arg) else arg for arg in self.args]
        results = []
        for place, (result, passed_on) in enumerate(zip(self.graph(*args), self._passed_on)):
            if passed_on is not None:
                continue
            if isinstance(result, torch.Tensor):
                # As it lies in memory: later graphs were made for these strides.
                order = sorted(range(result.dim()), key=lambda i: -result.stride(i))
                self.orders[place] = sorted(range(result.dim()), key=order.__getitem__)
                results.append(result.permute(order))
            else:
                self.constants[place] = result
        return tuple(results)


def _is_input(arg):
    return isinstance(arg, torch.Tensor) and arg.numel() > 0  # a program has no empty inputs


# Whether a graph may take a view() was decided by the strides of its arguments.
def _memory_of(arg, strides):
    """The memory that an argument of these strides looks at; itself where it is dense."""
    if arg.requires_grad:
        arg = arg.detach()
    if strides is None:
        return arg
    if arg.stride() != strides:
        arg = torch.empty_strided(arg.shape, strides, dtype=arg.dtype).copy_(arg)
    last = sum((size - 1) * stride for size, stride in zip(arg.shape, strides))
    return arg.as_strided((last + 1,), (1,))


def _seen_as(arg, memory):
    return memory if arg.is_contiguous() else memory.as_strided(arg.shape, arg.stride(), 0)


def _outputs(graph):
    return next(node for node in reversed(graph.graph.nodes) if node.op == "output").args[0]


def _passed_on(graph):
    """Of each result, which argument it is: backward's weights need not go through forward."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [inputs.index(output) if output in inputs else None for output in _outputs(graph)]


def _type_of(node):
    """The element type of a node that is a tensor."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def _has_fixed_shapes(graph):
    """Whether no size of an argument is a symbol: then every call has the same."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder":
            continue
        if not isinstance(value, torch.Tensor):
            return False
        if not all(isinstance(size, int) for size in (*value.shape, *value.stride())):
            return False
    return True


def _computes(graph):
    """Whether there is a tensor among the results that is no argument."""
    return any(
        given is None and _type_of(output) is not None
        for output, given in zip(_outputs(graph), _passed_on(graph))
    )


def _refusal(graph):
    """Why a program would not have the numbers that PyTorch has, or nothing."""
    for node in graph.graph.nodes:
        if "as_strided" in str(node.target):
            return f"'{node.name}' looks at memory beyond its argument"
        for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
            if not isinstance(value, torch.Tensor):
                continue
            if value.device.type != "cpu":
                return f"'{node.name}' is on {value.device.type}, programs are for the CPU"
            if value.dtype not in _TYPES:
                return f"'{node.name}' is {value.dtype}, which no program has yet"
    return None
