"""Instances that train together are one process with all their replicas, to the last bit.

The instances run instance_programs.py. Starting them takes longer than what they do: two launches,
of two and of four, do everything but what ends badly.
"""

import pathlib
import re

import instance_programs as programs
import launch
import poptorch
import pytest
import torch
from instance_programs import TRAININGS
from models import MLP

pytestmark = launch.needs_mpi
PROGRAM = pathlib.Path(programs.__file__)
PARTS = """
train_all two_models training_and_inference other_weights weights_given_to_all cached loaded numbers
reductions gathered in_popdists_words some_instances disagreements
""".split()
ENDINGS = "other_rate other_number_of_batches other_shapes other_writes failure early_end".split()


class Ran:
    """What came of a program: of each of its parts, for each instance."""

    def __init__(self, folder, instances, process):
        self.stderr = launch.stderr_of(process)
        self.returncode = process.returncode
        self.instances = instances
        self.came = []
        for instance in range(instances):
            file = folder / f"{instances}-{instance}.pt"
            assert file.exists(), self.stderr
            self.came.append(torch.load(file))

    def values(self, part):
        """Those of all instances; the test fails with the part."""
        for instance, came in enumerate(self.came):
            assert "error" not in came[part], f"instance {instance}: {came[part]['error']}"
        return [came[part]["values"] for came in self.came]

    def told(self, part):
        """The sentences that the instances ended with."""
        return [came[part].get("told", "").split("\n")[0] for came in self.came]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("instances")


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """Programs that end badly, most of which wait: all at once, beside the others."""
    started = {}
    for name in ENDINGS:
        folder = tmp_path_factory.mktemp(name)
        process = launch.start(2, PROGRAM, folder, name, **launch.ALL_SAY_WHY)
        started[name] = (folder, 2, process)
    return {name: Ran(*one) for name, one in started.items()}


@pytest.fixture(scope="module")
def two(folder):
    return Ran(folder, 2, launch.start(2, PROGRAM, folder, "begin", *PARTS))


@pytest.fixture(scope="module")
def four(two, folder):
    """They go on with what two have left."""
    return Ran(folder, 4, launch.start(4, PROGRAM, folder, "go_on", *PARTS))


@pytest.fixture(params=[2, 4])
def ran(request):
    return request.getfixturevalue({2: "two", 4: "four"}[request.param])


ALONE = {}


def alone(name, replicas):
    """A training in this process."""
    if (name, replicas) not in ALONE:
        ALONE[name, replicas] = programs.trained(name, replicas)
    return ALONE[name, replicas]


def assert_equal_bits(a, b):
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert value.dtype == b[name].dtype and torch.equal(value, b[name]), name


def parameters(weights):
    """Without what each replica has for itself."""
    return {name: value for name, value in weights.items() if "running" not in name}


@pytest.mark.parametrize("instances", [2, 4])
def test_programs_end_well(instances, request):
    ran = request.getfixturevalue({2: "two", 4: "four"}[instances])
    assert ran.returncode == 0, ran.stderr


# ---- Numbers ----


@pytest.mark.spec("8.1 gradients")
@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("instances", [1, 2, 4])
def test_a_step_is_the_mean_gradient_of_all_replicas(instances, replicas, request):
    total = instances * replicas
    if instances == 1:
        after = [alone("gradient", replicas)]
    else:
        ran = request.getfixturevalue({2: "two", 4: "four"}[instances])
        after = [values["gradient", replicas] for values in ran.values("train_all")]
    training = TRAININGS["gradient"]
    before = training.new_model().state_dict()
    eager = training.new_model().double()
    x, labels = training.batch(total, 0)
    for part, names in zip(x.double().split(3), labels.split(3)):
        (eager(part, names)[1] / total).backward()
    for name, parameter in eager.named_parameters():
        wanted = -(2.0**40) * parameter.grad
        for values in after:
            step = values["weights"][name].double() - before[name].double()
            assert (step - wanted).abs().max() <= 1e-5 * wanted.abs().max(), name


@pytest.mark.spec("8.1 weights", "8.1 outputs", "12 replicas", "12 rng advances")
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("name", TRAININGS)
def test_instances_are_one_process_with_all_replicas(ran, name, replicas):
    expected = alone(name, replicas * ran.instances)
    losses = expected["losses"]
    losses = losses.reshape(len(losses), -1, ran.instances, replicas)
    for instance, values in enumerate(ran.values("train_all")):
        values = values[name, replicas]
        assert_equal_bits(parameters(values["weights"]), parameters(expected["weights"]))
        own = losses[:, :, instance].flatten()
        assert torch.equal(values["losses"].flatten(), own), instance
        assert own.isfinite().all()


