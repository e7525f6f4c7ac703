"""Small programs that random networks led to, and that were wrong once."""

import pytest
from check import examine
from network import Input, Network, Settings, Step


def network(inputs, init, lines, returned, loss="", **settings):
    """A network of lines that each make one value, the name before the first ' = '."""
    given = tuple(Input(name, shape) for name, shape in inputs.items())
    steps = [Step("layer", (), (), "pass", tuple(init))] if init else []
    steps += [Step("line", (), (), line) for line in lines]
    run = Settings(training=bool(loss), **settings)
    return Network(1, given, tuple(steps), loss, returned, run)


FOUND = {
    "a convolution of a diagonal, whose elements lie between one another": network(
        {"x": (2, 7, 9, 1)},
        ["self.l = nn.Conv1d(1, 1, 2)"],
        ["v = self.l(x.diagonal(0, 2, -3))"],
        "v",
    ),
    "a result that lies row by row though its operand does not": network(
        {"x": (5, 4, 3, 3)},
        [],
        ["v = F.log_softmax(x.permute(0, 2, 3, 1) + 1, 3)", "v.view(-1).sigmoid_()"],
        "v",
    ),
    "sums of outputs that are halves": network(
        {"x": (3, 2)}, [], ["v = x + 1"], "v", halves="all", iterations=3, output_mode="Sum"
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_wrong_once(name):
    assert examine(FOUND[name], [{"TESSERA_NUM_THREADS": "2"}]) is None
