"""What sums of products of halves are kept in: bits of programs against the rule written out."""
import poptorch
import pytest
import torch
from torch import nn


def options(partials=None, stochastic=False):
    opts = poptorch.Options().showCompilationProgressBar(False).randomSeed(7)
    opts.Precision.enableStochasticRounding(stochastic)
    if partials is not None:
        opts.Precision.setPartialsType(partials)
    return opts


def run(model, *inputs, opts):
    return poptorch.inferenceModel(model, opts)(*inputs)


def halves(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * 4).half()


def summed(products, runs=1):
    """Sums over the last dimension, which consists of so many runs, as docs/guide/precision.md has
    it: blocks of 16 in float32, 64 of them in a half, and these in float32."""
    blocks = []
    for run_of_depth in products.chunk(runs, -1):
        for block in run_of_depth.split(16, -1):
            total = torch.zeros(block.shape[:-1])
            for i in range(block.shape[-1]):
                total = total + block[..., i]
            blocks.append(total)
    sums = None
    for begin in range(0, len(blocks), 64):
        partial = torch.zeros_like(blocks[0])
        for block in blocks[begin : begin + 64]:
            partial = (partial + block).half().float()
        sums = partial if sums is None else sums + partial
    return sums


def product(a, b):
    """Of matrices [..., rows, depth] and [..., depth, cols] of halves, as a float."""
    return summed(a.float().unsqueeze(-2) * b.float().transpose(-1, -2).unsqueeze(-3))


class Product(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


SIZES = [(3, 16, 2), (5, 17, 4), (2, 300, 3), (1, 1024, 2), (2, 2100, 2)]


@pytest.mark.spec("11 partials", "2.4 setPartialsType")
@pytest.mark.parametrize("size", SIZES)
def test_products_of_halves(size):
    rows, depth, cols = size
    a, b = halves(rows, depth), halves(depth, cols, seed=1)
    result = run(Product(), a, b, opts=options(torch.half))
    assert result.equal(product(a, b).half())
    in_floats = run(Product(), a, b, opts=options(torch.float))
    assert in_floats.equal(run(Product(), a, b, opts=options()))
    assert depth <= 16 or not result.equal(in_floats)


@pytest.mark.spec("11 partials")
def test_batches_of_products():
    a, b = halves(3, 4, 50), halves(3, 50, 5, seed=1)
    assert run(Product(), a, b, opts=options(torch.half)).equal(product(a, b).half())


@pytest.mark.spec("11 partials")
def test_a_bias_is_added_to_the_half():
    layer = nn.Linear(100, 3).half()
    x = halves(5, 100)
    expected = product(x, layer.weight.detach().t()) + layer.bias.detach().float()
    assert run(layer, x, opts=options(torch.half)).equal(expected.half())


@pytest.mark.spec("11 partials")
@pytest.mark.parametrize("types", [(torch.float, torch.float), (torch.half, torch.float)])
def test_only_products_of_halves(types):
    """Float32 programs keep their bits, and so do products of both types."""
    a, b = halves(4, 200).to(types[0]), halves(200, 3, seed=1).to(types[1])
    assert run(Product(), a, b, opts=options(torch.half)).equal(
        run(Product(), a, b, opts=options())
    )


@pytest.mark.spec("11 partials")
def test_an_overflow_inside():
    a = torch.zeros(1, 48).half()
    a[0, 0], a[0, 16], a[0, 32] = 60000, 60000, -60000
    b = torch.ones(48, 1).half()
    assert run(Product(), a, b, opts=options(torch.half)).isinf().all()
    assert run(Product(), a, b, opts=options()).item() == 60000


# ---- Convolutions ----


def convolved(x, weight, padding=1):
    """[n, c, h, w] and [o, c, k, k], as a float: an element of the kernel after the other, in each
    the channels."""
    kernel = weight.shape[-1]
    x = nn.functional.pad(x.float(), (padding,) * 4)
    patches = x.unfold(2, kernel, 1).unfold(3, kernel, 1)  # [n, c, h, w, k, k]
    patches = patches.permute(0, 2, 3, 4, 5, 1).flatten(3)  # [n, h, w, depth]
    filters = weight.float().permute(0, 2, 3, 1).flatten(1)  # [o, depth]
    sums = summed(patches.unsqueeze(3) * filters, kernel * kernel)  # [n, h, w, o]
    return sums.permute(0, 3, 1, 2)


class Net(nn.Module):
    """A convolution and a loss whose gradient is known."""

    def __init__(self, channels=20, filters=18):
        super().__init__()
        torch.manual_seed(3)
        self.conv = nn.Conv2d(channels, filters, 3, padding=1, bias=False)

    def forward(self, x, direction):
        out = self.conv(x)
        return out, poptorch.identity_loss((out * direction).float(), "sum")


def step(model, *inputs, opts):
    """The output, and the gradient of the weight."""
    model = model.half()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0)
    opts.anchorTensor("gradient", "Gradient___conv.weight")
    training = poptorch.trainingModel(model, opts, optimizer)
    out = training(*inputs)[0]
    return out, training.getAnchoredTensor("gradient")


