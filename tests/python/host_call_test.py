"""Operators without a row run through PyTorch's own kernels, forward and backward."""

import os
import pathlib
import subprocess
import sys

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F


class Square(nn.Module):
    """Trains a square matrix through `body`."""

    def __init__(self, body):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.weight = nn.Parameter(torch.randn(4, 4, generator=generator) * 0.2 + torch.eye(4))
        self.register_buffer("seen", torch.zeros(4))
        self.body = body

    def forward(self, x):
        y = self.body(self, torch.matmul(x, self.weight))
        return y, poptorch.identity_loss(y, reduction="mean")


def batch():
    return torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(4)) * 0.3 + torch.eye(4)


def inverse(self, y):
    return torch.linalg.inv(y)


def qr(self, y):
    q, r = torch.linalg.qr(y)
    return q @ r + r


def cholesky(self, y):
    return torch.linalg.cholesky(y @ y.transpose(-1, -2) + torch.eye(4))


def special_functions(self, y):
    return torch.igamma(torch.ones_like(y), y.abs() + 1) + torch.linalg.matrix_exp(y)


def grid_sample(self, y):
    grid = torch.tanh(torch.stack([y, y.transpose(1, 2)], -1))
    return F.grid_sample(y.unsqueeze(1), grid, align_corners=False)


def in_place(self, y):
    y = y.abs() + 1
    z = torch.ones_like(y)
    z[:, 1].igamma_(y.detach()[:, 2])
    return y.mul_(2) + z


def buffer_in_place(self, y):
    self.seen.add_(1)
    self.seen.igamma_(self.seen + 0.5)
    return y + self.seen


def integer_arguments(self, y):
    factors, pivots = torch.linalg.lu_factor(y.detach())
    return y + torch.lu_unpack(factors, pivots)[0] + pivots.long().unsqueeze(1)


def solve(self, y):
    return torch.linalg.solve(y, y + 1)


BODIES = [
    inverse,
    qr,
    cholesky,
    special_functions,
    grid_sample,
    in_place,
    buffer_in_place,
    integer_arguments,
    solve,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_trains_as_eager(body):
    model, reference = Square(body), Square(body)
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    eager = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(3):
        eager.zero_grad()
        expected, loss = reference(batch())
        loss.backward()
        eager.step()
        output, our_loss = executor(batch())
        torch.testing.assert_close(output, expected.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(our_loss, loss.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        model.weight.detach(), reference.weight.detach(), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(model.seen.detach(), reference.seen)
    assert executor.hostCalls()


def test_host_calls_are_counted_and_timed():
    model = Square(inverse)
    options = poptorch.Options().deviceIterations(3)
    executor = poptorch.trainingModel(model, options)
    assert executor.hostCalls() == []
    data = batch().repeat(3, 1, 1)
    executor(data)
    calls = {call["operator"]: call for call in executor.hostCalls()}
    inverse_call = calls["aten::linalg_inv_ex"]
    assert inverse_call["nodes"] == 1 and inverse_call["runs"] == 3
    assert inverse_call["seconds"] > 0
    executor.detachFromDevice()
    executor(data)
    calls = {call["operator"]: call for call in executor.hostCalls()}
    assert calls["aten::linalg_inv_ex"]["runs"] == 6
    assert "aten::linalg_inv_ex" in executor._core.plan_text()


@pytest.mark.skipif("TESSERA_BINARY_DIR" not in os.environ, reason="needs the built tools")
def test_the_command_line_counts_and_times_them(tmp_path):
    executor = poptorch.trainingModel(Square(inverse))
    executor.compile(batch())
    step = tmp_path / "step.ir"
    step.write_text(executor._core.graph_text())
    tessera = pathlib.Path(os.environ["TESSERA_BINARY_DIR"]) / "bin" / "tessera"
    for command in (["show"], ["time", "--runs", "2"]):
        run = subprocess.run([tessera, *command, step], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        assert "aten::linalg_inv_ex" in run.stdout


def test_native_models_have_none():
    executor = poptorch.inferenceModel(nn.Linear(2, 2))
    executor(torch.zeros(1, 2))
    assert executor.hostCalls() == []


def test_the_log_names_them():
    program = (
        "import torch, poptorch\n"
        "class M(torch.nn.Module):\n"
        "    def forward(self, x): return torch.special.bessel_j0(x)\n"
        "m = poptorch.inferenceModel(M())\n"
        "m(torch.ones(2)); m.destroy()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "POPTORCH_LOG_LEVEL": "INFO"},
    )
    assert run.returncode == 0, run.stderr
    assert "not native: aten::special_bessel_j0 runs PyTorch's own kernel, 1 node" in run.stderr
    assert "aten::special_bessel_j0 ran 1 times" in run.stderr


class Draws(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, x):
        return self.draw(x)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.poisson(x.abs() * 10),
        lambda x: torch.multinomial(x.abs() + 0.1, 3),
        lambda x: x + torch.empty_like(x).geometric_(0.3),
    ],
    ids=["poisson", "multinomial", "geometric_"],
)
def test_random_operators_follow_the_seed(draw):
    def run(seed):
        options = poptorch.Options().randomSeed(seed)
        executor = poptorch.inferenceModel(Draws(draw), options)
        x = torch.linspace(0.5, 2, 40).reshape(4, 10)
        torch.manual_seed(int(torch.randint(1 << 30, ())))  # must not matter
        return [executor(x) for _ in range(3)]

    first, again, other = run(5), run(5), run(6)
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])


def test_same_bits_for_any_number_of_threads(monkeypatch):
    def run(threads):
        monkeypatch.setenv("TESSERA_NUM_THREADS", str(threads))
        model = Square(qr)
        executor = poptorch.trainingModel(model)
        return [executor(batch())[1] for _ in range(3)] + [model.weight.detach().clone()]

    before = torch.get_num_threads()
    for a, b in zip(run(1), run(2)):
        assert torch.equal(a, b)
    assert torch.get_num_threads() == before


def test_an_error_of_pytorchs_kernel_reaches_the_user():
    executor = poptorch.inferenceModel(Draws(lambda x: torch.multinomial(x, 2)))
    with pytest.raises(poptorch.Error, match="probability tensor") as error:
        executor(-torch.ones(1, 3))
    assert "aten::multinomial" in str(error.value)
    assert executor(torch.ones(1, 3)).shape == (1, 2)


def test_lists_of_tensors():
    executor = poptorch.inferenceModel(Draws(lambda x: torch._foreach_exp(list(x.unbind(0)))))
    x = torch.randn(3, 4)
    for ours, theirs in zip(executor(x), x.exp()):
        torch.testing.assert_close(ours, theirs)


def test_complex_numbers_are_refused():
    executor = poptorch.inferenceModel(Draws(torch.fft.fft))
    with pytest.raises(poptorch.Error, match="omplex"):
        executor(torch.ones(4))