@pytest.mark.spec("8.1 weights")
def test_four_replicas_in_four_instances(ran):
    for name in ("gradient", "adam"):
        expected = alone(name, 4 * ran.instances)
        for values in ran.values("train_all"):
            assert_equal_bits(values[name, 4]["weights"], expected["weights"])


def test_it_does_not_matter_when_gradients_travel(ran):
    for values in ran.values("train_all"):
        for replicas in (1, 2):
            assert_equal_bits(
                values["no overlap", replicas]["weights"], values["adam", replicas]["weights"]
            )


@pytest.mark.spec("12 buffers of replicas")
@pytest.mark.parametrize("replicas", [1, 2])
def test_statistics_are_each_instances_own(ran, replicas):
    training = TRAININGS["batch norm"]
    for instance, values in enumerate(ran.values("train_all")):
        eager = training.new_model()
        for step in range(training.steps):
            x, _ = training.batch(replicas * ran.instances, step)
            eager(x.split(3)[instance * replicas])  # the first replica's
        for name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):
            torch.testing.assert_close(
                values["batch norm", replicas]["weights"][name], eager.state_dict()[name]
            )


# ---- Programs that do more than train ----


def test_two_models_take_turns(ran):
    for values in ran.values("two_models"):
        for i, name in enumerate(("adam", "dropout")):
            assert_equal_bits(values[i], weights_after_three_steps(name, 2 * ran.instances))


def weights_after_three_steps(name, replicas):
    training = TRAININGS[name]
    model = training.new_model()
    executor = poptorch.trainingModel(
        model, training.options(replicas), training.optimizer(model.parameters())
    )
    for step in range(3):
        executor(*training.batch(replicas, step))
    executor.destroy()
    return programs.weights_of(model)


@pytest.mark.spec("8.1 outputs")
def test_training_and_inference(ran):
    torch.manual_seed(3)
    training = TRAININGS["adam"]
    untrained = training.new_model()
    trained = training.new_model()
    trained.load_state_dict(weights_after_three_steps("adam", 2 * ran.instances))
    x, _ = training.batch(2 * ran.instances, 100)
    for part, values in zip(x.split(6), ran.values("training_and_inference")):
        assert_equal_bits(values["weights"], trained.state_dict())
        with torch.no_grad():
            torch.testing.assert_close(values["outputs"][0], untrained(part))
            torch.testing.assert_close(values["outputs"][3], trained(part))
        assert not torch.equal(values["outputs"][1], values["outputs"][2])


def test_training_goes_on_in_any_number_of_instances(two, four, folder):
    begun, gone_on = two.values("begin"), four.values("go_on")
    checkpoints = [torch.load(folder / f"checkpoint-{instance}.pt") for instance in range(2)]
    for checkpoint in checkpoints:
        assert_equal_bits(checkpoint["model"], begun[0])
    resumed = programs.go_on_from(checkpoints[1])
    for weights in gone_on:
        assert_equal_bits(weights, resumed)
    assert not torch.equal(resumed["layers.0.weight"], begun[0]["layers.0.weight"])


def test_a_program_for_two_instances_is_not_loaded_in_one(two, folder):
    two.values("begin")
    training = TRAININGS["adam"]
    model = training.new_model()
    executor = poptorch.trainingModel(model, training.options(2), programs.adam(model.parameters()))
    words = r"compiled for 2 instances, not for 1; .*state_dict\(\)"
    with pytest.raises(poptorch.Error, match=words):
        executor.loadExecutable(str(folder / "executable-0.poptorch"))
        executor(*training.batch(2, 0))
    with pytest.raises((poptorch.Error, RuntimeError), match="2 instances|instance 0 of 2"):
        poptorch.load(str(folder / "executable-0.poptorch"))(*training.batch(2, 0))


@pytest.mark.spec("8.1 weights")
def test_weights_that_differ_are_those_of_the_first(ran):
    values = ran.values("other_weights")
    model = MLP()
    model.load_state_dict(values[0]["first"])
    training = TRAININGS["adam"]
    replicas = 2 * ran.instances
    executor = poptorch.trainingModel(
        model, training.options(replicas), training.optimizer(model.parameters())
    )
    executor(*training.batch(replicas, 0))
    after_one = programs.weights_of(model)
    with torch.no_grad():
        model.layers[0].weight.fill_(1)
    executor.copyWeightsToDevice()
    executor(*training.batch(replicas, 1))
    executor.destroy()
    for instance in values:
        assert_equal_bits(instance["after one"], after_one)
        assert_equal_bits(instance["after two"], programs.weights_of(model))
    warning = r"instance (\d) has other values of 'layers.0.weight' than instance 0: it goes on"
    warned = set(re.findall(warning, ran.stderr))
    assert warned == {str(instance) for instance in range(1, ran.instances)}