@pytest.mark.spec("11 partials")
def test_convolutions_and_their_gradients():
    x, direction = halves(2, 20, 6, 7), halves(2, 18, 6, 7, seed=1)
    model = Net()
    weight = model.conv.weight.detach().half()
    out, gradient = step(model, x, direction, opts=options(torch.half))
    assert out.equal(convolved(x, weight).half())
    # Places of all images one after the other.
    patches = nn.functional.pad(x.float(), (1,) * 4).unfold(2, 3, 1).unfold(3, 3, 1)
    patches = patches.permute(1, 4, 5, 0, 2, 3).flatten(3)  # [c, k, k, places]
    places = direction.float().permute(1, 0, 2, 3).flatten(1)  # [o, places]
    expected = summed(places[:, None, None, None, :] * patches)
    assert gradient.equal(expected.half())


@pytest.mark.spec("11 partials")
def test_gradients_of_inputs():
    class Deep(Net):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(20, 1, 1))

        def forward(self, x, direction):
            return super().forward(x * self.scale, direction)

    model = Deep().half()
    x, direction = halves(1, 20, 5, 5), halves(1, 18, 5, 5, seed=1)
    opts = options(torch.half)
    opts.anchorTensor("gradient", "Gradient___scale")
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.0)
    training = poptorch.trainingModel(model, opts, optimizer)
    training(x, direction)
    # Elements of the kernel in their order, at each the channels of the result.
    taps = nn.functional.pad(direction.float(), (1,) * 4).unfold(2, 3, 1).unfold(3, 3, 1).flip(4, 5)
    taps = taps.permute(0, 2, 3, 4, 5, 1).flatten(3)  # [n, h, w, depth]
    filters = model.conv.weight.detach().float().permute(1, 2, 3, 0).flatten(1)  # [c, depth]
    of_input = summed(taps.unsqueeze(3) * filters, 9).permute(0, 3, 1, 2).half()
    of_scale = (of_input.float() * x.float()).half().float().sum((0, 2, 3)).half()
    assert training.getAnchoredTensor("gradient").flatten().equal(of_scale)


# ---- Where it is said ----


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.conv = nn.Conv2d(40, 4, 3, padding=1, bias=False)
        self.fc = nn.Linear(160, 3, bias=False)

    def forward(self, x, y):
        return self.conv(x), self.fc(y)


def kept_in(opts):
    """What the sums of Both are kept in: of the convolution and of the product."""
    model = Both().half()
    x, y = halves(1, 40, 5, 5), halves(2, 160, seed=1)
    conv, fc = run(model, x, y, opts=opts)
    in_floats = run(model, x, y, opts=options())
    weights = [layer.weight.detach() for layer in (model.conv, model.fc)]
    in_halves = convolved(x, weights[0]).half(), product(y, weights[1].t()).half()
    found = []
    for result, floats, rounded in zip((conv, fc), in_floats, in_halves):
        assert not floats.equal(rounded)
        assert result.equal(floats) or result.equal(rounded)
        found.append(torch.float if result.equal(floats) else torch.half)
    return tuple(found)


