"""popdist and the words of Horovod, for programs that run as one instance."""

import copy
import pathlib
import pickle
import subprocess
import sys

import horovod.torch as hvd
import popdist
import popdist.poptorch
import poptorch
import pytest
import torch

LAUNCHER = {
    "POPDIST_NUM_TOTAL_REPLICAS": "8",
    "POPDIST_NUM_LOCAL_REPLICAS": "2",
    "POPDIST_REPLICA_INDEX_OFFSET": "4",
    "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
    "POPDIST_NUM_IPUS_PER_REPLICA": "2",
    "POPDIST_LOCAL_INSTANCE_INDEX": "1",
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)
    yield
    hvd.shutdown()


@pytest.fixture
def launched(monkeypatch):
    """One of four instances, the second one on its machine."""
    for name, value in LAUNCHER.items():
        monkeypatch.setenv(name, value)


@pytest.mark.spec(
    "8.1 isPopdistEnvSet",
    "8.1 init",
    "8.1 getInstanceIndex",
    "8.1 getNumInstances",
    "8.1 getLocalInstanceIndex",
    "8.1 getNumTotalReplicas",
    "8.1 getNumLocalReplicas",
    "8.1 getNumIpusPerReplica",
    "8.1 checkNumIpusPerReplica",
    "8.1 getDeviceId",
)
def test_without_a_launcher_there_is_one_instance():
    assert popdist.isPopdistEnvSet() is False
    assert popdist.init() is None
    assert popdist.getInstanceIndex() == popdist.getLocalInstanceIndex() == 0
    assert popdist.getNumInstances() == 1
    assert popdist.getNumTotalReplicas() == popdist.getNumLocalReplicas() == 1
    assert popdist.getReplicaIndexOffset() == 0
    assert popdist.getNumIpusPerReplica() == 1
    assert popdist.checkNumIpusPerReplica(2) is True
    assert popdist.getDeviceId() == 0
    assert popdist.getDeviceId(4) == popdist.getDeviceId(ipus_per_replica=4) == 24


@pytest.mark.spec("8.2 environment", "8.1 getDeviceId")
def test_what_a_launcher_says(launched):
    assert popdist.isPopdistEnvSet() is True
    assert popdist.getInstanceIndex() == 2 and popdist.getNumInstances() == 4
    assert popdist.getLocalInstanceIndex() == 1
    assert popdist.getNumTotalReplicas() == 8 and popdist.getNumLocalReplicas() == 2
    assert popdist.getReplicaIndexOffset() == 4
    assert popdist.getNumIpusPerReplica() == 2
    assert popdist.checkNumIpusPerReplica(2) and not popdist.checkNumIpusPerReplica(1)
    assert popdist.getDeviceId() == 25  # the second group of four


@pytest.mark.spec("8.1 init", "8.1 horovod")
def test_instances_that_nobody_started(launched, monkeypatch):
    for init in (popdist.init, hvd.init):
        with pytest.raises(
            RuntimeError, match="instance 2 of 4, but nobody has started the others"
        ):
            init()
    assert not hvd.is_initialized()
    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "2")
    monkeypatch.setenv("POPDIST_REPLICA_INDEX_OFFSET", "0")
    popdist.init()  # one instance with two replicas


@pytest.mark.spec("8.1 init")
@pytest.mark.parametrize(
    "library, advice",
    [
        ("/nowhere/libtessera_mpi.so", "libopenmpi-dev and openmpi-bin, and build it again"),
        ("/nowhere/libmpi.so.40", "not installed: install the Debian package openmpi-bin"),
        (__file__, "was not built or not installed"),
    ],
)
def test_without_mpi_it_says_what_to_install(monkeypatch, library, advice):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("TESSERA_MPI_LIBRARY", library)
    with pytest.raises(RuntimeError, match=advice):
        popdist.init()
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE")
    popdist.init()  # one instance needs no MPI


