"""What users write in forward and pass to it, against eager PyTorch."""

import collections
import copy
import warnings

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import MLP, batch
from torch.utils.checkpoint import checkpoint


def follow(model, *inputs, steps=3, lr=0.1):
    """Train through the program and eagerly; weights, buffers and results stay together."""
    reference = copy.deepcopy(model)
    trained = [p for p in reference.parameters() if p.requires_grad]
    eager = torch.optim.SGD(trained, lr=lr, momentum=0.9)
    executor = poptorch.trainingModel(
        model,
        optimizer=torch.optim.SGD(
            [p for p in model.parameters() if p.requires_grad], lr=lr, momentum=0.9
        ),
    )
    for _ in range(steps):
        eager.zero_grad()
        output, loss = reference(*inputs)
        loss.backward()
        eager.step()
        our_output, our_loss = executor(*inputs)
        torch.testing.assert_close(our_output, output.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(our_loss, loss.detach(), rtol=1e-4, atol=1e-5)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(
            value, reference.state_dict()[name], rtol=1e-4, atol=1e-5, msg=name
        )
    return executor


class Net(nn.Module):
    """Two linear layers with `body` between them."""

    def __init__(self, body):
        super().__init__()
        torch.manual_seed(2)
        self.a = nn.Linear(6, 8)
        self.b = nn.Linear(8, 3)
        self.register_buffer("memory", torch.zeros(4, 8))
        self.body = body

    def forward(self, x, target):
        y = self.b(self.body(self, self.a(x)))
        return y, F.mse_loss(y, target)


def data():
    g = torch.Generator().manual_seed(5)
    return torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)


def slices(self, y):
    z = torch.zeros_like(y)
    z[:, ::2] = y[:, 1::2]
    z[1:3, 3] += 2 * y[1:3, 4]
    z[-1].copy_(y[0])
    return z


def index_put(self, y):
    z = y.clone()
    rows = torch.tensor([0, 2, 0])
    columns = torch.tensor([1, 3, 1])
    z[rows, columns] = 5.0
    z.index_put_((rows, columns), y[:3, 0], accumulate=True)
    z[y > 1] = 0.25
    return z


def as_strided(self, y):
    windows = y.as_strided((4, 6, 3), (8, 1, 1))
    return F.pad(windows.mean(-1), (0, 2))


def expanded(self, y):
    mean = y.mean(0, keepdim=True).expand(4, 8)
    return (mean.t().contiguous().t() + y.t().reshape(8, 4).t()).relu()


def no_grad_region(self, y):
    with torch.no_grad():
        scale = y.abs().mean() + 1
    return y / scale


def detached(self, y):
    return y * y.detach().sigmoid()


def memory_bank(self, y):
    self.memory.mul_(0.5).add_(y.detach(), alpha=0.5)
    return y + self.memory


def memory_rows(self, y):
    self.memory[1:3] += y.detach()[:2]
    self.memory[0].copy_(y.detach().mean(0))
    return y - self.memory


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward(x)
        ctx.bounds = (low, high)
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        low, high = ctx.bounds
        return torch.where((x < low) | (x > high), grad * 0.1, grad), None, None


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def custom_function(self, y):
    return Doubles.apply(Clip.apply(y, -0.5, 0.5).clone())


def checkpointed(self, y):
    return checkpoint(lambda z: torch.tanh(z) * torch.sigmoid(z), y)


def checkpointed_without_reentry(self, y):
    return checkpoint(lambda z: torch.tanh(z) * torch.sigmoid(z), y, use_reentrant=False)


def tensor_hook(self, y):
    y = y * 1.0
    y.register_hook(lambda gradient: gradient * 0.5)
    return y


def value_looks(self, y):
    return y.prod(1, keepdim=True) * 0.1 + y.masked_fill(y > 0, 0.5) + y.max() + y.std()


def out_argument(self, y):
    z = torch.empty(4, 8)
    torch.mul(y.detach(), 3, out=z)
    return y + z


def einsum_and_lists(self, y):
    a, b = y.chunk(2, 1)
    return torch.cat([torch.einsum("ij,ij->ij", a, b), a.roll(1, 0)], 1)


BODIES = [
    slices,
    index_put,
    as_strided,
    expanded,
    no_grad_region,
    detached,
    memory_bank,
    memory_rows,
    custom_function,
    checkpointed,
    checkpointed_without_reentry,
    tensor_hook,
    value_looks,
    out_argument,
    einsum_and_lists,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_forward_follows_eager(body):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        follow(Net(body), *data())


def test_frozen_parameters_stay():
    model = Net(lambda self, y: y)
    model.a.weight.requires_grad_(False)
    before = model.a.weight.detach().clone()
    follow(model, *data())
    assert torch.equal(model.a.weight, before)
    assert not model.a.weight.requires_grad


def test_module_hooks_run_once():
    calls = []
    model = Net(lambda self, y: y)
    model.a.register_forward_pre_hook(lambda module, inputs: calls.append("before"))
    model.a.register_forward_hook(lambda module, inputs, output: output * 2)
    model.b.register_full_backward_hook(lambda module, gi, go: calls.append("backward"))
    reference = copy.deepcopy(model)
    executor = poptorch.trainingModel(model)
    for _ in range(3):
        output, _ = executor(*data())
    assert calls == ["before", "backward"]
    executor.destroy()
    assert torch.allclose(
        reference(*data())[0], poptorch.inferenceModel(reference)(*data())[0], atol=1e-6
    )


def test_an_optimizer_made_from_the_executors_parameters():
    model, reference = MLP(), None
    reference = copy.deepcopy(model)
    executor = poptorch.trainingModel(model)
    executor.setOptimizer(torch.optim.SGD(executor.parameters(), lr=0.2, momentum=0.5))
    eager = torch.optim.SGD(reference.parameters(), lr=0.2, momentum=0.5)
    for step in range(3):
        inputs = batch("MLP", seed=step)
        eager.zero_grad()
        reference(*inputs)[1].backward()
        eager.step()
        executor(*inputs)
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-5, atol=1e-6)


