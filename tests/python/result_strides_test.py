"""Results lie in memory as eager's do: what is changed through flatten() shows where it would."""

import poptorch
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

LAYOUTS = {
    "rotated": lambda x: x.permute(2, 0, 1),
    "transposed": lambda x: x.transpose(0, 2),
    "inner": lambda x: x.transpose(1, 2),
    "stepped": lambda x: x[..., ::2],
    "expanded": lambda x: x[:, :1].expand(-1, 4, -1),
}

OPERATORS = {
    "log_sigmoid": F.logsigmoid,
    "cummax": lambda x: torch.cummax(x, 1)[0],
    "cummin": lambda x: torch.cummin(x, -1)[0],
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 0),
    "cumsum": lambda x: x.cumsum(1),
    "cdist": lambda x: torch.cdist(x, x + 1),
    "one_hot": lambda x: F.one_hot((x > 0).long(), 3).float(),
    "rsub": lambda x: torch.rsub(x, torch.ones(x.shape)),
    "rot90": torch.rot90,
    "flip": lambda x: x.flip(0),
    "huber_loss": lambda x: F.huber_loss(x, torch.zeros(x.shape), reduction="none"),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(
        x.sigmoid(), torch.zeros(x.shape), reduction="none"
    ),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "masked_fill of a value": lambda x: x.masked_fill(x > 0, x.sum()),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, torch.ones(x.shape)),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "group_norm": lambda x: F.group_norm(x, 1),
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.5)),
    "kthvalue": lambda x: x.kthvalue(2, 1, keepdim=True)[0],
    "softmax": lambda x: x.softmax(1),
    "sort": lambda x: x.sort(0)[0],
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.unsqueeze(1).expand(-1, 4, -1, -1), 2),
    "conv1d": lambda x: F.conv1d(x, torch.ones(2, x.shape[1], 1)),
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2)),
    "linear": lambda x: F.linear(x, torch.ones(3, x.shape[2])),
    "where": lambda x: torch.where(x > 0, x, torch.zeros(x.shape)),
    "cat": lambda x: torch.cat([x, x], 1),
    "roll": lambda x: x.roll(1, 0),
    "gather": lambda x: x.gather(1, torch.zeros(x.shape, dtype=torch.long)),
    "pad": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "solve": lambda x: torch.linalg.solve(torch.eye(x.shape[1]) + 0 * x[0, 0, 0], x),
    "clone": torch.clone,
    "contiguous": lambda x: (x * 1).contiguous(),
}


class Changed(nn.Module):
    def __init__(self, operator, layout):
        super().__init__()
        self.operator, self.layout = operator, layout

    def forward(self, x):
        y = self.operator(self.layout(x))
        y.flatten().add_(1)
        # Which of the two is the view depends on the strides once more.
        z = y.transpose(0, -1)
        z.reshape(-1).mul_(2)
        return y * 1, torch.tensor(y.stride())  # known when the model is compiled


def check(operator, layout, x):
    model = Changed(operator, layout)
    expected, strides = model(x.clone())
    found, own_strides = poptorch.inferenceModel(model)(x)
    assert own_strides.tolist() == strides.tolist()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_change_through_flatten_reaches_what_eager_reaches(name, layout):
    torch.manual_seed(1)
    check(OPERATORS[name], LAYOUTS[layout], torch.randn(4, 6, 4) / 2)


IMAGES = {
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "permuted": lambda x: x.permute(0, 3, 1, 2),
    "one channel": lambda x: x[:, :1].permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
}


IMAGE_OPERATORS = {
    "conv2d": lambda x: F.conv2d(x, torch.ones(3, x.shape[1], 2, 2)),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, torch.ones(x.shape[1], 3, 2, 2)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "reflection_pad2d": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "grid_sample": lambda x: F.grid_sample(x, torch.zeros(x.shape[0], 2, 2, 2), align_corners=True),
}


@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("name", IMAGE_OPERATORS)
def test_a_change_of_an_image_reaches_what_eager_reaches(name, layout):
    torch.manual_seed(1)
    check(IMAGE_OPERATORS[name], IMAGES[layout], torch.randn(2, 4, 4, 4))


def test_large_images_are_laid_out_as_small_ones():
    model = Changed(
        lambda x: F.batch_norm(F.conv2d(x, torch.ones(8, 16, 3, 3)), None, None, training=True),
        IMAGES["channels last"],
    )
    x = torch.randn(8, 16, 96, 96)
    expected, strides = model(x.clone())
    found, own_strides = poptorch.inferenceModel(model)(x)
    assert own_strides.tolist() == strides.tolist()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
