"""Values without elements inside a program: as in eager PyTorch, forward and backward."""

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F


class Program(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, 13.0).view(3, 4) / 12)
        self.body = body

    def forward(self, x):
        y = self.body(self.weight * x)
        return y, poptorch.identity_loss((self.weight * x).sum() + y.float().sum(), "sum")


def as_eager(body):
    x = torch.ones(3, 4)
    reference = Program(body)
    try:
        expected, loss = reference(x)
    except (RuntimeError, IndexError, ValueError):
        with pytest.raises((poptorch.Error, RuntimeError, IndexError, ValueError)) as refusal:
            poptorch.inferenceModel(Program(body))(x)
        assert "internal error" not in str(refusal.value)
        return
    result, _ = poptorch.inferenceModel(Program(body))(x)
    # Programs hold whole numbers in 32 bits.
    torch.testing.assert_close(result, expected.detach(), equal_nan=True, check_dtype=False)
    try:
        loss.backward()
    except RuntimeError:
        return  # eager has no gradient here
    model = Program(body)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    poptorch.trainingModel(model, optimizer=optimizer)(x)
    after = reference.weight.detach() - 0.5 * reference.weight.grad
    torch.testing.assert_close(model.weight.detach(), after, equal_nan=True)


def columns(y):
    return y[:, :0]


def rows(y):
    return y[:0]


BODIES = {
    "add": lambda e: e + 1,
    "relu": lambda e: e.relu(),
    "exp chain": lambda e: (e.exp() * 2 + e).tanh(),
    "sum": lambda e: e.sum(),
    "sum 0": lambda e: e.sum(0),
    "sum 1": lambda e: e.sum(1),
    "sum 1 keep": lambda e: e.sum(1, keepdim=True),
    "mean": lambda e: e.mean(),
    "mean 0": lambda e: e.mean(0),
    "mean 1": lambda e: e.mean(1),
    "prod": lambda e: e.prod(),
    "prod 1": lambda e: e.prod(1),
    "var": lambda e: e.var(1),
    "std": lambda e: e.std(0),
    "norm": lambda e: e.norm(),
    "norm 1": lambda e: e.norm(dim=1),
    "norm inf 1": lambda e: e.norm(p=float("inf"), dim=1),
    "vector norm": lambda e: torch.linalg.vector_norm(e, dim=0),
    "logsumexp": lambda e: e.logsumexp(1),
    "logsumexp 0": lambda e: e.logsumexp(0),
    "amax 0": lambda e: e.amax(0),
    "amax 1": lambda e: e.amax(1),
    "max 0": lambda e: e.max(0).values,
    "max 1": lambda e: e.max(1).values,
    "argmax 0": lambda e: e.argmax(0),
    "argmax 1": lambda e: e.argmax(1),
    "any": lambda e: (e > 0).any(),
    "all 1": lambda e: (e > 0).all(1),
    "cumsum": lambda e: e.cumsum(1),
    "cumprod 0": lambda e: e.cumprod(0),
    "softmax 0": lambda e: e.softmax(0),
    "softmax 1": lambda e: e.softmax(1),
    "log_softmax": lambda e: e.log_softmax(-1),
    "sort": lambda e: e.sort(1).values,
    "sort 0": lambda e: e.sort(0).indices,
    "topk": lambda e: e.topk(0, 1).values,
    "median": lambda e: e.median(1).values,
    "flip": lambda e: e.flip(0),
    "roll": lambda e: e.roll(1, 0),
    "transpose": lambda e: e.t().contiguous(),
    "reshape": lambda e: e.reshape(-1),
    "repeat": lambda e: e.repeat(2, 3),
    "pad": lambda e: F.pad(e, (1, 2)),
    "cat self": lambda e: torch.cat([e, e], 1),
    "stack": lambda e: torch.stack([e, e]),
    "clone": lambda e: e.clone(),
    "matmul depth": lambda e: e @ e.t(),
    "matmul other": lambda e: e.t() @ e,
    "bmm": lambda e: torch.bmm(e[None], e.t()[None]),
    "where": lambda e: torch.where(e > 0, e, -e),
    "expand": lambda e: e[None].expand(2, *e.shape) * 2,
    "tril": lambda e: e.tril(),
    "gather": lambda e: e.gather(1, torch.zeros(e.shape, dtype=torch.long)),
    "index_select": lambda e: e.index_select(0, torch.zeros(0, dtype=torch.long)),
    "index": lambda e: e[torch.zeros(0, dtype=torch.long)],
    "scatter": lambda e: torch.zeros(3, 4).scatter(1, torch.zeros(e.shape, dtype=torch.long), e),
    "layer_norm": lambda e: F.layer_norm(e, e.shape[1:]),
    "mse": lambda e: F.mse_loss(e, e.detach() * 2),
    "mse none": lambda e: F.mse_loss(e, e.detach() * 2, reduction="none"),
    "l1": lambda e: F.l1_loss(e, e.detach() * 2, reduction="sum"),
    "smooth": lambda e: F.smooth_l1_loss(e, e.detach() * 2),
    "bce": lambda e: F.binary_cross_entropy_with_logits(e, torch.ones_like(e)),
    "cosine": lambda e: F.cosine_similarity(e, e * 2, dim=1),
    "normalize": lambda e: F.normalize(e, dim=1),
    "dropout": lambda e: F.dropout(e, 0.0, True),
    "glu": lambda e: F.glu(e, 1),
    "one by one": lambda e: e.square().sum(1).sqrt(),
    "mul by whole": lambda e: e.sum() * torch.ones(3),
    "cdist": lambda e: torch.cdist(e, e),
    "unfold": lambda e: e.unfold(0, 1, 1),
    "cumsum of sum": lambda e: e.sum(0).cumsum(0),
    "masked_fill": lambda e: e.masked_fill(e > 0, 1.0),
    "clamp": lambda e: e.clamp(0, 1),
    "int": lambda e: e.int() + 1,
    "linear": lambda e: F.linear(e, torch.ones(2, e.shape[1])),
    "embedding": lambda e: F.embedding(torch.zeros(0, dtype=torch.long), torch.ones(3, 2))
    + e.sum(),
}


