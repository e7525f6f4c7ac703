"""The Python face of an executor: argument binding, attribute forwarding, wrapping."""

import collections.abc
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch

from . import _process, _saving, _structure, _wrapping, optim, poptorch_core
from ._annotations import blocks_of_forward
from ._arguments import Bound, Signature, difference, in_order_of
from ._capture import capturing, keeping_registered
from ._inspection import Inspection
from ._logging import logger
from ._module_repr import module_repr
from ._optimizer import Watch
from ._parameter_proxy import ParameterProxy
from .options import Options


class PoplarExecutor(Inspection):
    """A model that runs as one static program. Made by trainingModel() and inferenceModel()."""

    _user_model: torch.nn.Module

    def __init__(
        self,
        model: Union[torch.nn.Module, "PoplarExecutor"],
        options: Optional[Options],
        training: bool,
        optimizer: Optional[torch.optim.Optimizer] = None,
    ):
        if options is None:
            options = Options()
        if not isinstance(options, Options):
            raise poptorch_core.Error(
                f"options must be poptorch.Options, not {type(options).__name__}"
            )
        if isinstance(model, PoplarExecutor):
            model = model._user_model
        assert isinstance(
            model, torch.nn.Module
        ), f"the model must be a torch.nn.Module, not {type(model).__name__}"
        if training and _wrapping.is_wrapped(model):
            raise RuntimeError(
                "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() "
                "on the model to unwrap before wrapping again; inferenceModel() takes it as it is"
            )
        self._user_model = model
        self._watch = Watch(optimizer) if isinstance(optimizer, torch.optim.Optimizer) else None
        # Shares parameters, buffers and sub-modules; has the training flag of this moment.
        self._traced = _wrapping.shallow_copy(model)
        self._training = training
        self._groupings: Dict[str, tuple] = {}  # what replicaGrouping() was told of parameters
        self._inputs: Optional[Bound] = None  # of the call that was compiled for,
        self._compiled_for: Optional[Bound] = None  # and what others are compared with
        self._output_structure: Any = None
        self._ipus = 1  # over which forward's blocks were spread
        self._modes: Dict[str, bool] = {}  # of the modules when they were compiled
        # Calls with nothing but tensors skip what others need; see __call__.
        self._tensors_only = False
        self._returns_tuple = False
        self._returns_tensor = False
        self._signature: Any = None
        self._weight_tables: tuple = ()  # of the module that is compiled
        self._optimizer = optimizer
        # The core must not keep us alive: nobody could see that circle and free it.
        this: Any = weakref.ref(self)
        self._core = poptorch_core.Executor(
            training,
            _wrapping.class_name(model),
            lambda: _wrapping.named_weights(this()._traced, "parameters"),
            lambda: _wrapping.named_weights(this()._traced, "buffers"),
            lambda tensors: this()._forward(tensors),
            lambda: _structure.described(this()._output_structure),
            lambda: this()._ipus,
            options._core,
            optim.described(optimizer) if optimizer is not None else None,
        )
        # The executor's own, frozen: where it changes one, that is seen here.
        self._options = options._over(self._core.options)
        if training:
            _wrapping.wrap(model, self)
        self._own = frozenset(self.__dict__)  # all others are the user's
        _process.open_executors.add(self)

    def _forward(self, tensors):
        self._modes = self._modes_of_modules()
        with capturing(self._traced):
            self._output_structure, outputs = self._run_module(self._inputs, tensors)
        self._returns_tuple = _structure.is_tuple_of_tensors(self._output_structure)
        self._returns_tensor = _structure.is_tensor(self._output_structure)
        return outputs

    def _run_module(self, bound: Bound, tensors):
        """The structure and the tensors of what the module returns."""
        args, kwargs = bound.rebuild(tensors)
        with blocks_of_forward() as blocks:
            result = self._traced(*args, **kwargs)
        strategy = self._options._execution_strategy
        self._ipus = strategy._ipus_of_a_replica(blocks)
        stages = strategy._pipeline_stages(blocks)
        poptorch_core.check_pipeline(self._options._core, stages, self._training)
        outputs: List[torch.Tensor] = []
        structure = _structure.flatten(result, outputs)
        _check_outputs(structure, outputs)
        return structure, outputs

    def _modes_of_modules(self):
        return {name: module.training for name, module in self._traced.named_modules()}

    def _run_inside(self, args, kwargs):
        """A call while another model is captured: this one becomes a part of its program."""
        bound = self._signature_of_forward().bind(args, kwargs, whole_batch=True)
        if self._core.isCompiled():
            self._core.weights_were_replaced()  # perhaps
            if self._modes != self._modes_of_modules():
                raise poptorch_core.Error(
                    "a wrapped model that forward calls was compiled before some of its modules "
                    "changed between eval() and train(); change them back, or call destroy() on "
                    "the wrapped model"
                )
        structure = None

        def forward(tensors):
            nonlocal structure
            with keeping_registered(self._traced):
                structure, outputs = self._run_module(bound, tensors)
            return outputs

        results = self._core.run_inside(list(zip(bound.names, bound.tensors)), forward)
        return _structure.rebuild(structure, iter(results))

    def _signature_of_forward(self) -> Signature:
        forward = self._traced.forward
        if self._signature is None or self._signature[0] != forward:
            self._signature = (forward, Signature(forward))
        return self._signature[1]

    def _prepared(self, args, kwargs):
        """The tensors of a call, with their names."""
        poptorch_core.Executor.check_callable()
        signature = self._signature_of_forward()
        bound = signature.bind(args, kwargs, self._core.micro_batches() == 1)
        for tensor in bound.tensors:
            _wrapping.sync(tensor)
        if not self._core.isCompiled():
            self._prepare_compilation(signature, bound)
        else:
            if not poptorch_core.holds_the_same(self._weight_tables):
                self._follow_module()
            differs = difference(self._compiled_for, bound)
            if differs:
                bound = in_order_of(self._compiled_for, bound)
                differs = difference(self._compiled_for, bound)
            if differs:
                raise poptorch_core.Error(
                    f"{differs} The model was compiled for other arguments; call destroy() or "
                    "wrap the model again to compile it for these"
                )
        return list(zip(bound.names, bound.tensors))

    def _prepare_compilation(self, signature, bound):
        _check_plain([*zip(bound.names, bound.tensors), *self._traced.named_parameters()])
        self._inputs = bound._replace(
            positional=_structure.noting_order(bound.positional),
            by_name=_structure.noting_order(bound.by_name),
            tensors=[],  # they are not ours to keep
        )
        # Users may change a list that they passed, and pass it again.
        self._compiled_for = self._inputs._replace(
            positional=_structure.snapshot(self._inputs.positional),
            by_name=_structure.snapshot(self._inputs.by_name),
        )
        self._tensors_only = signature.tensors_alone(bound)
        if _structure.has_mapping(bound.positional) or any(
            _structure.has_mapping(child) for child in getattr(bound.by_name, "children", ())
        ):
            logger.warning(
                "a dict as an argument has only partial support: its keys are part of the program, "
                "and other keys later mean another program; consider a tuple"
            )
        self._follow_module()  # destroy() may have unwrapped it, or it have got other weights

    def _follow_module(self):
        """Take note of the parameters, buffers and sub-modules that the module has now."""
        if self._training:
            _wrapping.wrap(self._user_model, self)
        self._core.weights_were_replaced()
        self._weight_tables = _wrapping.tables_of(self._traced)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run all micro-batches in the arguments; return what forward returns.

        In the forward of another model, an inference executor becomes a part of its program.
        """
        if poptorch_core.is_capturing():
            return self._run_inside(args, kwargs)
        if self._watch is not None:
            self._watch.look()
        results = None
        if self._tensors_only and not kwargs:
            results = self._core.run_tensors(args, self._weight_tables)
        if results is None:
            results = self._core.run(self._prepared(args, kwargs))
        elif self._returns_tuple:
            return results
        if self._returns_tensor:
            return results[0]
        return _structure.rebuild(self._output_structure, iter(results))

    def _group_replicas(self, parameter: str, *grouping: Any) -> None:
        self._core.replicaGrouping(parameter, *grouping)
        self._groupings[parameter] = grouping

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for these arguments, which are those of a call."""
        compiled = self._core.isCompiled()  # then it only warns
        self._core.compile([] if compiled else self._prepared(args, kwargs))

    def compileAndExport(
        self, filename: str, *args: Any, export_model: bool = True, **kwargs: Any
    ) -> None:
        """Compile for these arguments, and save() the result."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model)

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the compiled program to a file, with the weights, the optimiser and its state.

        With `export_model`, poptorch.load() makes the model from it again, which must be picklable
        then; without, loadExecutable() takes the program for a model that was wrapped. Missing
        folders are made; a folder as the name stands for `model.poptorch` in it.
        """
        _saving.save(self, filename, export_model, save_rng_state)

    def loadExecutable(self, filename: str) -> None:
        """Take the program of a file in place of compiling; Error where it is another model's.

        The weights are the module's. Nothing in the file is run.
        """
        _saving.take_program(self, _saving.opened(filename))

    def isCompiled(self) -> bool:
        """True between compiling and destroy()."""
        return self._core.isCompiled()

    def isAttachedToDevice(self) -> bool:
        """True while the weights are on the device."""
        return self._core.isAttachedToDevice()

    def attachToDevice(self) -> None:
        """Put weights, optimiser state and random state back on the device."""
        self._core.attachToDevice()

    def detachFromDevice(self) -> None:
        """Fetch everything from the device and free it; the next call attaches again."""
        self.copyWeightsToHostIfNeeded()
        self._core.detachFromDevice()

    def copyWeightsToHost(self) -> None:
        """Fetch parameters and buffers from the device."""
        self._core.copyWeightsToHost()

    def copyWeightsToDevice(self) -> None:
        """Send parameters and buffers to the device, after changing them on the host."""
        self._core.copyWeightsToDevice()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetch weights where the device has newer ones; True where it had."""
        fetch = self.copyWeightsToHost
        if getattr(fetch, "__func__", None) is PoplarExecutor.copyWeightsToHost:
            return self._core.copyWeightsToHostIfNeeded()
        outdated = self._core.host_is_outdated()
        if outdated:
            fetch()  # a derived class does more than we do
        return outdated

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Use the numbers of this optimiser from the next call on."""
        self._core.setOptimizer(optim.described(optimizer))
        self._optimizer = optimizer
        self._watch = Watch(optimizer)

    def destroy(self) -> None:
        """Free the program; the module keeps its weights. A later call compiles again."""
        if not self._core.isCompiled():
            return
        self.copyWeightsToHostIfNeeded()
        self._core.destroy()
        if self._training:
            _wrapping.unwrap(self._user_model, self)

    def load_state_dict(self, state_dict: Dict[str, torch.Tensor], strict: bool = True) -> Any:
        """Load into the module, and onto the device while attached.

        Returns the names of missing and of unexpected tensors, as the module does.
        """
        result = self._user_model.load_state_dict(state_dict, strict)
        if self._core.isAttachedToDevice():
            self._core.copyWeightsToDevice()
        return result

    def hostCalls(self) -> list:
        """Operators of the program that run PyTorch's own kernels, for lack of one of ours.

        One dictionary each: operator, nodes (in the program), runs and seconds (so far).
        """
        return self._core.hostCalls()

    @property
    def options(self) -> Options:
        """The executor's own, frozen options."""
        return self._options

    @property
    def model(self) -> torch.nn.Module:
        """The user's module (training), or the copy that is run (inference)."""
        return self._user_model if self._training else self._traced

    def to(self, *args: Any, **kwargs: Any) -> torch.nn.Module:
        """Move the user's module and return it: not the executor."""
        logger.warning(
            "to() of a wrapped model returns the module that was wrapped, not the executor; calls "
            "of what it returns run outside of the executor, without its program"
        )
        return self._user_model.to(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Only reached for what the executor does not have itself.
        if name.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self._user_model, name)
        if isinstance(value, torch.nn.Parameter) and name in self._user_model._parameters:
            return ParameterProxy(self, name, value)
        return value

    def __repr__(self) -> str:
        return module_repr(self._user_model)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles have the module, options, optimiser and random state, no program."""
        made_from, state = self._made_from()
        return restored, (type(self), *made_from, state)

    def _made_from(self) -> Tuple[tuple, Dict[str, Any]]:
        """What restored() makes an executor like this one of."""
        others = {k: v for k, v in self.__dict__.items() if k not in self._own and k != "_own"}
        state = {
            "rng_state": self._core.rng_state if self._core.isCompiled() else None,
            "modes": {"": self._traced.training},  # of the moment when it was wrapped
            "groupings": self._groupings,
            "others": others,
        }
        made_from = (self._user_model, self._options.clone(), self._training, self._optimizer)
        return made_from, state


def restored(
    kind: Any, model: Any, options: Options, training: bool, optimizer: Any, state: Dict[str, Any]
) -> PoplarExecutor:
    """Make an executor again of what _made_from() gave."""
    executor = kind.__new__(kind)
    PoplarExecutor.__init__(executor, model, options, training, optimizer)
    for name, mode in state["modes"].items():
        executor._traced.get_submodule(name).training = mode
    for name, grouping in state["groupings"].items():
        executor._group_replicas(name, *grouping)
    executor._core.restore_rng_state(state["rng_state"])
    executor.__dict__.update(state["others"])
    return executor


def _check_plain(named_tensors):
    for name, tensor in named_tensors:
        if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            raise poptorch_core.Error(
                f"'{name}' is a {type(tensor).__name__}, a tensor with operators of its "
                "own (__torch_dispatch__), which a program cannot follow; pass a plain torch.Tensor"
            )


def _hidden_tensors(value):
    """Tensors of an object that came back as a constant, with words for where they are."""
    if isinstance(value, (set, frozenset)):
        yield from ((item, "") for item in value if isinstance(item, torch.Tensor))
    for name, held in getattr(value, "__dict__", {}).items():
        tensors: List[torch.Tensor] = []
        _structure.flatten(held, tensors)
        yield from ((tensor, f" in its attribute '{name}'") for tensor in tensors)


def _check_outputs(structure, outputs):
    """What forward returned must be in our hands, and should have been computed."""
    for value in _structure.constants_in(structure):
        if isinstance(value, collections.abc.Iterator):
            raise poptorch_core.Error(
                f"forward returned a {type(value).__name__}, which can only be gone through once; "
                "return a tuple or a list"
            )
        for tensor, where in _hidden_tensors(value):
            if not poptorch_core.has_value(tensor):
                raise poptorch_core.Error(
                    f"forward returned an object of type {type(value).__name__} with a tensor"
                    f"{where}, which would have no values; return the tensor itself, or teach "
                    "poptorch.registerCustomArgParser() the type"
                )
    for tensor in outputs:
        if poptorch_core.has_value(tensor) and not poptorch_core.made_in_forward(tensor):
            warnings.warn(
                f"Output expected to be on the IPU but is on {tensor.device.type}: forward "
                "returned a tensor that was there before; it is returned as it was when the model "
                "was compiled",
                stacklevel=2,
            )


def trainingModel(
    model: Union[torch.nn.Module, PoplarExecutor],
    options: Optional[Options] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
) -> PoplarExecutor:
    """Wrap a model for training. Its forward must compute a loss.

    Calls run forward, loss, backward and update. Without an optimiser SGD with lr=0.01 is used.
    The model may also be an executor: its module is wrapped. A module that another training
    executor still wraps is a RuntimeError.
    """
    return PoplarExecutor(model, options, training=True, optimizer=optimizer)


def inferenceModel(
    model: Union[torch.nn.Module, PoplarExecutor], options: Optional[Options] = None
) -> PoplarExecutor:
    """Wrap a model for inference. It may be one that is wrapped for training: weights flow over.

    It may also be an executor: its module is wrapped.
    """
    return PoplarExecutor(model, options, training=False)


def load(filename: str, edit_opts_fn: Optional[Callable[[Options], None]] = None) -> PoplarExecutor:
    """Make a model and its executor again from a file that was saved with export_model=True.

    `edit_opts_fn` is called with the options before the model is wrapped. The file holds pickled
    objects, which can run code when they are loaded: only load files that you trust.
    """
    saved = _saving.opened(filename)
    made_from, arguments = _saving.unpickled(saved)
    kind, model, options, training, optimizer, state = made_from
    poptorch_core.drop_offline_target(options._core)
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    executor = restored(kind, model, options, training, optimizer, state)
    _saving.take_program(executor, saved, arguments, optimizer_state=training)
    return executor
