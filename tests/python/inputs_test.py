"""What a call accepts, how it is compared with the compiled one, and what comes back in inputs."""

import collections
import dataclasses
import subprocess
import sys

import poptorch
import pytest
import torch
import torch.nn as nn
from models import MLP, batch


class Calls(nn.Module):
    """Any forward, given as a function."""

    def __init__(self, forward):
        super().__init__()
        self.forward = forward


def wrapped(forward, options=None):
    return poptorch.inferenceModel(Calls(forward), options)


X = torch.arange(6.0).reshape(2, 3)


# Binding


@pytest.mark.spec("1.5 binding", "1.5 mandatory parameter")
@pytest.mark.parametrize("compiled", [False, True])
def test_arguments_are_those_of_forward(compiled):
    executor = wrapped(lambda x, y, scale=2: x * scale + y)
    if compiled:
        assert torch.equal(executor(X, X), X * 3)
    with pytest.raises(poptorch.Error, match="Mandatory parameter y missing"):
        executor(X)
    with pytest.raises(poptorch.Error, match="Mandatory parameter x missing"):
        executor(y=X)
    for args, kwargs in [((X, X, 2, 3), {}), ((X, X), {"other": 1}), ((X, X), {"x": X})]:
        with pytest.raises(AssertionError, match="forward\\(x, y, scale=2\\)"):
            executor(*args, **kwargs)
    assert torch.equal(executor(y=X, x=X), X * 3)


@pytest.mark.spec("1.5 defaults", "1.5 other values")
def test_defaults_are_filled_in_and_any_spelling_means_the_same():
    executor = wrapped(
        lambda x, scale=2, *, shift=None: x * scale + (0 if shift is None else shift)
    )
    for args, kwargs in [((X,), {}), ((), {"x": X}), ((X, 2), {}), ((X,), {"shift": None})]:
        assert torch.equal(executor(*args, **kwargs), X * 2)
    with pytest.raises(poptorch.Error, match="destroy\\(\\) or wrap"):
        executor(X, shift=X)
    assert executor._tensors_only
    executor.destroy()
    assert torch.equal(executor(X, shift=X), X * 3)
    assert torch.equal(executor(X, shift=X), X * 3)
    assert not executor._tensors_only


@pytest.mark.spec("1.5 defaults")
def test_a_tensor_that_is_a_default_is_a_constant():
    table = torch.tensor([1.0, 2.0, 3.0])
    executor = wrapped(lambda x, table=table: x + table, poptorch.Options().deviceIterations(2))
    assert torch.equal(executor(X), X + table)
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(X, table)


@pytest.mark.spec("1.5 binding")
def test_variable_arguments():
    executor = wrapped(lambda *parts, **named: sum(parts) + named["a"] - named["b"])
    assert torch.equal(executor(X, X, b=X, a=X * 2), X * 3)
    assert torch.equal(executor(X, X, b=X, a=X * 2), X * 3)
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(X, X, X, b=X, a=X)
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(X, X, a=X)


@pytest.mark.spec("1.5 binding")
def test_a_scripted_module_takes_what_it_takes():
    layer = nn.Linear(3, 2)
    executor = poptorch.inferenceModel(torch.jit.script(layer))
    for _ in range(2):
        torch.testing.assert_close(executor(X), layer(X).detach())


@pytest.mark.spec("1.5 binding")
def test_a_forward_without_arguments():
    weight = nn.Parameter(torch.ones(2))
    model = Calls(lambda: weight * 2)
    model.weight = weight
    executor = poptorch.inferenceModel(model)
    assert executor().tolist() == executor().tolist() == [2.0, 2.0]
    with pytest.raises(AssertionError, match="too many"):
        executor(X)


# Structures


Pair = collections.namedtuple("Pair", "first second")


class Derived(Pair):
    __slots__ = ()