@pytest.mark.spec("2.4 setPartialsType", "2.3 setConvolutionDithering")
def test_products_and_convolutions_have_a_value_each():
    assert kept_in(options()) == (torch.float, torch.float)
    assert kept_in(options(torch.half)) == (torch.half, torch.half)
    opts = options(torch.half)
    opts.Precision.setPartialsType(torch.float)
    assert kept_in(opts) == (torch.float, torch.float)
    opts = options()
    opts._Popart.set("partialsTypeMatMuls", "half")
    assert kept_in(opts) == (torch.float, torch.half)
    opts = options()
    opts._Popart.set("convolutionOptions", {"partialsType": "half"})
    assert kept_in(opts) == (torch.half, torch.float)
    opts = options(torch.half)
    opts.Training.setConvolutionDithering(True)  # takes the place of all options of convolutions
    assert kept_in(opts) == (torch.float, torch.half)
    opts = options()
    opts.Training.setConvolutionDithering(True)
    opts.Precision.setPartialsType(torch.half)
    assert kept_in(opts) == (torch.half, torch.half)


@pytest.mark.parametrize(
    "key, value, message",
    [
        (
            "partialsTypeMatMuls",
            "flota",
            "partialsTypeMatMuls must be 'half' or 'float', not flota",
        ),
        (
            "convolutionOptions",
            {"partialsType": 3},
            "convolutionOptions.*partialsType.* must be 'half' or 'float', not 3",
        ),
    ],
)
def test_other_words_are_refused(key, value, message):
    opts = options()
    opts._Popart.set(key, value)
    with pytest.raises(poptorch.Error, match=message):
        run(Product(), halves(2, 2), halves(2, 2), opts=opts)


# ---- MultiConv ----


class Several(nn.Module):
    """Three convolutions, two of them in a MultiConv; the gradients of all can be seen."""

    def __init__(self, multi):
        super().__init__()
        torch.manual_seed(5)
        self.multi = multi
        self.convs = nn.ModuleList(nn.Conv2d(40, 3, 3, padding=1, bias=False) for _ in range(3))

    def forward(self, x, direction):
        first = self.convs[0](x)
        with self.multi():
            second, third = self.convs[1](x), self.convs[2](x)
        loss = ((first + second + third) * direction).float()
        return first, second, third, poptorch.identity_loss(loss, "sum")


def said_of_each(multi, partials=None):
    """For each convolution: what its sums and those of its weight's gradient are kept in."""
    x, direction = halves(2, 40, 9, 9), halves(2, 3, 9, 9, seed=1)

    def values(multi, partials):
        model = Several(multi).half()
        opts = options(partials)
        for i in range(3):
            opts.anchorTensor(f"g{i}", f"Gradient___convs.{i}.weight")
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.0)
        training = poptorch.trainingModel(model, opts, optimizer)
        outputs = training(x, direction)[:3]
        return list(outputs) + [training.getAnchoredTensor(f"g{i}") for i in range(3)]

    known = {t: values(poptorch.MultiConv, t) for t in (torch.float, torch.half)}
    found = []
    for i, value in enumerate(values(multi, partials)):
        assert not known[torch.float][i].equal(known[torch.half][i])
        (kind,) = [t for t in known if value.equal(known[t][i])]
        found.append(kind)
    assert found[:3] == found[3:]
    return found[:3]


@pytest.mark.spec("6 MultiConv", "11 partials")
def test_a_multi_conv_goes_before_the_options():
    full, half = torch.float, torch.half

    def multi(types):
        return lambda: poptorch.MultiConv().partialsTypes(types)

    assert said_of_each(multi(half)) == [full, half, half]
    assert said_of_each(multi(full), half) == [half, full, full]
    assert said_of_each(multi([full, half])) == [full, full, half]
    assert said_of_each(multi((half, full)), half) == [half, half, full]
    assert said_of_each(multi(None), half) == [half, half, half]


@pytest.mark.spec("6 MultiConv")
def test_types_may_be_said_at_the_end():
    class Late(Several):
        def __init__(self):
            super().__init__(poptorch.MultiConv)

        def forward(self, x):
            with poptorch.MultiConv() as multi:
                out = self.convs[0](x)
                multi.partialsTypes(torch.half)
            return out

    x = halves(2, 40, 9, 9)
    model = Late().half()
    expected = convolved(x, model.convs[0].weight.detach()).half()
    assert run(model, x, opts=options()).equal(expected)


