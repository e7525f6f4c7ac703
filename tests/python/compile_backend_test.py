"""torch.compile(backend="tessera"): eager PyTorch's numbers, whatever the graph looks like."""
import copy
import threading

import poptorch
import pytest
import torch
import torch.nn.functional as F
from torch import nn

if not hasattr(torch, "compile"):
    pytest.skip("PyTorch 1.13 has no torch.compile()", allow_module_level=True)
from poptorch import _compile_backend  # noqa: E402


@pytest.fixture(autouse=True)
def afresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def test_programs_take_no_device(monkeypatch):
    monkeypatch.setenv("TESSERA_NUM_IPUS", "0")
    compiled = torch.compile(nn.Linear(2, 2), backend="tessera")
    compiled(torch.ones(1, 2)).sum().backward()


class Attention(nn.Module):
    """A block of a small GPT."""

    def __init__(self, size=32, heads=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(11, size)
        self.norm = nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, 11)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + y.transpose(1, 2).flatten(2)).flatten(0, 1)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 8, 3),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


MODELS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.PReLU(), nn.Linear(16, 5)),
        lambda n: (torch.randn(n, 6), torch.randint(5, (n,))),
    ),
    "convolutions": (
        convolutions,
        lambda n: (torch.randn(n, 3, 12, 12), torch.randint(5, (n,))),
    ),
    "attention": (
        Attention,
        lambda n: (torch.randint(11, (n, 7)), torch.randint(11, (n * 7,))),
    ),
}


def trained(model, run, batches, optimizer=torch.optim.SGD):
    optimizer = optimizer(model.parameters(), lr=0.05)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(run(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_same_state(ours, theirs):
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=name)


def test_it_is_found_by_its_entry_point():
    assert "tessera" in torch._dynamo.list_backends()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training_follows_eager(name, optimizer):
    make, batch = MODELS[name]
    model = make()
    eager = copy.deepcopy(model)
    batches = [batch(4) for _ in range(4)]
    ours = trained(model, torch.compile(model, backend="tessera"), batches, optimizer)
    theirs = trained(eager, eager, batches, optimizer)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-4, atol=1e-5)
    if optimizer is torch.optim.SGD:  # Adam makes large steps of the rounding of small gradients
        assert_same_state(model, eager)


@pytest.mark.parametrize("name", MODELS)
def test_inference_is_eagers_for_every_shape(name):
    make, batch = MODELS[name]
    model = make().eval()
    compiled = torch.compile(model, backend="tessera")
    with torch.no_grad():
        for count in (4, 2, 7, 4, 3):
            x, _ = batch(count)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_shapes_that_change_in_training():
    model = convolutions()
    eager = copy.deepcopy(model)
    batches = [MODELS["convolutions"][1](count) for count in (4, 6, 4, 5)]
    trained(model, torch.compile(model, backend="tessera"), batches)
    trained(eager, eager, batches)
    assert_same_state(model, eager)


def test_a_loss_within_the_graph():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = convolutions()

        def forward(self, x, y):
            return F.cross_entropy(self.net(x), y)

    model = WithLoss()
    eager = copy.deepcopy(model)
    x, y = MODELS["convolutions"][1](4)
    torch.compile(model, backend="tessera")(x, y).backward()
    eager(x, y).backward()
    for a, b in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


STRIDED = {
    "flattened": lambda x: x.t().reshape(-1) * 2,
    "transposed": lambda x: (x * 2).t(),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 2)) * 2,
    "rows": lambda x: x.sum(0) + x[1:3],
}


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize(
    "x",
    [
        torch.randn(4, 6),
        torch.randn(6, 4).t(),
        torch.randn(4, 12)[:, ::2],
        torch.randn(1, 6).expand(4, 6),
        torch.randn(30)[6:].view(4, 6),
    ],
)
def test_arguments_and_results_of_any_strides(name, x):
    function = STRIDED[name]
    ours = torch.compile(function, backend="tessera")(x)
    torch.testing.assert_close(ours, function(x), check_stride=True)


def test_more_shapes_than_programs_are_kept(monkeypatch):
    monkeypatch.setattr(_compile_backend, "MOST_PROGRAMS", 2)
    compiled = torch.compile(lambda x: x.cumsum(0), backend="tessera", dynamic=True)
    for count in (3, 4, 5, 6, 3, 6):
        x = torch.randn(count, 2)
        torch.testing.assert_close(compiled(x), x.cumsum(0))


