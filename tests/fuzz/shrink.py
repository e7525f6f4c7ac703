"""Makes a failing network small: drops steps, options and sizes while it fails in the same way."""

import dataclasses
import re
import time

from network import Input, Settings, Step, returned_names, without


def changed(network, **changes):
    return dataclasses.replace(network, **changes)


def tidy(network):
    """Without steps and inputs that nothing needs, as far as names tell."""
    needed = set(returned_names(network.returned)) | {network.loss}
    kept = []
    for step in reversed(network.steps):
        if not step.outputs:  # changes something in place
            wanted = set(step.inputs) & needed or not step.inputs
        else:
            wanted = set(step.outputs) & needed
        if wanted:
            kept.append(step)
            needed.update(step.inputs)
    inputs = tuple(i for i in network.inputs if i.name in needed)
    return changed(network, steps=tuple(reversed(kept)), inputs=inputs or network.inputs[:1])


def renamed_from(network, position, old, new):
    """Everything from a step on reads another value."""
    steps = [s.renamed(old, new) if k >= position else s for k, s in enumerate(network.steps)]
    return changed(
        network,
        steps=tuple(steps),
        loss=new if network.loss == old else network.loss,
        returned=renamed_in(network.returned, old, new),
    )


def renamed_in(returned, old, new):
    if isinstance(returned, str):
        return new if returned == old else returned
    if isinstance(returned, dict):
        return {k: renamed_in(v, old, new) for k, v in returned.items()}
    return type(returned)(renamed_in(v, old, new) for v in returned)


def simpler_settings(network):
    s = network.settings
    first = Settings(training=s.training)
    if s != first:
        yield changed(network, settings=first)
    for field in dataclasses.fields(s):
        value = getattr(first, field.name)
        if getattr(s, field.name) != value and field.name not in ("numbers", "optimizer"):
            yield changed(network, settings=dataclasses.replace(s, **{field.name: value}))
    if s.optimizer != first.optimizer:
        plain = dataclasses.replace(s, optimizer=first.optimizer, numbers=first.numbers)
        yield changed(network, settings=plain)
    for k in range(len(s.numbers)):
        if s.numbers[k][0] != "lr":
            fewer = s.numbers[:k] + s.numbers[k + 1 :]
            yield changed(network, settings=dataclasses.replace(s, numbers=fewer))


def without_steps(network):
    """Halves, then single steps, then values replaced by what they were made of."""
    count = len(network.steps)
    for step in network.steps:  # ends earlier
        if network.settings.training and step.kind != "loss":
            for name in step.outputs:
                yield ended_at(network, name)
    for k, step in enumerate(network.steps):
        rest = changed(network, steps=network.steps[:k] + network.steps[k + 1 :])
        if not step.outputs:
            yield rest
        for name in step.outputs:
            for source in step.inputs:
                yield renamed_from(rest, k, name, source)
    if count:
        yield changed(network, settings=Settings(training=False), loss="")


def ended_at(network, name):
    """Trained on the mean of a value."""
    at = next(k for k, s in enumerate(network.steps) if name in s.outputs)
    later = [s for s in network.steps[at + 1 :] if not s.outputs]  # changes may matter
    for_loss = f'loss_ = poptorch.identity_loss({name}, reduction="mean")'
    steps = network.steps[: at + 1] + tuple(s for s in later if name in s.inputs)
    steps += (Step("loss", ("loss_",), (name,), for_loss),)
    made = {n for s in steps for n in s.outputs} | {i.name for i in network.inputs}
    names = [n for n in returned_names(network.returned) if n in made and n != network.loss]
    return changed(network, steps=steps, loss="loss_", returned=(*names, "loss_"))


def fewer_outputs(network):
    names = returned_names(network.returned)
    for name in dict.fromkeys(names):
        if name != network.loss and len(set(names)) > 1:
            yield changed(network, returned=without(network.returned, name))
    if not isinstance(network.returned, str):
        if len(names) == 1:
            yield changed(network, returned=names[0])
        elif network.returned != tuple(names):
            yield changed(network, returned=tuple(names))