@pytest.mark.spec("6 MultiConv")
def test_a_multi_conv_of_floats_changes_nothing():
    model = Several(lambda: poptorch.MultiConv().partialsTypes(torch.half))
    x, direction = torch.randn(2, 40, 9, 9), torch.randn(2, 3, 9, 9)
    result = run(model, x, direction, opts=options(torch.half))
    plain = run(Several(poptorch.MultiConv), x, direction, opts=options())
    assert all(a.equal(b) for a, b in zip(result, plain))
    assert torch.allclose(model(x, direction)[1], result[1], rtol=1e-4, atol=1e-5)  # on the host


class Wrong(nn.Module):
    def __init__(self, work):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)
        self.work = work

    def forward(self, x):
        self.work(self.conv, x)
        return self.conv(x)


def nested(conv, x):
    with poptorch.MultiConv(), poptorch.MultiConv():
        conv(x)


def empty(conv, x):
    with poptorch.MultiConv():
        x + x


def too_many_types(conv, x):
    with poptorch.MultiConv().partialsTypes([torch.half] * 2):
        conv(x)


def too_many_shares(conv, x):
    with poptorch.MultiConv().availableMemoryProportions([0.1, 0.2]):
        conv(x)


@pytest.mark.spec("6 MultiConv")
@pytest.mark.parametrize(
    "work, message",
    [
        (nested, "a MultiConv begins inside another one"),
        (empty, "there is no convolution in a MultiConv"),
        (too_many_types, "partialsTypes has 2 types, but there are 1 convolutions inside"),
        (too_many_shares, "availableMemoryProportions has 2 values, but there are 1 convolutions"),
    ],
)
def test_wrong_multi_convs(work, message):
    x = torch.randn(1, 1, 2, 2)
    with pytest.raises(poptorch.Error, match=message):
        run(Wrong(work), x, opts=options())
    assert Wrong(work)(x).shape == x.shape  # on the host it is nothing


@pytest.mark.spec("6 MultiConv")
def test_what_fails_inside_is_what_is_said():
    def fail_once(conv, x):
        try:
            with poptorch.MultiConv():
                raise KeyError("mine")
        except KeyError:
            pass
        with poptorch.MultiConv():
            conv(x)

    x = torch.randn(1, 1, 2, 2)
    assert run(Wrong(fail_once), x, opts=options()).shape == x.shape


@pytest.mark.spec("6 MultiConv")
def test_what_a_multi_conv_takes():
    multi = poptorch.MultiConv()
    assert multi.availableMemoryProportions(0.5).availableMemoryProportions((0.1, 0.2)) is multi
    assert multi.planType(poptorch.MultiConvPlanType.Serial).perConvReservedTiles(12) is multi
    assert multi.cycleBackOff(0.1).enableConvDithering([True, False]) is multi
    for call, wrong, error in [
        (multi.availableMemoryProportions, "much", AssertionError),
        (multi.availableMemoryProportions, [0.1, None], AssertionError),
        (multi.availableMemoryProportions, 1.5, ValueError),
        (multi.partialsTypes, "half", AssertionError),
        (multi.partialsTypes, torch.double, ValueError),
        (multi.partialsTypes, [torch.half, torch.int], ValueError),
        (multi.partialsTypes, [], ValueError),
        (multi.planType, 0, AssertionError),
        (multi.perConvReservedTiles, 1.5, AssertionError),
        (multi.perConvReservedTiles, -1, AssertionError),
        (multi.cycleBackOff, "0.1", AssertionError),
        (multi.cycleBackOff, 2.0, ValueError),
        (multi.enableConvDithering, 1, AssertionError),
    ]:
        with pytest.raises(error, match="takes|must be"):
            call(wrong)


# ---- By chance ----


@pytest.mark.spec("11 stochastic rounding", "11 partials")
def test_partials_are_rounded_by_chance_where_all_is():
    """A quarter of the gap, three times, which rounding to nearest loses."""
    a = torch.zeros(1, 64).half()
    a[0, 0] = 1
    a[0, 16::16] = 2.0**-12
    b = torch.ones(64, 20000).half()
    assert run(Product(), a, b, opts=options(torch.half)).eq(1).all()
    result = run(Product(), a, b, opts=options(torch.half, stochastic=True))
    assert (result.float().mean() - 1).item() / 2.0**-12 == pytest.approx(3, abs=0.1)
    assert result.equal(run(Product(), a, b, opts=options(torch.half, stochastic=True)))
