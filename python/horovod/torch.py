"""Horovod's words, for programs that average over instances.

    import horovod.torch as hvd

    hvd.init()
    loss = hvd.allreduce(loss)
    if hvd.rank() == 0:
        print(loss)

The instances are popdist's, and so is the link between them. With one process every collective
gives back what it was given. This is no package of its own but a part of the name `horovod`: where
Horovod itself is installed, wherever that is on the path, Python imports Horovod.
"""

import pickle as _pickle
from typing import Any, Dict, Iterable, List, Mapping, NoReturn, Optional, Tuple, TypeVar, Union

import torch as _torch
from poptorch import poptorch_core as _core

_Object = TypeVar("_Object")
_Parameters = Union[Mapping[str, Any], Iterable[Tuple[str, Any]]]

# What is done with the tensors of all processes.
Average, Sum, Adasum, Min, Max, Product = range(6)

_initialized = False


_REDUCTIONS = {
    Average: _core.Reduction.sum,
    Sum: _core.Reduction.sum,
    Min: _core.Reduction.min,
    Max: _core.Reduction.max,
    Product: _core.Reduction.product,
}


class Compression:
    """Types that tensors travel in."""

    none = "none"
    fp16 = "fp16"


def init(*_: Any, **__: Any) -> None:
    """Join the other processes, as popdist.init() does."""
    global _initialized
    _core.popdist_init()
    _initialized = True


def shutdown() -> None:
    """Leave the other processes."""
    global _initialized
    _initialized = False


def is_initialized() -> bool:
    """Whether init() was called."""
    return _initialized


def _check_initialized() -> None:
    if not _initialized:
        raise ValueError("Horovod has not been initialized; use hvd.init().")


def _hosts() -> List[str]:
    """The machine of each process."""
    _check_initialized()
    return _core.instance_hosts()


def rank() -> int:
    """The number of this process, from 0."""
    _check_initialized()
    return _core.instance_index()


def size() -> int:
    """How many processes there are."""
    return len(_hosts())


def local_rank() -> int:
    """The number of this process among those on this machine."""
    hosts = _hosts()
    return hosts[: rank()].count(hosts[rank()])


def local_size() -> int:
    """How many processes there are on this machine."""
    hosts = _hosts()
    return hosts.count(hosts[rank()])


def cross_rank() -> int:
    """The number of this machine."""
    hosts = _hosts()
    return list(dict.fromkeys(hosts)).index(hosts[rank()])


def cross_size() -> int:
    """How many machines there are."""
    return len(set(_hosts()))


def _check_tensor(tensor: Any) -> None:
    _check_initialized()
    if not isinstance(tensor, _torch.Tensor):
        raise TypeError(f"a torch.Tensor is needed, not {type(tensor).__name__}")


def _check_root(root_rank: int) -> None:
    _check_initialized()
    if not 0 <= root_rank < size():
        raise ValueError(
            f"there is no process {root_rank} to broadcast from; there are {size()}, from 0 on"
        )


def _check_set(process_set: Any) -> None:
    if process_set is not None:
        raise ValueError(
            "process_set is not supported; popdist.execute_on_instances() calls a function on some "
            "of the instances"
        )


def _reduction(average: Optional[bool], op: Optional[int]) -> int:
    if average is not None and op is not None:
        raise ValueError("op is the newer word for average: give one of them, not both")
    if op is None:
        return Sum if average is False else Average
    if op not in range(6):
        raise ValueError(
            "op must be one of horovod.torch.Average, Sum, Adasum, Min, Max and Product"
        )
    if op == Adasum and size() > 1:
        raise ValueError("op=Adasum is not supported; use Average or Sum")
    return op