def values_as_inputs(network, shapes):
    """A value becomes something the caller gives."""
    for k, step in enumerate(network.steps):
        for name in step.outputs:
            kind = shapes.get(name)
            if kind is None or step.kind == "loss" or len(kind[0]) == 0:
                continue
            steps = network.steps[:k] + network.steps[k + 1 :]
            given = Input(f"x{name}", *kind)
            whole = changed(network, steps=steps, inputs=network.inputs + (given,))
            yield renamed_from(whole, k, name, given.name)


OPTION = re.compile(r", \w+=(\([^()]*\)|\"[^\"]*\"|'[^']*'|[^,()]*)(?=[,)])")


def fewer_options(network):
    for k, step in enumerate(network.steps):
        texts = [step.line, *step.init]
        for t, text in enumerate(texts):
            for found in OPTION.finditer(text):
                shorter = text[: found.start()] + text[found.end() :]
                new = texts[:t] + [shorter] + texts[t + 1 :]
                made = dataclasses.replace(step, line=new[0], init=tuple(new[1:]))
                yield changed(network, steps=(*network.steps[:k], made, *network.steps[k + 1 :]))
    for k, given in enumerate(network.inputs):
        if given.transposed:
            plain = dataclasses.replace(given, transposed=False)
            yield changed(network, inputs=(*network.inputs[:k], plain, *network.inputs[k + 1 :]))


NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


def smaller_numbers(network):
    """One size everywhere it stands, or in one place, made smaller."""
    numbers = {n for i in network.inputs for n in i.shape}
    for step in network.steps:
        for text in (step.line, *step.init):
            numbers.update(map(int, NUMBER.findall(text)))
    for number in sorted((n for n in numbers if n > 1), reverse=True):
        for new in sorted({1, 2, 3, 8, number // 2, number - 1}):
            if 0 < new < number:
                yield with_number(network, number, new)
    for k, given in enumerate(network.inputs):
        for d, size in enumerate(given.shape):
            for new in sorted({1, 2, size // 2, size - 1}):
                if 0 < new < size:
                    shape = given.shape[:d] + (new,) + given.shape[d + 1 :]
                    other = dataclasses.replace(given, shape=shape)
                    inputs = (*network.inputs[:k], other, *network.inputs[k + 1 :])
                    yield changed(network, inputs=inputs)


def with_number(network, old, new):
    def put(text):
        return NUMBER.sub(lambda m: str(new) if int(m[0]) == old else m[0], text)

    steps = tuple(
        dataclasses.replace(s, line=put(s.line), init=tuple(map(put, s.init)))
        for s in network.steps
    )
    inputs = tuple(
        dataclasses.replace(
            i,
            shape=tuple(new if n == old else n for n in i.shape),
            kind=new if i.kind == old else i.kind,
        )
        for i in network.inputs
    )
    return changed(network, steps=steps, inputs=inputs)


def shapes_of(network):
    """What each value is, from a run in PyTorch."""
    import poptorch
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.manual_seed(network.seed)
    scope = {"self": nn.Module(), "torch": torch, "nn": nn, "F": F, "poptorch": poptorch}
    shapes = {}
    try:
        for line in network.batch(1):
            exec(line, scope)
        with torch.no_grad():
            for step in network.steps:
                for line in (*step.init, step.line):
                    exec(line, scope)
                for name in step.outputs:
                    t = scope[name]
                    if t.is_floating_point():
                        shapes[name] = (tuple(t.shape), "float")
    except Exception:
        pass
    return shapes


def shrink(network, fails, seconds=60.0):
    """The smallest network found in that time for which `fails` still holds."""
    end = time.monotonic() + seconds
    seen = set()

    def works(candidate):
        key = (candidate.source(), candidate.inputs, candidate.settings)
        if key in seen or time.monotonic() > end:
            return False
        seen.add(key)
        return fails(candidate)

    moved = True
    while moved and time.monotonic() < end:
        moved = False
        shapes = shapes_of(network)
        for family in (
            lambda n: [tidy(n)],
            simpler_settings,
            without_steps,
            fewer_outputs,
            lambda n: values_as_inputs(n, shapes),
            fewer_options,
            smaller_numbers,
        ):
            for candidate in family(network):
                candidate = tidy(candidate)
                if candidate.size() >= network.size() and candidate.settings == network.settings:
                    continue
                if works(candidate):
                    network, moved = candidate, True
                    break
            if moved:
                break
    return network