def test_gradients_of_inputs():
    compiled = torch.compile(lambda x, y: (x * y.sin()).sum(0), backend="tessera")
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    compiled(x, y).square().sum().backward()
    ours = x.grad, y.grad
    x.grad = y.grad = None
    (x * y.sin()).sum(0).square().sum().backward()
    torch.testing.assert_close(ours, (x.grad, y.grad))


def test_graph_breaks_run_eagerly():
    def function(x):
        y = x * 2
        if y.sum().item() > 0:  # a value: what comes before and after are graphs of their own
            return y + 1
        return y - 1

    compiled = torch.compile(function, backend="tessera")
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(compiled(x), function(x))


def test_results_keep_their_types():
    def function(x, i):
        return x.argmax(-1), i + 1, x > 0, x.to(torch.int8), x.shape[0]

    compiled = torch.compile(function, backend="tessera")
    x, i = torch.randn(3, 4), torch.arange(3)
    for ours, theirs in zip(compiled(x, i), function(x, i)):
        if isinstance(theirs, int):
            assert ours == theirs
        else:
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def test_buffers_and_arguments_that_forward_changes():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            x.mul_(2)
            return x + self.count

    model = Counts()
    compiled = torch.compile(model, backend="tessera")
    x = torch.ones(3)
    assert torch.equal(compiled(x), torch.full((3,), 3.0))
    assert torch.equal(compiled(x), torch.full((3,), 6.0))
    assert model.count == 2 and torch.equal(x, torch.full((3,), 4.0))


def test_two_forwards_before_a_backward():
    model = convolutions().eval()
    compiled = torch.compile(model, backend="tessera")
    x, z = torch.randn(4, 3, 12, 12), torch.randn(4, 3, 12, 12)
    (compiled(x).square().sum() + compiled(z).sum()).backward()
    ours = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    (model(x).square().sum() + model(z).sum()).backward()
    for a, p in zip(ours, model.parameters()):
        torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-4)


def test_threads():
    models = [nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(3)]
    x = torch.randn(5, 6)
    compiled = [torch.compile(model, backend="tessera") for model in models]
    for run in compiled:
        run(x)  # TorchDynamo itself compiles in one thread at a time
    answers = [[] for _ in models]

    def work(i):
        answers[i].extend(compiled[i](x) for _ in range(20))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model, results in zip(models, answers):
        for result in results:
            torch.testing.assert_close(result, model(x))


def test_dropout_draws_and_scales():
    compiled = torch.compile(lambda x: F.dropout(x, 0.25), backend="tessera")
    x = torch.ones(20000, requires_grad=True)
    first, second = compiled(x), compiled(x)
    assert not torch.equal(first, second)
    assert abs(first.mean().item() - 1) < 0.05
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())  # the mask of forward


def test_types_without_programs_are_pytorchs():
    compiled = torch.compile(lambda x: x * 3, backend="tessera")
    x = torch.full((2,), 0.1, dtype=torch.float64)
    assert torch.equal(compiled(x), x * 3)


def test_wrong_settings():
    def run(**settings):
        torch.compile(lambda x: x + 1, backend="tessera", **settings)(torch.ones(2))

    with pytest.raises(Exception, match="'poptorch': poptorch.Options.*not 'speed'"):
        run(options={"speed": 3})
    with pytest.raises(Exception, match="must be poptorch.Options, not int"):
        run(options={"poptorch": 3})
    run(options={"poptorch": poptorch.Options().showCompilationProgressBar(False)})


def test_a_compiled_module_in_a_wrapped_one_runs_as_itself():
    inner = nn.Linear(4, 4)
    model = nn.Sequential(torch.compile(inner, backend="tessera"), nn.ReLU())
    x = torch.randn(2, 4)
    model(x)  # as TorchDynamo has it
    ours = poptorch.inferenceModel(model, poptorch.Options().showCompilationProgressBar(False))(x)
    torch.testing.assert_close(ours, inner(x).relu())


# ---- float16 ----

HALF = 2.0**-10  # the distance of halves around one


def close_to(result, in_double, roundings=8):
    allowed = roundings * HALF * in_double.abs().max().clamp(min=1e-2)
    assert (result.double() - in_double).abs().max() <= allowed


def gradients(run, model, x, labels):
    out = run(x)
    F.cross_entropy(out.float(), labels).backward()
    return out.detach(), [p.grad.clone() for p in model.parameters()]