@pytest.mark.spec("8.1 init")
def test_training_with_processes_that_nobody_started(launched):
    opts = poptorch.Options()
    opts.Distributed.configureProcessId(0, 3)
    training = poptorch.trainingModel(Scored(), opts)
    with pytest.raises(RuntimeError, match="instance 0 of 3, but nobody has started the others"):
        training(torch.ones(1, 2))


class Scored(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return poptorch.identity_loss(self.layer(x), "mean")


@pytest.mark.spec("8.1 uniform replicas")
def test_numbers_that_cannot_be(launched, monkeypatch):
    monkeypatch.setenv("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "0")
    for function in (popdist.getInstanceIndex, popdist.getNumInstances):
        with pytest.raises(RuntimeError, match="different numbers"):
            function()
    assert popdist.getNumTotalReplicas() == 8
    monkeypatch.setenv("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "1")
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "3")
    with pytest.raises(RuntimeError, match="contradicts itself"):
        popdist.getInstanceIndex()
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "many")
    with pytest.raises(ValueError, match="POPDIST_NUM_LOCAL_REPLICAS must be a whole number"):
        popdist.getNumLocalReplicas()


@pytest.mark.spec("8.1 execute_on_instances")
def test_functions_run_where_they_should(launched, monkeypatch):
    def add(one, *, other):
        return one + other

    assert popdist.execute_on_instances({2}, add, 1, other=2) == 3
    assert popdist.execute_on_instances([0, 1], add, 1, other=2) is None
    assert popdist.execute_on_instances(set(), add) is None
    with pytest.raises(ValueError, match="no instance 4"):
        popdist.execute_on_instances({4}, add)
    with pytest.raises(TypeError, match="numbers of instances"):
        popdist.execute_on_instances({"0"}, add)
    monkeypatch.delenv("POPDIST_NUM_TOTAL_REPLICAS")
    monkeypatch.delenv("POPDIST_NUM_LOCAL_REPLICAS")
    monkeypatch.delenv("POPDIST_REPLICA_INDEX_OFFSET")
    assert popdist.execute_on_instances({0}, add, 1, other=2) == 3
    with pytest.raises(ZeroDivisionError):
        popdist.execute_on_instances({0}, lambda: 1 / 0)


@pytest.mark.spec("8.1 popdist.poptorch.Options", "8.1 refused setters")
def test_options_have_what_the_launcher_decides(launched):
    opts = popdist.poptorch.Options()
    assert isinstance(opts, poptorch.Options)
    assert opts.replication_factor == 2
    assert (opts.Distributed.processId, opts.Distributed.numProcesses) == (2, 4)
    assert opts.deviceIterations(3) is opts and opts.device_iterations == 3
    for made in (opts, opts.clone(), copy.deepcopy(opts), pickle.loads(pickle.dumps(opts))):
        refused = {
            "useIpuId": lambda: made.useIpuId(1),
            "replicationFactor": lambda: made.replicationFactor(1),
            "Distributed.disable": lambda: made.Distributed.disable(),
            "Distributed.setEnvVarNames": lambda: made.Distributed.setEnvVarNames("A", "B"),
            "Distributed.configureProcessId": lambda: made.Distributed.configureProcessId(1),
        }
        assert made.set(log_dir="x") is None and made.log_dir == "x"
        for name, call in refused.items():
            words = rf"Cannot call `{name}` with popdist\.poptorch\.Options"
            with pytest.raises(RuntimeError, match=words):
                call()
        assert type(made) is popdist.poptorch.Options and made.replication_factor == 2
        assert made.Distributed.processId == 2
    for by_name in (
        lambda: opts.set(replication_factor=4),
        lambda: setattr(opts, "replication_factor", 4),
        lambda: setattr(opts.Distributed, "distributed_process_id", 0),
    ):
        with pytest.raises(RuntimeError, match="Cannot call"):
            by_name()
    for json in (
        '{"replicationFactor": 4}',
        '{"useIpuId": 1}',
        '{"Distributed.disable": []}',
        '{"Distributed.configureProcessId": [0, 2]}',
    ):
        with pytest.raises(RuntimeError, match="Cannot call"):
            opts.from_json(json)
    assert opts.from_json('{"deviceIterations": 5}').device_iterations == 5
    with pytest.raises(RuntimeError, match="ipus_per_replica is 4, but the launcher was told 2"):
        popdist.poptorch.Options(ipus_per_replica=4)
    assert popdist.poptorch.Options(2).replication_factor == 2


@pytest.mark.spec("8.1 popdist.poptorch.Options", "8.1 toDict")
def test_options_without_a_launcher():
    opts = popdist.poptorch.Options(ipus_per_replica=2)
    assert (opts.Distributed.processId, opts.Distributed.numProcesses) == (0, 1)
    assert opts.replication_factor == 1
    opts.outputMode(poptorch.OutputMode.All)
    assert opts.toDict()["ipu_id"] == 16  # the first pair
    opts.checkIsFrozen()  # it is not
    opts._freeze()
    assert opts.toDict()["ipu_id"] == 16
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.checkIsFrozen()


@pytest.mark.spec("8.1 popdist.poptorch.Options")
def test_loaders_of_instances_share_a_dataset(launched, monkeypatch):
    seen = []
    for offset in "0246":
        monkeypatch.setenv("POPDIST_REPLICA_INDEX_OFFSET", offset)
        opts = popdist.poptorch.Options()
        loader = poptorch.DataLoader(opts, torch.arange(37), batch_size=2)
        assert loader.combinedBatchSize == 4 and len(loader) == 2
        seen += [sample for batch in loader for sample in batch.tolist()]
    assert seen == list(range(32))


@pytest.mark.spec("8.1 horovod")
def test_collectives_of_one_process():
    for function in (hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.barrier):
        with pytest.raises(ValueError, match="has not been initialized; use hvd.init()"):
            function()
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.allreduce(torch.ones(1))
    hvd.init()
    assert hvd.is_initialized()
    assert (hvd.rank(), hvd.local_rank(), hvd.cross_rank()) == (0, 0, 0)
    assert (hvd.size(), hvd.local_size(), hvd.cross_size()) == (1, 1, 1)
    x = torch.tensor([1.0, 2.0])
    for arguments in ({}, dict(average=False), dict(op=hvd.Sum), dict(op=hvd.Average, name="x")):
        got = hvd.allreduce(x, **arguments)
        assert torch.equal(got, x) and got.data_ptr() != x.data_ptr()
    assert hvd.allreduce(x, prescale_factor=2, postscale_factor=3).tolist() == [6, 12]
    assert hvd.allreduce(torch.tensor(3)).item() == 3
    assert torch.equal(hvd.grouped_allreduce([x, 2 * x], op=hvd.Average)[1], 2 * x)
    assert torch.equal(hvd.allgather(x), x) and torch.equal(hvd.broadcast(x, 0), x)
    assert hvd.allreduce_(x, op=hvd.Sum) is x and hvd.broadcast_(x, root_rank=0) is x
    assert torch.equal(hvd.synchronize(hvd.allreduce_async(x)), x)
    assert hvd.broadcast_object({"a": 1}) == {"a": 1} and hvd.allgather_object(3) == [3]
    model = torch.nn.Linear(2, 2)
    before = copy.deepcopy(model.state_dict())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_parameters(model.named_parameters(), 0)
    hvd.broadcast_optimizer_state(torch.optim.SGD(model.parameters(), lr=1), root_rank=0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    hvd.barrier()
    hvd.shutdown()
    assert not hvd.is_initialized()


@pytest.mark.spec("8.1 horovod")
def test_collectives_that_are_refused():
    hvd.init()
    with pytest.raises(ValueError, match="not both"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="op must be"):
        hvd.allreduce(torch.ones(1), op="Sum")
    with pytest.raises(TypeError, match="torch.Tensor is needed, not float"):
        hvd.allreduce(1.0)
    with pytest.raises(ValueError, match="no process 1"):
        hvd.broadcast(torch.ones(1), root_rank=1)
    with pytest.raises(ValueError, match="broadcast_parameters takes"):
        hvd.broadcast_parameters([torch.ones(1)], 0)
    with pytest.raises(ValueError, match="no handle"):
        hvd.synchronize(77)
    with pytest.raises(AttributeError, match="no 'DistributedOptimizer'.*Horovod"):
        hvd.DistributedOptimizer


@pytest.mark.parametrize("before", [True, False])
def test_horovod_itself_comes_first(tmp_path, before):
    """A package of that name is imported, in front of ours on the path or behind it."""
    real = tmp_path / "horovod"
    (real / "torch").mkdir(parents=True)
    (real / "__init__.py").write_text("")
    (real / "torch" / "__init__.py").write_text("name = 'the real one'\n")
    folders = [str(tmp_path), *sys.path] if before else [*sys.path, str(tmp_path)]
    script = f"import sys; sys.path[:] = {folders!r}; import horovod.torch as h; print(h.name)"
    command = [sys.executable, "-B", "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "the real one\n"


def test_horovod_beside_ours_comes_first(tmp_path):
    ours = tmp_path / "horovod"
    (ours / "torch").mkdir(parents=True)
    (ours / "torch.py").write_text(pathlib.Path(hvd.__file__).read_text())
    (ours / "__init__.py").write_text("")
    (ours / "torch" / "__init__.py").write_text("name = 'the real one'\n")
    script = "import horovod.torch as hvd; print(hvd.name)"
    command = [sys.executable, "-B", "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ran.stdout == "the real one\n"


PROGRAM = """
try:
    import poptorch
    import popdist
    import popdist.poptorch
    import horovod.torch as hvd
except ImportError:
    raise SystemExit("not installed")
import torch


class Trainer:
    def __init__(self):
        self.net = torch.nn.Linear(4, 2)
        if popdist.isPopdistEnvSet():
            popdist.init()
            hvd.init()
            self.instance = popdist.getInstanceIndex()
        else:
            self.instance = 0

    def log_in_single_instance(self, text):
        if not popdist.isPopdistEnvSet() or popdist.getInstanceIndex() == 0:
            print(text)

    def options(self):
        if popdist.isPopdistEnvSet():
            opts = popdist.poptorch.Options()
            opts.randomSeed(42)
            self.log_in_single_instance(f"Num of local replicas: {popdist.getNumLocalReplicas()}")
        else:
            opts = poptorch.Options()
            opts.replicationFactor(1)
        return opts.deviceIterations(2)

    def train(self):
        opts = self.options()
        data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
        loader = poptorch.DataLoader(opts, data, batch_size=4, shuffle=True, drop_last=True)
        model = WithLoss(self.net)
        training = poptorch.trainingModel(
            model, opts, optimizer=torch.optim.SGD(model.parameters(), lr=1e-3)
        )
        total = torch.zeros(())
        for images, labels in loader:
            _, loss = training(images, labels)
            total += loss.mean()
        if popdist.isPopdistEnvSet():
            total = hvd.allreduce(total, average=True)
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        self.log_in_single_instance(f"model-{len(loader)}-{self.instance}.ckpt {bool(total > 0)}")


class WithLoss(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, labels):
        out = self.net(x)
        return out, self.loss(out, labels)


Trainer().train()
"""


@pytest.mark.spec("8.1 typical program")
@pytest.mark.parametrize("replicas", [None, 1, 2])
def test_a_program_for_several_instances_runs_as_one(tmp_path, replicas, monkeypatch):
    if replicas is not None:
        monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", str(replicas))
        monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", str(replicas))
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-B", tmp_path / "train.py"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[-1] == f"model-{8 // (replicas or 1)}-0.ckpt True"
    assert replicas is None or f"Num of local replicas: {replicas}" in lines


def test_all_names_have_a_docstring():
    assert sorted(popdist.__all__) == popdist.__all__
    for module in (popdist, popdist.poptorch, hvd):
        assert module.__doc__
    for name in popdist.__all__:
        assert getattr(popdist, name).__doc__, name
    for name, value in vars(hvd).items():
        if callable(value) and not name.startswith("_") and value.__module__ == hvd.__name__:
            assert value.__doc__, name