def allreduce(
    tensor: _torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> _torch.Tensor:
    """The mean (or `op`) of the tensor over all processes, as a new tensor."""
    _check_tensor(tensor)
    _check_set(process_set)
    wanted = _reduction(average, op)
    if size() == 1:
        return _scaled(tensor.clone(), prescale_factor * postscale_factor)
    sent = _scaled(tensor.detach(), prescale_factor)
    if compression == Compression.fp16 and sent.is_floating_point():
        sent = sent.half()
    result = _core.instances_reduce(
        sent, _REDUCTIONS[wanted], wanted == Average, _called("hvd.allreduce", name)
    )
    return _scaled(result.to(tensor.dtype), postscale_factor)


def _scaled(tensor: _torch.Tensor, factor: float) -> _torch.Tensor:
    return tensor if factor == 1 else (tensor * factor).to(tensor.dtype)


def _called(function: str, name: Optional[str]) -> str:
    return f"{function} of '{name}'" if name else function


def allreduce_(tensor: _torch.Tensor, *args: Any, **kwargs: Any) -> _torch.Tensor:
    """The same, into the tensor itself."""
    with _torch.no_grad():
        return tensor.copy_(allreduce(tensor, *args, **kwargs))


def grouped_allreduce(
    tensors: Iterable[_torch.Tensor], *args: Any, **kwargs: Any
) -> List[_torch.Tensor]:
    """allreduce() of each of the tensors."""
    return [allreduce(tensor, *args, **kwargs) for tensor in tensors]


def grouped_allreduce_(
    tensors: Iterable[_torch.Tensor], *args: Any, **kwargs: Any
) -> List[_torch.Tensor]:
    """allreduce_() of each of the tensors."""
    return [allreduce_(tensor, *args, **kwargs) for tensor in tensors]


def allgather(
    tensor: _torch.Tensor, name: Optional[str] = None, process_set: Any = None
) -> _torch.Tensor:
    """The tensors of all processes, one after the other along dimension 0."""
    _check_tensor(tensor)
    _check_set(process_set)
    return _core.instances_gather(tensor, _called("hvd.allgather", name))


def allgather_object(
    obj: _Object, name: Optional[str] = None, process_set: Any = None
) -> List[_Object]:
    """The objects of all processes."""
    _check_initialized()
    _check_set(process_set)
    if size() == 1:
        return [obj]
    gathered = _core.instances_gather_bytes(
        _pickle.dumps(obj), _called("hvd.allgather_object", name)
    )
    return [_pickle.loads(data) for data in gathered]


def broadcast(
    tensor: _torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None
) -> _torch.Tensor:
    """The tensor of process root_rank, as a new tensor."""
    _check_tensor(tensor)
    _check_root(root_rank)
    _check_set(process_set)
    return _core.instances_broadcast(tensor, root_rank, _called("hvd.broadcast", name))


def broadcast_(
    tensor: _torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None
) -> _torch.Tensor:
    """The same, into the tensor itself."""
    with _torch.no_grad():
        return tensor.copy_(broadcast(tensor, root_rank, name, process_set))


def broadcast_object(
    obj: _Object, root_rank: int = 0, name: Optional[str] = None, process_set: Any = None
) -> _Object:
    """The object of process root_rank."""
    _check_root(root_rank)
    _check_set(process_set)
    if size() == 1:
        return obj
    own = _pickle.dumps(obj) if rank() == root_rank else b""
    gathered = _core.instances_gather_bytes(own, _called("hvd.broadcast_object", name))
    return obj if rank() == root_rank else _pickle.loads(gathered[root_rank])


def broadcast_parameters(params: _Parameters, root_rank: int, process_set: Any = None) -> None:
    """Give all processes the parameters of root_rank: a state_dict() or named_parameters()."""
    _check_root(root_rank)
    _check_set(process_set)
    try:
        pairs = list(params.items() if isinstance(params, Mapping) else params)
        named = [(str(name), value) for name, value in pairs]
    except (TypeError, ValueError):
        raise ValueError(
            "broadcast_parameters takes a state_dict() or named_parameters(), not "
            f"{type(params).__name__}"
        ) from None
    for name, value in named:
        if isinstance(value, _torch.Tensor) and size() > 1:
            broadcast_(value, root_rank, name)


def broadcast_optimizer_state(
    optimizer: _torch.optim.Optimizer, root_rank: int, model: Any = None, process_set: Any = None
) -> None:
    """Give all processes the state of root_rank's optimiser."""
    _check_root(root_rank)
    _check_set(process_set)
    if size() > 1:
        optimizer.load_state_dict(broadcast_object(optimizer.state_dict(), root_rank))


def barrier(process_set: Any = None) -> None:
    """Wait until all processes are here."""
    _check_initialized()
    _check_set(process_set)
    _core.instances_meet("hvd.barrier")


def join(device: int = -1) -> int:
    """Wait until all processes are here; the number of the last one."""
    barrier()
    return size() - 1


_HANDLES: Dict[int, _torch.Tensor] = {}


def _handle_of(tensor: _torch.Tensor) -> int:
    handle = max(_HANDLES, default=-1) + 1
    _HANDLES[handle] = tensor
    return handle


def allreduce_async(tensor: _torch.Tensor, *args: Any, **kwargs: Any) -> int:
    """Begin an allreduce(); a handle for synchronize()."""
    return _handle_of(allreduce(tensor, *args, **kwargs))


def allreduce_async_(tensor: _torch.Tensor, *args: Any, **kwargs: Any) -> int:
    """Begin an allreduce_(); a handle for synchronize()."""
    return _handle_of(allreduce_(tensor, *args, **kwargs))


def allgather_async(tensor: _torch.Tensor, *args: Any, **kwargs: Any) -> int:
    """Begin an allgather(); a handle for synchronize()."""
    return _handle_of(allgather(tensor, *args, **kwargs))


def broadcast_async(tensor: _torch.Tensor, *args: Any, **kwargs: Any) -> int:
    """Begin a broadcast(); a handle for synchronize()."""
    return _handle_of(broadcast(tensor, *args, **kwargs))


def poll(handle: int) -> bool:
    """Whether what was begun is done."""
    return True


def synchronize(handle: int) -> _torch.Tensor:
    """Wait for what was begun; its result."""
    if handle not in _HANDLES:
        raise ValueError(f"{handle!r} is no handle of something that was begun")
    return _HANDLES.pop(handle)


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(
        f"this horovod.torch has no '{name}': it comes with Tessera and has what programs for "
        "PopDist need; with Horovod installed, Python imports Horovod in its place"
    )