@pytest.mark.spec("9 several processes", "2.2 enableExecutableCaching")
def test_one_instance_compiles_for_all(ran, folder):
    weights = ran.values("cached")
    for values in weights:
        assert_equal_bits(values, weights[0])
    entries = [file for file in (folder / f"cache-{ran.instances}").iterdir() if file.is_file()]
    assert len([file for file in entries if not file.name.startswith(".")]) == 1, entries
    assert ran.stderr.count("from the executable cache in") == ran.instances - 1
    # Without a folder each of them compiles; one says so.
    advice = [line for line in ran.stderr.splitlines() if "processes compiles the model" in line]
    assert advice and all(line.startswith("[1,0]<stderr>:") for line in advice)


@pytest.mark.spec("3.2 drop_last", "3.2 keeping the remainder", "3.2 common shuffle")
@pytest.mark.spec("3.2 generator state")
def test_loaders_share_out_the_same_shuffle(ran):
    values = ran.values("loaded")
    each = 3 * (50 // (3 * ran.instances))
    for epoch in range(3):
        plain = [sample for loaded in values for sample in loaded["plain"][epoch]]
        assert plain == list(range(each * ran.instances))
        rest = [sample for loaded in values for sample in loaded["rest"][epoch]]
        assert rest == list(range(50))
        shuffled = [loaded["shuffled"][epoch] for loaded in values]
        assert all(len(own) == each for own in shuffled)
        assert len({sample for own in shuffled for sample in own}) == each * ran.instances
    assert values[0]["shuffled"][0] != values[0]["shuffled"][1]


# ---- Things done together ----


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(
            "numbers",
            marks=pytest.mark.spec(
                "8.1 getInstanceIndex",
                "8.1 getNumInstances",
                "8.1 getLocalInstanceIndex",
                "8.1 popdist.poptorch.Options",
            ),
        ),
        pytest.param("reductions", marks=pytest.mark.spec("8.1 horovod")),
        pytest.param("gathered", marks=pytest.mark.spec("8.1 horovod")),
        pytest.param("in_popdists_words", marks=pytest.mark.spec("8.1 init")),
        pytest.param("some_instances", marks=pytest.mark.spec("8.1 execute_on_instances")),
    ],
)
def test_together(ran, part):
    ran.values(part)


@pytest.mark.spec("8.1 horovod")
def test_weights_of_one_are_given_to_all(ran):
    values = ran.values("weights_given_to_all")
    for others in values:
        assert_equal_bits(others["weights"], values[1]["weights"])
        assert_equal_bits(others["moments"], values[1]["moments"])
        assert others["rate"].item() == pytest.approx(0.02)


# ---- What goes wrong ----


@pytest.mark.spec("3.2 randomSeed")
def test_all_are_told_the_same_where_one_has_something_else(ran):
    last = ran.instances - 1
    words = {
        "randomSeed": "its randomSeed is 8, not 7",
        "replicationFactor": "its replicationFactor is 2, not 1",
        "deviceIterations": "its deviceIterations is 2, not 1",
        "gradientAccumulation": "its gradientAccumulation is 2, not 1",
        "model": "it has another model, optimiser, loss or batch size",
        "optimiser": "it has another model, optimiser, loss or batch size",
        "batch size": "it has another model, optimiser, loss or batch size",
    }
    sentence = r"instance {} on \S+ compiles another program 'training' than instance 0: {}; all"
    for told in ran.values("disagreements"):
        assert told.keys() == words.keys()
        for name, text in words.items():
            assert re.search(sentence.format(last, text), told[name]), told[name]


@pytest.mark.parametrize(
    "ending, first, second",
    [
        ("other_rate", "instance 1 on .*other numbers", "instance 0 does.*other numbers .a learn"),
        ("other_shapes", "instance 1 on .* 2 numbers", "instance 0 does.* 2 numbers, this one 3"),
        ("other_writes", "instance 1 on .* comparing '", "comparing '.*' of 'training'"),
        ("failure", "instance 1 on .* failed: its program ended with exit code 1", "a label is"),
        ("early_end", "instance 1 on .* has ended its program while instance 0 on", "$"),
    ],
)
def test_whoever_waits_for_another_is_told_of_it(ends, ending, first, second):
    told = ends[ending].told(ending)
    assert re.search(first, told[0]), told
    assert re.search(second, told[1]), told


def test_another_number_of_batches_ends_soon(ends):
    ended = ends["other_number_of_batches"]
    for instance, told in enumerate(ended.told("other_number_of_batches")):
        assert re.search(rf"instance {instance} on \S+ waits in ", told), told
        assert "update 3 of 'training'" in told and "hvd.allreduce of 'accuracy'" in told
        assert "all instances must do the same, with as many batches each" in told
        assert ended.came[instance]["other_number_of_batches"]["seconds"] < 20
