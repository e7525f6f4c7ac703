"""Small programs as they are written for PyTorch 2, beside eager PyTorch."""
import copy
import math

import poptorch
import pytest
import torch
import torch.nn.functional as F
from torch import nn

if not hasattr(torch, "compile"):
    pytest.skip("these are programs for PyTorch 2", allow_module_level=True)

QUIET = poptorch.Options().showCompilationProgressBar(False)


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size)
        self.mlp = nn.Sequential(
            nn.Linear(size, 4 * size), nn.GELU(approximate="tanh"), nn.Linear(4 * size, size)
        )

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.first(x)).chunk(3, dim=-1)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    """With tied weights, as small GPTs have them."""

    def __init__(self, words=13, size=24, length=9):
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(length, size)
        self.blocks = nn.ModuleList(Block(size, 3) for _ in range(2))
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens, targets):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class ViT(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.patches = nn.Conv2d(3, size, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, size) * 0.1)
        self.places = nn.Parameter(torch.randn(1, 10, size) * 0.1)
        layer = nn.TransformerEncoderLayer(
            size, 4, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(size, 5)

    def forward(self, images, labels):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        logits = self.head(self.encoder(x)[:, 0])
        return logits, F.cross_entropy(logits, labels, label_smoothing=0.1)


class Residual(nn.Module):
    def __init__(self, before, after, times):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(4, before), nn.GroupNorm(4, after)])
        self.first = nn.Conv2d(before, after, 3, padding=1)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(times, after)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, time):
        y = self.first(F.silu(self.norms[0](x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.second(F.silu(self.norms[1](y)))


class Diffusion(nn.Module):
    """A U-Net that guesses the noise, with attention where images are smallest."""

    def __init__(self, size=8, times=16):
        super().__init__()
        self.times = times
        self.embed = nn.Sequential(nn.Linear(times, times), nn.SiLU(), nn.Linear(times, times))
        self.enter = nn.Conv2d(2, size, 3, padding=1)
        self.down = Residual(size, 2 * size, times)
        self.smaller = nn.Conv2d(2 * size, 2 * size, 3, stride=2, padding=1)
        self.qkv = nn.Conv2d(2 * size, 6 * size, 1)
        self.up = Residual(4 * size, size, times)
        self.leave = nn.Sequential(
            nn.GroupNorm(4, size), nn.SiLU(), nn.Conv2d(size, 2, 3, padding=1)
        )

    def forward(self, images, steps, noise):
        rates = torch.exp(-math.log(10000.0) * torch.arange(self.times // 2) / (self.times // 2))
        angles = steps[:, None].float() * rates
        time = self.embed(torch.cat([angles.sin(), angles.cos()], 1))
        wide = self.down(self.enter(images), time)
        x = self.smaller(wide)
        q, k, v = (part.flatten(2).transpose(1, 2) for part in self.qkv(x).chunk(3, 1))
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).unflatten(2, x.shape[2:])
        x = torch.cat([F.interpolate(x, scale_factor=2.0), wide], 1)
        guess = self.leave(self.up(x, time))
        return guess, F.mse_loss(guess, noise)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 4)

    def forward(self, words, tags):
        scores = self.head(self.lstm(self.embed(words))[0])
        return scores, F.cross_entropy(scores.transpose(1, 2), tags, ignore_index=-100)


def tags(*shape):
    some = torch.randint(4, shape)
    some[:, -2:] = -100
    return some


PROGRAMS = {
    "GPT": (GPT, lambda: (torch.randint(13, (4, 9)), torch.randint(13, (4, 9)))),
    "ViT": (ViT, lambda: (torch.randn(4, 3, 12, 12), torch.randint(5, (4,)))),
    "diffusion": (
        Diffusion,
        lambda: (torch.randn(3, 2, 8, 8), torch.randint(100, (3,)), torch.randn(3, 2, 8, 8)),
    ),
    "tagger": (Tagger, lambda: (torch.randint(1, 20, (3, 7)), tags(3, 7))),
}
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, foreach=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "Adam capturable": lambda p: torch.optim.Adam(p, lr=1e-3, capturable=False, foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, centered=True, foreach=True),
}


def follow_eager(program, optimizer, steps=4):
    torch.manual_seed(0)
    make, batch = PROGRAMS[program]
    model = make().train()
    eager = copy.deepcopy(model)
    ours = poptorch.trainingModel(model, QUIET, OPTIMIZERS[optimizer](model.parameters()))
    step = OPTIMIZERS[optimizer](eager.parameters())
    for _ in range(steps):
        inputs = batch()
        out, loss = ours(*inputs)
        step.zero_grad()
        expected, expected_loss = eager(*inputs)
        expected_loss.backward()
        step.step()
        torch.testing.assert_close(out, expected, rtol=2e-3, atol=2e-4)
        torch.testing.assert_close(loss.squeeze(), expected_loss, rtol=1e-3, atol=1e-4)
    assert ours.hostCalls() == []
    return model, eager


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_follow_eager(program):
    follow_eager(program, "SGD")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimisers_follow_eager(optimizer):
    follow_eager("tagger", optimizer)


def test_inference_takes_the_fast_path_of_encoders():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(3, 5, 16)
    with torch.no_grad():
        expected = model(x)
    ours = poptorch.inferenceModel(model, QUIET)
    torch.testing.assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)


def test_a_checkpoint_loads_with_the_defaults(tmp_path):
    torch.manual_seed(0)
    model = Tagger()
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=1e-3)
    training = poptorch.trainingModel(model, QUIET, optimizer)
    inputs = PROGRAMS["tagger"][1]()
    training(*inputs)
    file = tmp_path / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    found = torch.load(file)
    again = Tagger()
    again.load_state_dict(found["model"])
    resumed = poptorch.optim.AdamW(again.parameters(), lr=1e-3)
    resumed.load_state_dict(found["optimizer"])
    assert torch.equal(
        poptorch.trainingModel(again, QUIET, resumed)(*inputs)[1], training(*inputs)[1]
    )


