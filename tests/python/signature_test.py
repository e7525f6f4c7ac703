"""What a program says about itself, for callers who have neither the model nor PyTorch."""

import collections
import dataclasses

import poptorch
import torch

Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Boxed:
    inside: torch.Tensor
    label: str


class Returns(torch.nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


def structure_of(make):
    model = poptorch.inferenceModel(Returns(make))
    model(torch.ones(2))
    line = model._core.signature_text().splitlines()[0]
    return line[line.index("structure = ") :]


def test_the_structure_of_results_is_told():
    assert structure_of(lambda x: x + 1) == 'structure = "<tensor>"}'
    told = structure_of(lambda x: (x + 1, [x * 2, None], {"a": x * 3, 7: (1.5, True)}))
    assert told == (
        "structure = \"(<tensor>, [<tensor>, None], {'a': <tensor>, 7: (1.5, True)})\"}"
    )
    assert structure_of(lambda x: (x + 1,)) == 'structure = "(<tensor>,)"}'
    told = structure_of(lambda x: Pair(x + 1, object()))
    assert told == 'structure = "Pair(first=<tensor>, second=<object>)"}'
    told = structure_of(lambda x: Boxed(x + 1, "it's"))
    assert told == 'structure = "Boxed(inside=<tensor>, label=\\"it\'s\\")"}'


def test_host_types_and_changed_inputs_are_told():
    class Changes(torch.nn.Module):
        def forward(self, x, i):
            x += 1
            return x[i]

    options = poptorch.Options().deviceIterations(2)
    model = poptorch.inferenceModel(Changes(), options)
    model(torch.ones(6, dtype=torch.float64), torch.tensor([0, 2]))
    lines = model._core.signature_text().splitlines()
    assert lines[0].startswith("step {device_iterations = 2, gradient_accumulation = 1,")
    assert lines[1] == 'input {dtype = f32, host = f64, name = "x", shape = [3]}'
    assert lines[2] == 'input {dtype = i32, host = i64, name = "i", shape = [1]}'
    assert "writes_back {input = 0, output = 1}" in lines