class Config(collections.OrderedDict):
    """As libraries of models have them: its items are attributes, too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclasses.dataclass
class Record:
    image: torch.Tensor
    kind: str
    parts: list


STRUCTURES = {
    "list": lambda t, u: [t, [u]],
    "tuple": lambda t, u: ((t,), (u, "text")),
    "namedtuple": lambda t, u: Pair(t, [u]),
    "derived namedtuple": lambda t, u: Derived(t, u),
    "dict": lambda t, u: {"b": t, "a": (u, 3)},
    "OrderedDict": lambda t, u: collections.OrderedDict([("z", t), ("a", u)]),
    "derived OrderedDict": lambda t, u: Config(image=t, deeper=Config(part=u)),
    "defaultdict": lambda t, u: collections.defaultdict(list, t=t, u=u),
    "dataclass": lambda t, u: Record(t, "kind", [u]),
    "no tensor": lambda t, u: ["text", {"a": 1}, None],
}


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if dataclasses.is_dataclass(value):
        value = vars(value)
    children = value.values() if isinstance(value, dict) else value
    return (
        [t for c in children for t in leaves(c)] if isinstance(value, (tuple, list, dict)) else []
    )


def same_shape(a, b):
    """Types, lengths, keys and constants are equal; tensors are compared elsewhere."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor)
    if not isinstance(a, type(b)):
        return False
    if dataclasses.is_dataclass(a):
        return same_shape(vars(a), vars(b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_shape(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same_shape, a, b))
    return a == b


@pytest.mark.spec("1.5 structures", "1.6 returned structure")
@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_go_in_and_come_out(name):
    make = STRUCTURES[name]
    seen = []

    def forward(structure, x):
        seen.append(structure)
        found = leaves(structure) or [x, x]
        return make(found[0] + 1, found[-1] * 2), structure

    executor = wrapped(forward, poptorch.Options().deviceIterations(2))
    for value in (1.0, 5.0):
        given = make(torch.full((4, 2), value), torch.full((2,), value))
        made, passed = executor(given, X)
        assert same_shape(made, given) and same_shape(passed, given)
        for got, sent in zip(leaves(passed), leaves(given)):
            assert torch.equal(got, sent)
        if leaves(given):
            assert torch.equal(leaves(made)[0], leaves(given)[0] + 1)
            assert torch.equal(leaves(made)[-1], leaves(given)[-1] * 2)
    assert len(seen) == 1 and same_shape(seen[0], make(X, X))


@pytest.mark.spec("1.5 structures")
def test_attributes_of_a_derived_dictionary_follow():
    executor = wrapped(lambda config: config.image + config.deeper.part)
    assert torch.equal(executor(STRUCTURES["derived OrderedDict"](X, X)), X * 2)


@pytest.mark.spec("1.5 structures")
def test_packed_sequences_are_structures():
    lengths = torch.tensor([3, 2])
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 3, 4), lengths, batch_first=True)
    executor = wrapped(lambda data: (data.data * 2, len(data)))
    values, count = executor(packed)
    assert torch.equal(values, packed.data * 2) and count == 4


@pytest.mark.spec("1.5 dict warning")
def test_dictionaries_have_partial_support_and_it_is_said_once(capfd):
    executor = wrapped(lambda data, scale=1: data["x"] * scale)
    executor({"x": X})
    executor({"x": X})
    assert capfd.readouterr().err.count("partial support") == 1
    wrapped(lambda x, **kwargs: x + kwargs["y"])(X, y=X)  # keywords are no dictionary
    wrapped(lambda x, table: x + table["y"])(X, {"y": 3})
    assert "partial support" not in capfd.readouterr().err


@pytest.mark.spec("1.5 other values")
@pytest.mark.parametrize(
    "first,second",
    [(1, 2), (1, 1.0), (True, 1), ("a", "b"), (None, 0), ((1, 2), (1, 3)), ((1,), [1])],
    ids=str,
)
def test_other_values_are_constants(first, second):
    executor = wrapped(lambda x, value: (x + 1, value))
    assert executor(X, first)[1] == first
    executor(X, first)
    with pytest.raises(poptorch.Error, match="destroy\\(\\) or wrap the model again"):
        executor(X, second)
    executor.destroy()
    assert executor(X, second)[1] == second