@pytest.mark.parametrize("part", [columns, rows], ids=lambda part: part.__name__)
@pytest.mark.parametrize("name", BODIES)
def test_of_slices(name, part):
    as_eager(lambda y: BODIES[name](part(y)))


PROGRAMS = {
    "cat with": lambda y: torch.cat([y, y[:, :0], y], 1),
    "cat nothing": lambda y: torch.cat([y[0, :0], y[1]]),
    "adaptive pool to 0": lambda y: F.adaptive_avg_pool2d(y[None, None], 0),
    "adaptive pool of none": lambda y: F.adaptive_avg_pool2d(y[None, None][:0], 2),
    "max pool of none": lambda y: F.max_pool2d(y[None, None][:0], 2),
    "avg pool of none": lambda y: F.avg_pool2d(y[None, None][:0], 2),
    "conv of none": lambda y: F.conv2d(y[None, None][:0], torch.ones(2, 1, 2, 2)),
    "conv with bias": lambda y: F.conv2d(y[None, None][:0], torch.ones(2, 1, 2, 2), torch.ones(2)),
    "transposed conv": lambda y: F.conv_transpose2d(y[None, None][:0], torch.ones(1, 2, 2, 2)),
    "conv of a weight": lambda y: F.conv1d(torch.ones(0, 3, 5), y[:, :3, None].repeat(1, 1, 2)),
    "batch norm": lambda y: F.batch_norm(y[:0], torch.zeros(4), torch.ones(4)),
    "group norm": lambda y: F.group_norm(y[:0], 2),
    "instance norm": lambda y: F.instance_norm(y[None][:0]),
    "cross entropy": lambda y: F.cross_entropy(y[:0], torch.zeros(0, dtype=torch.long)),
    "cross entropy sum": lambda y: F.cross_entropy(
        y[:0], torch.zeros(0, dtype=torch.long), reduction="sum"
    ),
    "cross entropy none": lambda y: F.cross_entropy(
        y[:0], torch.zeros(0, dtype=torch.long), reduction="none"
    ),
    "nll": lambda y: F.nll_loss(y[:0].log_softmax(1), torch.zeros(0, dtype=torch.long)),
    "kl": lambda y: F.kl_div(y[:0], y[:0].detach()),
    "upsample": lambda y: F.interpolate(y[None, None][:0], scale_factor=2),
    "bilinear": lambda y: F.interpolate(y[None, None][:0], scale_factor=2, mode="bilinear"),
    "pixel shuffle": lambda y: F.pixel_shuffle(y[None, :, :, None].expand(1, 3, 4, 2)[:0, :1], 1),
    "embedding": lambda y: F.embedding(torch.zeros(0, dtype=torch.long), y),
    "bag": lambda y: F.embedding_bag(torch.zeros(0, dtype=torch.long), y, torch.tensor([0, 0])),
    "index add": lambda y: torch.zeros(3, 4).index_add(0, torch.zeros(0, dtype=torch.long), y[:0]),
    "index put": lambda y: (y * 1).index_put((torch.zeros(0, dtype=torch.long),), y[:0]),
    "slice write": lambda y: written(y),
    "einsum": lambda y: torch.einsum("ij,kj->ik", y[:, :0], y[:, :0]),
    "addmm": lambda y: torch.addmm(torch.ones(3, 3), y[:, :0], y[:, :0].t()),
    "baddbmm": lambda y: torch.baddbmm(torch.ones(1, 3, 3), y[None, :, :0], y[None, :, :0].mT),
    "split": lambda y: y.split([0, 4], 1)[0].softmax(1).sum() + y.split([0, 4], 1)[1].sum(),
    "attention": lambda y: torch.softmax(y @ y[:0].t(), -1) @ y[:0],
    "flatten": lambda y: y[:, :0].flatten().sum(),
    "outer": lambda y: torch.outer(y[0], y[1, :0]),
    "tensordot": lambda y: torch.tensordot(y[:, :0], y[:, :0], dims=2),
    "diag": lambda y: torch.diag(y[0, :0]),
    "trace": lambda y: y[:0, :0].trace(),
    "meshgrid": lambda y: torch.meshgrid(y[0, :0], y[0], indexing="ij")[0] * 2,
    "multi head": lambda y: F.linear(y[:0], y).view(0, 3, 1).transpose(0, 1) * 1,
    "padding": lambda y: F.pad(y[None, :, :][:0], (1, 1), mode="reflect"),
    "lstm-like": lambda y: torch.sigmoid(y[:0] @ y.t()) * torch.tanh(y[:0] @ y.t()),
}


def written(y):
    z = y * 1
    z[:, :0] = 5
    z[:0] = y[:0] * 2
    return z


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    as_eager(PROGRAMS[name])


def test_deformable_convolution_without_a_mask():
    ops = pytest.importorskip("torchvision.ops")

    class Deformable(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.offset = nn.Conv2d(2, 18, 3, padding=1)
            self.conv = ops.DeformConv2d(2, 3, 3, padding=1)

        def forward(self, x):
            return self.conv(x, self.offset(x))

    model = Deformable()
    x = torch.randn(1, 2, 5, 5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        poptorch.inferenceModel(model)(x), model(x).detach(), rtol=1e-4, atol=1e-5
    )
