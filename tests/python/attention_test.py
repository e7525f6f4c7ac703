"""F.scaled_dot_product_attention in a program: as close to float64 as eager, gradients too."""
import poptorch
import pytest
import torch
import torch.nn.functional as F
from torch import nn

if not hasattr(F, "scaled_dot_product_attention"):
    pytest.skip("PyTorch 1.13 has no scaled_dot_product_attention", allow_module_level=True)

QUIET = poptorch.Options().showCompilationProgressBar(False)
B, H, L, S, E = 2, 4, 5, 7, 8


def masks():
    torch.manual_seed(3)
    seen = torch.rand(B, 1, L, S) > 0.4
    idle = seen.clone()
    idle[0, 0, 2] = False  # a query that may look at nothing
    return {
        "none": {},
        "booleans": {"attn_mask": seen},
        "a row of booleans": {"attn_mask": torch.tensor([[True] * 5 + [False] * 2])},
        "nothing to see": {"attn_mask": idle},
        "numbers": {"attn_mask": torch.randn(H, L, S)},
        "minus infinities": {"attn_mask": torch.zeros(L, S).masked_fill(~idle[0, 0], -torch.inf)},
        "causal": {"is_causal": True},
        "scaled": {"scale": 0.3},
    }


class Attention(nn.Module):
    def __init__(self, *shapes, **options):
        super().__init__()
        torch.manual_seed(1)
        self.parts = nn.ParameterList(nn.Parameter(torch.randn(shape)) for shape in shapes)
        self.options = options

    def forward(self, weights):
        options = {
            key: value.to(self.parts[0].dtype) if _is_float(value) else value
            for key, value in self.options.items()
        }
        out = F.scaled_dot_product_attention(*self.parts, **options)
        return out, poptorch.identity_loss((out * weights).sum(), "none")


def _is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def check(shapes, **options):
    model = Attention(*shapes, **options)
    twin = Attention(*shapes, **options).double()
    weights = torch.randn(model(torch.ones(()))[0].shape)
    expected, loss = twin(weights.double())
    loss.backward()
    before = [part.detach().clone() for part in model.parts]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    training = poptorch.trainingModel(model, QUIET, optimizer)
    out, _ = training(weights)
    assert training.hostCalls() == []
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    for was, part, other in zip(before, model.parts, twin.parts):
        torch.testing.assert_close((was - part).double(), other.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", masks())
def test_masks(name):
    check([(B, H, L, E), (B, H, S, E), (B, H, S, E)], **masks()[name])


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_heads_that_share_keys(heads):
    if "enable_gqa" not in (F.scaled_dot_product_attention.__doc__ or ""):
        pytest.skip("this PyTorch has no enable_gqa")
    check([(B, H, L, E), (B, heads, S, E), (B, heads, S, 6)], enable_gqa=True)


def test_other_dimensions():
    check([(L, E), (S, E), (S, E)], is_causal=True)
    check([(B, L, E), (B, S, E), (B, S, E)])


def test_dropout_keeps_the_mean():
    class Drops(nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    q = torch.zeros(1, 500, 4)
    k, v = torch.zeros(1, 40, 4), torch.ones(1, 40, 4)
    run = poptorch.inferenceModel(Drops(), QUIET)
    first, second = run(q, k, v).clone(), run(q, k, v)
    assert not torch.equal(first, second)
    assert abs(first.mean() - 1) < 0.02 and first.std() > 0.05


def test_a_mask_beside_is_causal_is_refused():
    class Both(nn.Module):
        def forward(self, x):
            mask = torch.ones(L, L, dtype=torch.bool)
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask, is_causal=True)

    with pytest.raises((poptorch.Error, RuntimeError, ValueError), match="Explicit attn_mask"):
        poptorch.inferenceModel(Both(), QUIET)(torch.randn(1, L, E))


def test_a_mask_of_whole_numbers_is_refused():
    class Whole(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(L, L).int())

    with pytest.raises((poptorch.Error, RuntimeError, TypeError), match="Expected attn_mask dtype"):
        poptorch.inferenceModel(Whole(), QUIET)(torch.randn(1, L, E))