@pytest.mark.spec("1.5 other values")
def test_a_list_of_constants_that_was_changed_since_is_noticed():
    executor = wrapped(lambda x, sizes, table: x * sizes[0] + table["a"][0])
    sizes, table = [2], {"a": [1]}
    assert torch.equal(executor(X, sizes, table), X * 2 + 1)
    assert torch.equal(executor(X, sizes, table), X * 2 + 1)
    table["a"][0] = 5
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(X, sizes, table)
    table["a"][0] = 1
    sizes.append(3)
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(X, sizes, table)


@pytest.mark.spec("1.5 other values")
def test_constants_that_compare_in_their_own_way():
    numpy = pytest.importorskip("numpy")
    executor = wrapped(lambda x, value: x + float(value.sum()))
    for _ in range(2):
        assert torch.equal(executor(X, numpy.ones(2)), X + 2)
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(X, numpy.zeros(2))


# Later calls


@pytest.mark.spec("1.5 changed inputs")
@pytest.mark.parametrize(
    "other",
    [
        torch.ones(4, 3),
        torch.ones(2, 3, 1),
        torch.ones(2, 3, dtype=torch.float64),
        torch.ones(2, 3, dtype=torch.int32),
        [torch.ones(2, 3)],
        3.0,
    ],
    ids=["batch", "rank", "float64", "int32", "container", "number"],
)
def test_an_argument_that_differs_from_the_compiled_one(other):
    executor = wrapped(lambda image, label: image + label)
    executor(X, X)
    with pytest.raises(poptorch.Error, match="compiled for.*destroy\\(\\) or wrap the model again"):
        executor(other, X)
    assert torch.equal(executor(X, X), X * 2)  # nothing is broken


@pytest.mark.spec("1.5 changed inputs")
@pytest.mark.parametrize(
    "first,second",
    [
        ((X, X), (X, X, X)),
        ([X, X], (X, X)),
        ({"a": X, "b": X}, {"a": X, "c": X}),
        ({"a": X, "b": X}, {"b": X, "a": X}),
        (Pair(X, X), Derived(X, X)),
    ],
    ids=["length", "type", "keys", "order of keys", "class"],
)
def test_a_structure_that_differs_from_the_compiled_one(first, second):
    executor = wrapped(lambda data: [t + 1 for t in leaves(data)])
    executor(first)
    with pytest.raises(poptorch.Error, match="compiled for.*destroy\\(\\) or wrap the model again"):
        executor(second)


@pytest.mark.spec("1.5 changed inputs")
def test_messages_call_tensors_by_their_names():
    executor = wrapped(lambda image, *rest, masks: image + rest[1] + masks["late"][0])
    executor(X, X, X, masks={"late": [X]})
    big = torch.ones(4, 3)
    for args, late, name in [((big, X, X), X, "image"), ((X, X, big), X, "rest.1")]:
        with pytest.raises(poptorch.Error, match=f"Shape mismatch for {name}: .*\\[4, 3\\]"):
            executor(*args, masks={"late": [late]})
    with pytest.raises(poptorch.Error, match="mismatch for masks.late.0:"):
        executor(X, X, X, masks={"late": [big]})


@pytest.mark.spec("1.5 changed inputs")
def test_calls_by_position_stay_quick_and_are_checked_all_the_same():
    model = MLP()
    executor = poptorch.inferenceModel(model)
    x, labels = batch("MLP")
    executor(x)
    assert executor._tensors_only  # although labels=None was filled in
    executor(x, None)
    with pytest.raises(poptorch.Error, match="compiled for"):
        executor(x, labels)
    with pytest.raises(AssertionError):
        executor(x, None, None)


