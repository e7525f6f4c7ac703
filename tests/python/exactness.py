"""How far one training step is from the same step in float64, beside how far eager PyTorch is.

A step is its loss, its outputs, the gradient of every parameter and every buffer afterwards. A
value's error is its largest difference from float64's, by the largest magnitude there. A network
that amplifies rounding amplifies eager PyTorch's too, in float32 and, from weights that are moved
by about a rounding, in float64: what these do is what a difference means.
"""

import copy

import poptorch
import torch

ROUNDING = 1e-7  # of float32, a relative error
# A power of two: the step that is taken is the gradient, not its rounding against the weight.
RATE = 2.0**60


def as_double(value):
    if isinstance(value, torch.Tensor):
        return value.detach().double() if value.is_floating_point() else value
    return value


def flat(output):
    if isinstance(output, torch.Tensor):
        return [output]
    values = output.values() if isinstance(output, dict) else output
    return [tensor for value in values for tensor in flat(value)]


def largest_of(value):
    return value.abs().max().item() if value.numel() else 0.0


def collected(outputs, gradients, model):
    """Everything of a step by name. The loss is the last output."""
    *outputs, loss = flat(outputs)
    step = {"loss": loss, **{f"output {i}": value for i, value in enumerate(outputs)}}
    step |= {f"gradient of {name}": value for name, value in gradients.items()}
    step |= {f"buffer {name}": b for name, b in model.named_buffers() if b.is_floating_point()}
    return {name: as_double(value) for name, value in step.items()}


def eager_step(model, inputs):
    model = copy.deepcopy(model)
    outputs = model(*inputs)
    flat(outputs)[-1].backward()
    gradients = {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in model.named_parameters()
    }
    return collected(outputs, gradients, model)


def our_step(model, inputs, options=None):
    model = copy.deepcopy(model)
    before = {name: as_double(p).clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    executor = poptorch.trainingModel(model, options or poptorch.Options(), optimizer=optimizer)
    outputs = executor(*inputs)
    executor.copyWeightsToHost()
    after = {name: as_double(p) for name, p in model.named_parameters()}
    executor.destroy()
    gradients = {name: (before[name] - after[name]) / RATE for name in before}
    return collected(outputs, gradients, model)


def moved(model, by, seed):
    """In float64, every weight by a random part of itself."""
    model = copy.deepcopy(model).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + by * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model


class Exactness:
    """The float64 step of a network, and how far a step may be from it.

    That is ten times as far as eager PyTorch is in float32, and from weights moved by a rounding in
    float64. But a gradient is no smooth function: where a value is close to a ReLU's corner, a
    rounding decides whether it has one. So a step may also be as far as one in float64 is from
    weights moved by ten roundings.
    """

    def __init__(self, model, inputs, times=10, moves=3):
        exact_inputs = [as_double(x) for x in inputs]
        self.exact = eager_step(copy.deepcopy(model).double(), exact_inputs)
        self.largest = {}
        for name, value in self.exact.items():
            kind = name.split()[0]
            self.largest[kind] = max(self.largest.get(kind, 0.0), largest_of(value))
        self.eager = self.errors(eager_step(model, inputs))

        def errors_of_moved(by, seed):
            return self.errors(eager_step(moved(model, by, seed), exact_inputs))

        self.moved = [errors_of_moved(ROUNDING, 0)]
        self.moved_far = [errors_of_moved(times * ROUNDING, seed) for seed in range(moves)]
        self.times = times

    def errors(self, step):
        return {name: self.error(name, step[name]) for name in self.exact}

    def error(self, name, value):
        exact = self.exact[name]
        # A bias before a batch norm has no gradient, and what comes out of a norm no mean: what is
        # left of those are roundings of the others.
        scale = max(largest_of(exact), 1e-3 * self.largest[name.split()[0]], 1e-30)
        difference = largest_of(value - exact)
        return difference / scale if difference == difference else float("inf")

    def allowed(self, names, least=1e-6):
        """For the worst of values of one kind."""
        near = max(errors[name] for errors in [self.eager, *self.moved] for name in names)
        far = max(errors[name] for errors in self.moved_far for name in names)
        return max(self.times * max(near, least), far)

    def ratio(self, errors):
        """The worst error by what is allowed for its kind, and where it is."""
        worst = (0.0, "")
        for kind in self.largest:
            names = [name for name in self.exact if name.startswith(kind)]
            name = max(names, key=errors.get)
            worst = max(worst, (errors[name] / self.allowed(names), name))
        return worst
