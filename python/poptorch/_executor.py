"""The Python face of an executor: argument binding, attribute forwarding, wrapping."""

import copy
import inspect
import weakref
from typing import Optional

import torch

from . import _structure, _wrapping, optim, poptorch_core
from ._capture import capturing
from ._inspection import Inspection
from .options import Options


class PoplarExecutor(Inspection):
    """A model that runs as one static program. Made by trainingModel() and inferenceModel()."""

    def __init__(self, model, options, training, optimizer=None):
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
                "This model has already been wrapped in a training executor; call destroy() on "
                "that one first, or pass the executor's model to inferenceModel()"
            )
        self._user_model = model
        # Shares parameters, buffers and sub-modules; has the training flag of this moment.
        self._traced = copy.copy(model)
        self._training = training
        self._input_structure = None
        self._output_structure = None
        # Calls with nothing but tensors skip what others need; see __call__.
        self._tensors_only = False
        self._returns_tuple = False
        self._signature = None
        # The core must not keep us alive: nobody could see that circle and free it.
        this = weakref.ref(self)
        self._core = poptorch_core.Executor(
            training,
            lambda: list(this()._traced.named_parameters()),
            lambda: list(this()._traced.named_buffers()),
            lambda tensors: this()._forward(tensors),
            options._core,
            optim.described(optimizer) if optimizer is not None else None,
        )
        # The executor's own, frozen: where it changes one, that is seen here.
        self._options = options._over(self._core.options)
        if training:
            _wrapping.wrap(model, self._core)

    def _forward(self, tensors):
        args, kwargs = _structure.rebuild(self._input_structure, iter(tensors))
        with capturing(self._traced):
            result = self._traced(*args, **kwargs)
        outputs = []
        self._output_structure = _structure.flatten(result, outputs)
        self._returns_tuple = _structure.is_tuple_of_tensors(self._output_structure)
        return outputs

    def _signature_of_forward(self):
        forward = self._traced.forward
        if self._signature is None or self._signature[0] != forward:
            self._signature = (forward, inspect.signature(forward))
        return self._signature[1]

    def _bind(self, args, kwargs):
        """Arguments by the signature of forward, defaults filled in, as (structure, tensors)."""
        signature = self._signature_of_forward()
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            missing = "missing" in str(error)
            raise (poptorch_core.Error if missing else AssertionError)(
                f"{error} of forward{signature}"
            ) from None
        tensors = []
        structure = _structure.flatten((bound.args, bound.kwargs), tensors)
        return structure, [(f"{i}", t) for i, t in enumerate(tensors)]

    def _prepared(self, args, kwargs):
        structure, tensors = self._bind(args, kwargs)
        if not self._core.isCompiled():
            self._input_structure = structure
            positional, by_name = structure
            self._tensors_only = not by_name and _structure.is_tuple_of_tensors(positional)
        elif not _structure.same(structure, self._input_structure):
            raise poptorch_core.Error(
                f"the model was compiled for arguments {self._input_structure}, this call has "
                f"{structure}; call destroy() or wrap the model again to compile it for others"
            )
        return tensors

    def __call__(self, *args, **kwargs):
        """Run all micro-batches in the arguments; return what forward returns."""
        results = None
        if self._tensors_only and not kwargs:
            results = self._core.run_tensors(args)
        if results is None:
            results = self._core.run(self._prepared(args, kwargs))
        elif self._returns_tuple:
            return results
        return _structure.rebuild(self._output_structure, iter(results))

    def compile(self, *args, **kwargs):
        """Compile for these arguments, which are those of a call."""
        self._core.compile(self._prepared(args, kwargs))

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
        self._core.detachFromDevice()

    def copyWeightsToHost(self) -> None:
        """Fetch parameters and buffers from the device."""
        self._core.copyWeightsToHost()

    def copyWeightsToDevice(self) -> None:
        """Send parameters and buffers to the device, after changing them on the host."""
        self._core.copyWeightsToDevice()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetch weights where the device has newer ones; True where it had."""
        return self._core.copyWeightsToHostIfNeeded()

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Use the numbers of this optimiser from the next call on."""
        self._core.setOptimizer(optim.described(optimizer))

    def destroy(self) -> None:
        """Free the program; the module keeps its weights. A later call compiles again."""
        if not self._core.isCompiled():
            return
        self._core.destroy()
        if self._training:
            _wrapping.unwrap(self._user_model)

    def load_state_dict(self, state_dict, strict=True):
        """Load into the module, and onto the device while attached."""
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

    def __getattr__(self, name):
        # Only reached for what the executor does not have itself.
        if name.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._user_model, name)

    def __repr__(self):
        return repr(self._user_model)


def trainingModel(
    model: torch.nn.Module,
    options: Optional[Options] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
) -> PoplarExecutor:
    """Wrap a model for training. Its forward must compute a loss.

    Calls run forward, loss, backward and update. Without an optimiser SGD with lr=0.01 is used.
    """
    return PoplarExecutor(model, options, training=True, optimizer=optimizer)


def inferenceModel(model: torch.nn.Module, options: Optional[Options] = None) -> PoplarExecutor:
    """Wrap a model for inference. It may be one that is wrapped for training: weights flow over."""
    return PoplarExecutor(model, options, training=False)