# Sizes


@pytest.mark.spec("1.5 batch divisibility")
def test_dimension_0_is_divided_by_all_that_a_call_repeats():
    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(3)
    executor = poptorch.trainingModel(MLP(), options)
    with pytest.raises(AssertionError) as error:
        executor(*batch("MLP", size=8))
    for part in ("'x'", "8", "6", "deviceIterations (2)", "replicationFactor (1)"):
        assert part in str(error.value)
    assert "gradientAccumulation (3)" in str(error.value)
    assert executor(*batch("MLP", size=12))[0].shape == (2, 4)


@pytest.mark.spec("1.5 scalar inputs", "1.5 batch divisibility")
def test_a_scalar_counts_as_one():
    assert wrapped(lambda x, s: x * s)(X, torch.tensor(3.0)).equal(X * 3)
    with pytest.raises(AssertionError, match="'s' is 1"):
        wrapped(lambda x, s: x * s, poptorch.Options().deviceIterations(2))(X, torch.tensor(3.0))


@pytest.mark.spec("1.5 zero elements")
def test_inputs_without_elements():
    with pytest.raises(poptorch.Error, match="'x' has no elements"):
        wrapped(lambda x: x + 1)(torch.ones(0, 3))
    with pytest.raises(poptorch.Error, match="'y' has no elements"):
        wrapped(lambda x, y: x + y)(X, torch.ones(2, 0))


# Tensors of another form


@pytest.mark.spec("1.5 non-contiguous")
def test_tensors_that_are_not_contiguous_are_copied_with_one_warning(capfd):
    executor = wrapped(lambda x, y: x.view(-1) * 2 + y.view(-1))
    base = torch.arange(12.0).reshape(3, 4)
    for _ in range(2):
        for x, y in [(base.t(), base.t()), (base[:, ::2], base[:, ::2]), (base.t(), base.t() + 0)]:
            if x.shape == (4, 3):
                assert torch.equal(executor(x, y), x.reshape(-1) * 2 + y.reshape(-1))
    expanded = torch.ones(1, 3).expand(4, 3)
    assert torch.equal(executor(expanded, expanded), torch.full((12,), 3.0))
    assert capfd.readouterr().err.count("not contiguous") == 1


@pytest.mark.spec("1.5 structures")
@pytest.mark.parametrize(
    "other", [torch.eye(2).to_sparse(), torch.ones(2, 2, device="meta")], ids=["sparse", "meta"]
)
def test_tensors_without_elements_to_read(other):
    executor = wrapped(lambda x: x * 2)
    for _ in range(2):  # when it is compiled, and later
        with pytest.raises(poptorch.Error, match="'x'.*dense tensors on the CPU"):
            executor(other)
        executor(torch.eye(2))


@pytest.mark.spec("1.5 requires_grad inputs")
def test_inputs_that_require_gradients_are_detached_with_a_warning(capfd):
    executor = wrapped(lambda x: x * 2)
    x = X.clone().requires_grad_()
    for _ in range(2):
        result = executor(x)
        assert torch.equal(result, X * 2) and not result.requires_grad
    assert x.grad is None and x.requires_grad
    assert capfd.readouterr().err.count("requires_grad=True") == 1