Pair = collections.namedtuple("Pair", "left right")


class Nested(nn.Module):
    def forward(self, pair, options, extra=None, *rest, scale=1.0, layer=None):
        x = pair.left + pair.right * scale
        for item in rest:
            x = x + item
        if extra is not None:
            x = x * extra
        if layer is not None:
            x = layer(x)
        return {
            "sum": x,
            "pair": Pair(x + 1, [x + 2, (options["b"], "text")]),
            "none": None,
            "ordered": collections.OrderedDict(a=options["a"][0], n=3),
        }


def test_nested_arguments_and_results():
    x = torch.randn(4, 3)
    layer = nn.Linear(3, 3)
    options = {"a": [x + 5], "b": x * 2}
    model = Nested()
    executor = poptorch.inferenceModel(model)
    arguments = (Pair(x, x), options, None, x, x)
    keywords = {"scale": 0.5, "layer": layer}
    ours = executor(*arguments, **keywords)
    theirs = model(*arguments, **keywords)
    assert list(ours) == list(theirs)
    assert isinstance(ours["pair"], Pair) and ours["none"] is None
    assert isinstance(ours["ordered"], collections.OrderedDict) and ours["ordered"]["n"] == 3
    assert ours["pair"].right[1][1] == "text"
    torch.testing.assert_close(ours["sum"], theirs["sum"].detach())
    torch.testing.assert_close(ours["pair"].left, theirs["pair"].left.detach())
    torch.testing.assert_close(ours["pair"].right[1][0], theirs["pair"].right[1][0])
    torch.testing.assert_close(ours["ordered"]["a"], theirs["ordered"]["a"])
    # Constants are part of the program.
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(*arguments, scale=0.25, layer=layer)
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(*arguments, scale=0.5)
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(Pair(x, x), options, x, x, x, **keywords)


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.quant = torch.ao.quantization.QuantStub()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(4 * 36, 3)
        self.dequant = torch.ao.quantization.DeQuantStub()

    def forward(self, x, labels):
        x = self.relu(self.bn(self.conv(self.quant(x))))
        x = self.dequant(self.fc(x.flatten(1)))
        return x, F.cross_entropy(x, labels)


@pytest.mark.parametrize("fused", [False, True])
def test_quantization_aware_training(fused):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Quantized()
        model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
        if fused:
            model = torch.ao.quantization.fuse_modules_qat(model.train(), [["conv", "bn", "relu"]])
        model = torch.ao.quantization.prepare_qat(model.train())
        g = torch.Generator().manual_seed(1)
        x = torch.randn(8, 1, 8, 8, generator=g)
        labels = torch.randint(3, (8,), generator=g)
        follow(model, x, labels, lr=0.01)
    observers = [name for name, _ in model.named_buffers() if name.endswith("min_val")]
    assert observers
    assert all(model.state_dict()[name].isfinite().all() for name in observers)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.layer = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor([2, 4, 3]), batch_first=True, enforce_sorted=False
        )
        output, _ = self.layer(packed)
        y, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
        return y, poptorch.identity_loss(y, reduction="sum")


def test_packed_sequences_of_known_lengths():
    follow(Packed(), torch.randn(3, 4, 4))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x, padding):
        return self.encoder(x, src_key_padding_mask=padding)[:, :3]


@pytest.mark.parametrize("frozen", [False, True])
def test_an_encoder_in_inference_with_padding(frozen):
    model = Encoder().eval().requires_grad_(not frozen)
    x = torch.randn(2, 5, 8)
    padding = torch.tensor([[False, False, False, True, True]] * 2)
    with torch.no_grad():
        expected = model(x, padding)
    torch.testing.assert_close(
        poptorch.inferenceModel(model)(x, padding), expected, rtol=1e-4, atol=1e-5
    )


class Likelihood(nn.Module):
    def forward(self, x):
        normal = torch.distributions.Normal(x, x.exp())
        return normal.log_prob(x + 1), torch.distributions.Categorical(logits=x).entropy()


def test_distributions():
    x = torch.randn(3, 4)
    for ours, theirs in zip(poptorch.inferenceModel(Likelihood())(x), Likelihood()(x)):
        torch.testing.assert_close(ours, theirs)


def test_nan_in_data_trains_on():
    model = MLP()
    reference = copy.deepcopy(model)
    x, labels = batch("MLP")
    x[0, 0] = float("nan")
    executor = poptorch.trainingModel(model)
    _, loss = executor(x, labels)
    eager = torch.optim.SGD(reference.parameters(), lr=0.01)
    reference(x, labels)[1].backward()
    eager.step()
    assert loss.isnan()
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        assert torch.equal(ours.detach().isnan(), theirs.detach().isnan())
    executor(*batch("MLP"))