def test_functional_calls():
    inner = nn.Linear(4, 3)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.scale = inner, nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            weights = {"weight": self.inner.weight * self.scale, "bias": self.inner.bias}
            return torch.func.functional_call(self.inner, weights, (x,))

    model = Scaled()
    x = torch.randn(2, 4)
    torch.testing.assert_close(poptorch.inferenceModel(model, QUIET)(x), model(x))


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrisations(name):
    torch.manual_seed(0)
    model = getattr(nn.utils.parametrizations, name)(nn.Linear(4, 4)).eval()
    x = torch.randn(2, 4)
    torch.testing.assert_close(poptorch.inferenceModel(model, QUIET)(x), model(x))


def test_custom_operators():
    @torch.library.custom_op("tessera_test::doubled_sine", mutates_args=())
    def doubled_sine(x: torch.Tensor) -> torch.Tensor:
        return 2 * x.sin()

    @doubled_sine.register_fake
    def _(x):
        return torch.empty_like(x)

    class Calls(nn.Module):
        def forward(self, x):
            return doubled_sine(x + 1)

    x = torch.randn(5)
    ours = poptorch.inferenceModel(Calls(), QUIET)
    torch.testing.assert_close(ours(x), 2 * (x + 1).sin())
    torch.testing.assert_close(ours(2 * x), 2 * (2 * x + 1).sin())


class Labelled(torch.Tensor):
    """A tensor with Python of its own around every call."""

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError("unreachable")


def test_tensors_with_dispatch_of_their_own_are_refused():
    tensor = torch.Tensor._make_wrapper_subclass(Labelled, (2, 3))
    with pytest.raises((poptorch.Error, TypeError), match="Labelled"):
        poptorch.inferenceModel(nn.Linear(3, 2), QUIET)(tensor)
