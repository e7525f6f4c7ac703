"""What eager PyTorch refuses, a program refuses too, in PyTorch's words."""

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

INTEGERS = torch.tensor([1, 2, 3])
NUMBERS = torch.tensor([1.5, -2.0, 3.0])
LOGITS = torch.tensor([[1.0, 2.0], [0.5, 0.25]])


class Forward(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*[tensor.clone() for tensor in tensors])


def run(function, *tensors):
    quiet = poptorch.Options().showCompilationProgressBar(False)
    return poptorch.inferenceModel(Forward(function), quiet)(*tensors)


CASTS = "can't be cast to the desired output type"
REFUSED = {
    "int to a negative power": (lambda x: x**-1, INTEGERS, "Integers to negative integer powers"),
    "int in place to a negative power": (
        lambda x: x.pow_(-1),
        INTEGERS,
        "Integers to negative integer powers",
    ),
    "int plus float in place": (lambda x: x.add_(1.5), INTEGERS, CASTS),
    "int times float in place": (lambda x: x.mul_(1.5), INTEGERS, CASTS),
    "int quotient in place": (lambda x: x.div_(2), INTEGERS, CASTS),
    "int root in place": (lambda x: x.sqrt_(), INTEGERS, CASTS),
    "bool plus int in place": (lambda x: (x > 1).add_(1), INTEGERS, CASTS),
    "int out of a float": (
        lambda x: torch.exp(x, out=torch.zeros(3, dtype=torch.int64)),
        NUMBERS,
        CASTS,
    ),
    "mean of ints": (lambda x: x.mean(), INTEGERS, "dtype"),
    "difference of bools": (lambda x: (x > 1) - (x > 2), INTEGERS, "bool"),
    "shapes": (lambda x: x + torch.ones(2), NUMBERS, "must match the size of tensor"),
    "probability": (lambda x: x.bernoulli_(2), NUMBERS, "expects p to be in"),
    "probabilities": (torch.bernoulli, NUMBERS, "expects p to be in"),
    "deviation": (lambda x: x.normal_(0, -1), NUMBERS, "std >= 0"),
    "deviations": (lambda x: torch.normal(0.0, x), NUMBERS, "std >= 0"),
    "rate": (lambda x: x.exponential_(-1), NUMBERS, "expects lambda"),
    "range": (
        lambda x: x + torch.randint(3, 3, (3,)),
        NUMBERS,
        "random_ expects 'from' to be less than",
    ),
    "input of a cross entropy": (
        lambda x: F.binary_cross_entropy(x, torch.ones(3)),
        NUMBERS,
        "all elements of input should be between 0 and 1",
    ),
    "larger source": (lambda x: x.copy_(torch.ones(2, 3)), NUMBERS, "broadcast shape"),
    "larger mask": (
        lambda x: x.masked_fill_(torch.ones(2, 3) > 0, 1),
        NUMBERS,
        "broadcast shape|output with shape",
    ),
    "no kernel for ints": (lambda x: x.lerp_(x, 0.5), INTEGERS, "not implemented for"),
    "dropout": (lambda x: F.dropout(x, 1.5), NUMBERS, "between 0 and 1"),
    "no negative weights": (
        lambda x: torch.multinomial(x, 1),
        NUMBERS,
        "probability tensor contains either",
    ),
    "one_hot without classes": (
        lambda x: F.one_hot(x),
        INTEGERS,
        "OneHot num classes must be specified and must be constant.",
    ),
    "class too large": (lambda x: F.one_hot(x, 3), INTEGERS, "Class values must be smaller than"),
    "class below 0": (lambda x: F.one_hot(x - 2, 3), INTEGERS, "Class values must be non-negative"),
    "masked_scatter_ of columns": (
        lambda x: (x.view(2, -1).t() + 0).masked_scatter_(x.view(2, -1).t() > 1, x * 2),
        torch.arange(4),
        "masked_scatter_: PyTorch changes a tensor that does not lie row by row, here one of shape",
    ),
    "logit in place of whole numbers": (
        lambda x: (x + 0).logit_(),
        INTEGERS,
        "can't be cast to the desired output type",
    ),
    "out= of another type": (
        lambda x: torch.take(x, x * 0, out=torch.zeros(x.shape)),
        INTEGERS,
        "same dtype",
    ),
    "bins": (lambda x: torch.bincount(x, minlength=3), INTEGERS, "no bin for a value"),
    "bincount": (torch.bincount, INTEGERS, "Operations using aten::bincount are unsupported"),
    "unique": (
        lambda x: torch.unique(x + torch.rand(3)),
        INTEGERS,
        "Operations using aten::_unique2 are unsupported because",
    ),
    "nonzero": (torch.nonzero, INTEGERS, "Operations using aten::nonzero are unsupported because"),
    "mask": (lambda x: x[x > 1], INTEGERS, "are unsupported because the output shape"),
    "source too short": (
        lambda x: x.masked_scatter(x > -9, torch.ones(2)),
        NUMBERS,
        "source is too short",
    ),
    "negative variance": (
        lambda x: F.gaussian_nll_loss(x, x + 1, x),
        NUMBERS,
        "var has negative entry/entries",
    ),
    "output padding": (
        lambda x: F.conv_transpose1d(x.view(1, 1, 3), torch.ones(1, 1, 2), output_padding=1),
        NUMBERS,
        "output padding must be smaller than either stride or dilation",
    ),
    "stride": (
        lambda x: F.conv1d(x.view(1, 1, 3), torch.ones(1, 1, 2), stride=0),
        NUMBERS,
        "non-positive stride is not supported",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_pytorch_refuses(case):
    function, tensor, words = REFUSED[case]
    with pytest.raises((poptorch.Error, RuntimeError, ValueError, TypeError), match=words):
        run(function, tensor)


OUT_OF_RANGE = {
    "embedding": lambda i: F.embedding(i, LOGITS),
    "gather": lambda i: LOGITS[0].gather(0, i),
    "index": lambda i: LOGITS[i],
    "index_select": lambda i: LOGITS.index_select(0, i),
    "take": lambda i: LOGITS.take(i + 4),
    "scatter": lambda i: LOGITS[0].scatter(0, i, 1.0),
    "scatter_add": lambda i: LOGITS[0].scatter_add(0, i, LOGITS[1]),
    "index_add": lambda i: LOGITS.index_add(0, i, LOGITS),
    "index_put": lambda i: LOGITS.index_put((i,), LOGITS),
    "cross_entropy": lambda i: F.cross_entropy(LOGITS, i),
    "cross_entropy with smoothing": lambda i: F.cross_entropy(LOGITS, i, label_smoothing=0.1),
    "multi_margin_loss": lambda i: F.multi_margin_loss(LOGITS, i),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_indices_out_of_range_are_errors_of_the_program(name):
    run(OUT_OF_RANGE[name], torch.tensor([0, 1]) if name != "take" else torch.tensor([-4, -3]))
    with pytest.raises((poptorch.Error, ValueError, IndexError, RuntimeError)):
        run(OUT_OF_RANGE[name], torch.tensor([0, 4]))


def test_a_function_of_pytorch_that_looks_at_values_is_named():
    with pytest.raises(poptorch.Error, match=r"looked at the value .* in torch\._tensor"):
        run(lambda x: x * (2 if 1.5 in x else 1), NUMBERS)


def test_the_place_of_a_refusal_stands_once_in_its_message():
    with pytest.raises(poptorch.Error) as caught:
        run(lambda x: x * x.sum().item(), NUMBERS)
    first = str(caught.value).splitlines()[0]
    assert first.count("refusals_test.py") == 1
    assert "refusals_test.py" not in caught.value.message


def test_an_exception_of_a_hook_is_the_users_own(capfd):
    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            y = self.weight * x
            y.register_hook(lambda gradient: {}["missing"])
            return poptorch.identity_loss(y, reduction="sum")

    model = Hooked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(KeyError, match="missing"):
        poptorch.trainingModel(model, optimizer=optimizer)(NUMBERS)
    assert "SystemError" not in capfd.readouterr().err