@pytest.mark.spec("1.5 conversions")
def test_types_that_programs_do_not_have_become_others_with_one_warning_for_floats():
    code = (
        "import torch, poptorch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, i, d, b):\n"
        "        return i + 1, d * 2, b + 1\n"
        "quiet = poptorch.Options().showCompilationProgressBar(False)\n"
        "for _ in range(2):\n"
        "    e = poptorch.inferenceModel(Net(), quiet)\n"
        "    for _ in range(2):\n"
        "        r = e(torch.arange(3), torch.ones(3).double(), torch.ones(3).bfloat16())\n"
        "print([str(t.dtype) for t in r], [t.tolist() for t in r])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    types, values = done.stdout.strip().split("] [", 1)
    assert types == "['torch.int32', 'torch.float32', 'torch.float32'"
    assert values == "[1, 2, 3], [2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]"
    lines = done.stderr.splitlines()
    assert len(lines) == 2  # integers that fit lose nothing
    assert "input 'd' is float64" in lines[0]
    assert "float64 values are converted to float32" in lines[0]
    assert "input 'b' is bfloat16" in lines[1]
    assert "bfloat16 values are converted to float32, and results are float32" in lines[1]


# What forward does to its inputs


def adds_one(x):
    x += 1
    return x * 2


FORMS = {
    "float32": lambda: torch.arange(24.0).reshape(4, 6),
    "not contiguous": lambda: torch.arange(24.0).reshape(6, 4).t(),
    "part of another": lambda: torch.arange(48.0).reshape(4, 12)[:, 3:9],
    "int64": lambda: torch.arange(24).reshape(4, 6),
    "float64": lambda: torch.arange(24.0).double().reshape(4, 6),
    "requires_grad": lambda: torch.arange(24.0).reshape(4, 6).requires_grad_(),
}


@pytest.mark.spec("1.5 in-place on inputs")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("iterations", [1, 4])
def test_what_forward_changes_in_place_is_written_back(form, iterations):
    x = FORMS[form]()
    before, base = x.detach().clone(), x._base
    base_before = None if base is None else base.clone()
    executor = wrapped(adds_one, poptorch.Options().deviceIterations(iterations))
    for count in (1, 2):
        result = executor(x)
        assert torch.equal(x.detach(), before + count) and x.dtype == before.dtype
        assert torch.equal(result, ((before + count) * 2).to(result.dtype))
    if base is not None:  # and nothing else of what it is a part of
        changed = (base != base_before).sum()
        assert changed == x.numel()


@pytest.mark.spec("1.5 in-place on inputs")
def test_in_place_changes_while_training_with_accumulation():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x, seen):
            seen[:, 0] = x.sum(1)
            seen[:, 1].add_(1)
            return poptorch.identity_loss(self.fc(x), "mean")

    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(2)
    executor = poptorch.trainingModel(Counts(), options)
    x, seen = torch.randn(8, 3), torch.zeros(8, 3)
    for count in (1, 2):
        executor(x, seen)
        torch.testing.assert_close(seen[:, 0], x.sum(1))
        assert torch.equal(seen[:, 1], torch.full((8,), float(count))) and not seen[:, 2].any()


@pytest.mark.spec("1.5 in-place on inputs")
def test_an_input_that_is_changed_inside_a_structure_and_others_are_not():
    def forward(data, other):
        data["state"][0].mul_(3)
        return data["state"][0] + other

    executor = wrapped(forward)
    state, other = torch.ones(3), torch.ones(3)
    for value in (3.0, 9.0):
        assert torch.equal(executor({"state": [state]}, other), torch.full((3,), value + 1))
        assert torch.equal(state, torch.full((3,), value)) and torch.equal(other, torch.ones(3))


@pytest.mark.spec("1.5 changed inputs")
def test_a_class_that_does_not_exist_is_an_error_not_a_crash():
    model = MLP().train()
    executor = poptorch.trainingModel(model)
    x, labels = batch("MLP")
    with pytest.raises(poptorch.Error, match="class index 9"):
        executor(x, torch.full_like(labels, 9))
    executor(x, labels)


@pytest.mark.spec("1.5 changed inputs")
def test_what_does_not_fit_the_model_is_reported_with_the_line():
    with pytest.raises(poptorch.Error, match="models.py"):
        poptorch.inferenceModel(MLP())(torch.randn(8, 21))
    with pytest.raises(poptorch.Error, match="models.py.*expected .* Float but found Int|dtype"):
        poptorch.inferenceModel(MLP())(torch.ones(8, 20, dtype=torch.int32))
