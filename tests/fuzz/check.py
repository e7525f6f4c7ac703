"""Looks at one network: is it right, and does it stay so with other threads, passes and kernels?"""

import dataclasses
import random
import re
from typing import Tuple

import poptorch
import torch
from network import HALVES
from referee import COMPILED, Illegal, Judge, ours, same_bits

PASSES = (
    "remove_dead canonicalize fold_constants merge_duplicates split_norms fuse_losses "
    "fuse_elementwise fuse_updates fuse_epilogues recompute"
).split()

KERNELS = (
    "narrow batch8 few_channels winograd_4 winograd_2 runs onednn_channels onednn_conv "
    "onednn_channels_input_grad onednn_conv_input_grad onednn_channels_weight_grad "
    "onednn_conv_weight_grad packed onednn_matmul packed_linear generated avx2_cross_entropy "
    "avx2_cross_entropy_backward avx2_avg_pool avx2_avg_pool_backward avx2_group_norm "
    "avx2_group_norm_backward avx2_layer_norm avx2_layer_norm_backward avx2_max_pool "
    "avx2_max_pool_backward avx2_mean avx2_sum avx2_moments avx2_nll_loss avx2_nll_loss_backward "
    "avx2_nearest avx2_nearest_backward avx2_bilinear avx2_bilinear_backward avx2_softmax "
    "avx2_log_softmax avx2_softmax_backward avx2_log_softmax_backward avx2"
).split()

BASE = {"TESSERA_NUM_THREADS": "1"}
TWO_THREADS = {"TESSERA_NUM_THREADS": "2"}

# What we may say to a program that PyTorch runs.
REFUSALS = re.compile(r"whose elements share memory")
# PyTorch's own formulas for some gradients, which have no halves.
REFUSED_BY_PYTORCH = re.compile(r"logcumsumexp_backward\" not implemented for 'Half'")


@dataclasses.dataclass(frozen=True)
class Failure:
    kind: str  # stays the same while the network is made smaller
    message: str
    variant: Tuple[Tuple[str, str], ...] = ()


def variants(seed):
    """One or two environments that a network is tried in as well, parts in half precision, or how
    many replicas."""
    r = random.Random(seed * 7919 + 1)
    everything = ",".join(KERNELS)
    choices = [
        TWO_THREADS,
        TWO_THREADS,
        {"TESSERA_DISABLE_PASSES": r.choice(PASSES)},
        {"TESSERA_DISABLE_PASSES": ",".join(PASSES)},
        {"TESSERA_DISABLE_KERNELS": r.choice(KERNELS)},
        {"TESSERA_DISABLE_KERNELS": r.choice(KERNELS)},
        {"TESSERA_DISABLE_KERNELS": ",".join(r.sample(KERNELS, len(KERNELS) // 2))},
        {"TESSERA_DISABLE_KERNELS": everything},
        {"TESSERA_CPU_LEVEL": "portable"},
        {"TESSERA_AUTOTUNE": "1"},
        {"TESSERA_CHECK": "1"},
        {"halves": r.choice(list(HALVES))},
        {"replicas": r.choice("234")},
    ]
    if hasattr(torch, "compile"):
        choices.append({COMPILED: "1"})
    return r.sample(choices, r.choice([1, 1, 2]))


def error_kind(error):
    """The type and the sentence without names and numbers."""
    sentence = re.sub(r"(In )?\S+:\d+: |'poptorch_\w+': ", "", str(error).strip().split("\n")[0])
    sentence = re.sub(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\([^)]*\)|[\d.]+", "", sentence)
    return f"error: {type(error).__name__}: {sentence[:60]}"


def attempted(network, variables):
    """A run, or the Failure that came instead."""
    try:
        return ours(network, {**BASE, **variables})
    except Illegal:
        raise
    except (Exception, SystemExit) as error:
        refused = isinstance(error, poptorch.Error) and REFUSALS.search(str(error))
        if refused or REFUSED_BY_PYTORCH.search(str(error)):
            raise Illegal(str(error)) from error
        variant = tuple(variables.items())
        return Failure(error_kind(error), f"{type(error).__name__}: {error}", variant)


def with_replicas(network, variables):
    """As examine() says, of the network with so many replicas, also under our own referee."""
    if network.settings.replicas > 1:
        return None
    more = network.with_replicas(variables["replicas"])
    if more is None:
        return None
    try:
        failure = examine(more, [TWO_THREADS, {"TESSERA_CHECK": "1"}])
    except Illegal:
        return None
    if failure is None:
        return None
    kind = f"{failure.kind} with replicas"
    return Failure(kind, failure.message, failure.variant + tuple(variables.items()))


def in_half(network, variables):
    """As examine() says, of the network with those parts of it in half precision."""
    if network.settings.halves:
        return None
    try:
        failure = examine(network.with_halves(variables["halves"]), [])
    except Illegal:
        return None
    if failure is None:
        return None
    return Failure(f"{failure.kind} in half", failure.message, tuple(variables.items()))


def examine(network, chosen=None):
    """The first Failure of a network, or None. Illegal where PyTorch does not run it.

    `chosen` are the environments to try besides the plain one.
    """
    judge = Judge(network)
    base = attempted(network, {})
    if isinstance(base, Failure):
        if not judge.legal:
            raise Illegal(base.message)
        return base
    wrong = judge.judge(base)
    if wrong:
        return Failure("wrong", "\n".join(wrong))
    for variables in variants(network.seed) if chosen is None else chosen:
        if "halves" in variables:
            failure = in_half(network, variables)
            if failure:
                return failure
            continue
        if "replicas" in variables:
            failure = with_replicas(network, variables)
            if failure:
                return failure
            continue
        if COMPILED in variables and (network.settings.halves or network.settings.replicas > 1):
            continue  # PyTorch itself looks at these, and refuses what it has no kernel for
        try:
            run = attempted(network, variables)
        except Illegal:
            continue  # torch.compile() refuses more than eager does
        if isinstance(run, Failure):
            return run
        if "TESSERA_NUM_THREADS" in variables:
            wrong, kind = same_bits(base, run), "threads"
        else:
            wrong, kind = judge.judge(run), "wrong"
        if wrong:
            return Failure(
                f"{kind} with {sorted(variables)}", "\n".join(wrong), tuple(variables.items())
            )
    return None