def quiet_of(caplog):
    return not any("PyTorch runs a graph" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("name", MODELS)
def test_halves_are_computed_by_programs(name, caplog):
    make, batch = MODELS[name]
    model = make().half()
    reference, eager = copy.deepcopy(model).double(), copy.deepcopy(model)
    x, labels = batch(4)
    x = x.half() if x.is_floating_point() else x
    out, grads = gradients(torch.compile(model, backend="tessera"), model, x, labels)
    assert quiet_of(caplog)
    eager_out, eager_grads = gradients(eager, eager, x, labels)
    wide = x.double() if x.is_floating_point() else x
    true_out, true_grads = gradients(reference, reference, wide, labels)
    assert out.dtype == eager_out.dtype == torch.half
    close_to(out, true_out)
    for ours, theirs, true in zip(grads, eager_grads, true_grads):
        assert ours.dtype == theirs.dtype == torch.half
        close_to(ours, true, 16)


@pytest.mark.parametrize("name", MODELS)
def test_halves_are_trained(name):
    make, batch = MODELS[name]
    model = make()
    wide = copy.deepcopy(model)
    model.half()
    batches = [batch(4) for _ in range(4)]
    halves = [(x.half() if x.is_floating_point() else x, y) for x, y in batches]
    compiled = torch.compile(model, backend="tessera")
    ours = trained(model, lambda x: compiled(x).float(), halves)
    theirs = trained(wide, wide, batches)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=0.02, atol=0.01)


TYPED = {
    "promoted": lambda h, f: (h + f, h * 2.5, h.sum(), h > 1, torch.cat([h, f])),
    "by name": lambda h, f: (h.float() + 1, f.half() * 3, h.sum(dtype=torch.float), f.to(h.dtype)),
    "made": lambda h, f: (torch.zeros_like(h) + 1, h.new_full((2,), 0.1)),
    "of constants": lambda h, f: torch.ones(3).half() + h[0],
    "whole numbers": lambda h, f: (h.argmax(-1), h.to(torch.int64), h.long().half(), h.int() // 2),
    "statistics": lambda h, f: torch.var_mean(h, -1),
    "norm": lambda h, f: F.layer_norm(h, (3,)),
    "in place": lambda h, f: (h.clone().add_(f), f.clone().copy_(h)),
}


@pytest.mark.parametrize("name", TYPED)
def test_types_of_results_are_eagers(name):
    h, f = torch.randn(4, 3).half(), torch.randn(4, 3)
    ours = torch.compile(TYPED[name], backend="tessera")(h, f)
    theirs = TYPED[name](h, f)
    ours, theirs = ([x] if isinstance(x, torch.Tensor) else x for x in (ours, theirs))
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype
        if b.is_floating_point():
            torch.testing.assert_close(a, b, rtol=2 * HALF, atol=2 * HALF)
        else:
            assert torch.equal(a, b)


def test_autocast_to_float16(caplog):
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 5))
    reference = copy.deepcopy(model).double()
    compiled = torch.compile(model, backend="tessera")
    x, labels = MODELS["mlp"][1](4)
    with torch.autocast("cpu", torch.float16):
        out = compiled(x)
    assert out.dtype == torch.half and quiet_of(caplog)
    F.cross_entropy(out.float(), labels).backward()
    true_out, true_grads = gradients(reference, reference, x.double(), labels)
    close_to(out.detach(), true_out)
    for p, true in zip(model.parameters(), true_grads):
        assert p.grad.dtype == torch.float
        close_to(p.grad, true, 16)


def test_random_halves_and_dropout():
    compiled = torch.compile(lambda x: (torch.rand_like(x), F.dropout(x, 0.25)), backend="tessera")
    drawn, kept = compiled(torch.ones(20000).half())
    assert drawn.dtype == kept.dtype == torch.half
    assert 0 <= drawn.min() and drawn.max() < 1 and abs(drawn.float().mean() - 0.5) < 0.02
    assert abs(kept.float().mean() - 1) < 0.05


def test_bfloat16_is_pytorchs(caplog):
    compiled = torch.compile(lambda x: x * 3, backend="tessera")
    x = torch.full((2,), 0.1, dtype=torch.bfloat16)
    assert torch.equal(compiled(x), x * 3)
    assert "bfloat16, which no program has" in caplog.text
