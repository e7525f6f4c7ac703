"""bench/run measures, reports and refuses. How fast anything is, no test asks."""
import dataclasses
import importlib
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]
NAMES = """
cnn_b1 cnn_b16 cnn_b64 mlp_b64 resnet18_b12 resnet18_frozen_b12 resnet18_infer_b12 unet16 unet8
transformer fashion_mnist_epoch cnn_compile resnet18_compile unet16_compile resnet18_cached
resnet18_tuned_cached resnet18_memory unet16_memory cnn_half resnet18_half unet16_half unet8_half
transformer_half resnet18_half_memory unet16_half_memory cnn_replicas resnet18_replicas
cnn_instances resnet18_instances
""".split()
BLOCK = "before\n<!-- begin bench/run -->\nold\n<!-- end bench/run -->\nafter\n"


@pytest.fixture
def module(monkeypatch):
    """Imports a file of bench/."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module


def bench(*arguments, **environment):
    return subprocess.run(
        [ROOT / "bench/run", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_measures_both_sides(tmp_path):
    file, page, picture = tmp_path / "rows.json", tmp_path / "page.md", tmp_path / "rows.svg"
    page.write_text(BLOCK)
    outputs = ("--json", file, "--markdown", page, "--plot", picture)
    result = bench("--quick", "--only", "cnn_b1", *outputs)
    assert result.returncode == 0, result.stderr
    content = json.loads(file.read_text())
    (row,) = [row for row in content["rows"] if row["peer_name"] == "eager"]
    others = {row["peer_name"] for row in content["rows"]} - {"eager"}
    assert others == ({"inductor", "backend"} if hasattr(torch, "compile") else set())
    assert (row["name"], row["threads"], row["peer_threads"]) == ("cnn_b1", 1, 1)
    assert (row["unit"], row["peer_name"]) == ("seconds per step", "eager")
    assert row["ours"] > 0 and row["peer"] > 0
    assert row["ratio"] == pytest.approx(row["peer"] / row["ours"])
    assert row["goal"] is None and row["reached"] is None  # --quick proves nothing
    lines = result.stdout.splitlines()
    assert len(lines) == 1 + len(content["rows"]) and len({len(line) for line in lines}) == 1
    assert "cnn_b1, eager, 1 thread: " in result.stderr  # progress

    text = page.read_text()
    assert text.startswith("before\n<!-- begin") and text.endswith("end bench/run -->\nafter\n")
    assert "old" not in text and "\n| cnn_b1 | 1 | " in text
    assert f"`{content['command']}`" in text and "--only cnn_b1" in content["command"]
    assert picture.read_text().lstrip().startswith("<?xml") or "no plot: " in result.stderr


def test_counts_the_operations_of_the_direct_algorithm(module):
    flops, torch = module("flops"), module("torch")
    conv = torch.nn.Conv2d(3, 8, 5, padding=2)
    with flops.Flops() as counted:
        conv(torch.randn(2, 3, 10, 12)).sum().backward()
    forward = 2 * (2 * 8 * 10 * 12) * (3 * 5 * 5)
    assert counted.count == 2 * forward  # nobody asked for the gradient of the input
    with flops.Flops() as counted:
        torch.nn.Linear(30, 20)(torch.randn(7, 30, requires_grad=True)).sum().backward()
    assert counted.count == 3 * 2 * 7 * 30 * 20
    with flops.Flops() as counted:
        torch.nn.ConvTranspose2d(4, 6, 2, stride=2)(torch.randn(1, 4, 5, 5))
    assert counted.count == 2 * (4 * 5 * 5) * (6 * 2 * 2)


def effort_of(measuring, **changes):
    return measuring.Effort(threads=None, rounds=None, seconds=1, **changes)


class Program:
    """Stands for a program that was measured."""

    waited = ()

    def __init__(self, measuring, side, threads, seconds, flops=None):
        self.side, self.threads, self.median = side, threads, lambda: seconds
        self.setting = measuring.Setting(threads, threads)
        self.label, self.flops, self.values = side, flops, []


def test_a_row_takes_the_best_of_the_peer(module, monkeypatch):
    measuring = module("measuring")
    workload = dataclasses.replace(measuring.WORKLOADS["cnn_b16"], goals={2: 9})
    monkeypatch.setitem(measuring.WORKLOADS, "cnn_b16", workload)
    programs = [
        Program(measuring, "eager", 1, 3.0, flops=100),
        Program(measuring, "eager", 2, 2.0, flops=100),
        Program(measuring, "ours", 2, 0.25),
    ]
    (row,) = measuring.rows_of_steps("cnn_b16", programs, effort_of(measuring, peak=1000.0))
    assert (row["threads"], row["peer_threads"], row["ratio"]) == (2, 2, 8)
    assert row["goal"] == 9 and row["reached"] is False
    assert row["percent_of_peak"] == pytest.approx(100 * 400 / 2000)


def test_a_blas_without_threads_of_its_own_is_tried_once(module):
    measuring, blas = module("measuring"), module("blas")
    for name, counts in (("openblas-pthread", [1, 2]), ("openblas-openmp", [2]), (None, [1, 2])):
        effort = effort_of(measuring, shares_pool=blas.shares_pool(name))
        settings = measuring.eager_settings(2, False, effort)
        assert settings == [measuring.Setting(2, count) for count in counts], name


def test_torchscript_may_be_missing_and_others_not(module, monkeypatch):
    measuring = module("measuring")
    ended = []

    class Started:
        def __init__(self, side, *_):
            self.side, self.label, self.first_seconds = side, side, 1.0

        def warm_up(self):
            if self.side == missing:
                raise measuring.Failed(f"no {self.side} here")

        def end(self):
            ended.append(self.side)

    monkeypatch.setattr(measuring, "Program", Started)
    monkeypatch.setattr(measuring, "has_torch_compile", lambda: False)
    monkeypatch.setattr(measuring.onnx_peer, "start", lambda *_: Started("onnxruntime"))
    missing = "torchscript_optimized"
    programs = measuring.peers_of("resnet18_infer_b12", 1, effort_of(measuring), None)
    assert [p.side for p in programs] == ["eager", "torchscript_frozen", "onnxruntime"]
    assert ended == [missing]
    missing = "eager"
    with pytest.raises(measuring.Failed, match="no eager here"):
        measuring.peers_of("resnet18_infer_b12", 1, effort_of(measuring), None)


def test_a_program_that_is_killed_is_a_failure(module):
    programs = module("programs")
    command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    program = programs.Program("ours", "cnn_b1", programs.Setting(1, 1), 1, False, command)
    program.process.wait()
    with pytest.raises(programs.Failed, match="ended by signal 9; is there enough memory"):
        program.measure()
    program.end()


def test_inductor_has_a_row_of_its_own(module):
    measuring = module("measuring")
    programs = [
        Program(measuring, "eager", 2, 4.0),
        Program(measuring, "inductor_default", 2, 2.0),
        Program(measuring, "inductor_tuned", 2, 1.5),
        Program(measuring, "ours", 2, 1.0),
    ]
    rows = measuring.rows_of_steps("cnn_b16", programs, effort_of(measuring))
    assert [(row["peer_name"], row["ratio"], row["goal"]) for row in rows] == [
        ("eager", 4, 8),
        ("inductor", 1.5, 1),
    ]
    assert rows[1]["reached"]


def test_inference_has_a_row_for_each_peer(module):
    measuring = module("measuring")
    programs = [
        Program(measuring, "eager", 2, 4.0),
        Program(measuring, "torchscript_frozen", 2, 3.5),
        Program(measuring, "torchscript_optimized", 2, 3.0),
        Program(measuring, "onnxruntime", 2, 2.0),
        Program(measuring, "ours", 2, 1.0),
    ]
    effort = effort_of(measuring)
    rows = measuring.rows_of_steps("resnet18_infer_b12", programs, effort)
    assert [(row["peer_name"], row["ratio"], row["reached"]) for row in rows] == [
        ("onnxruntime", 2, True),
        ("torchscript", 3, None),
        ("eager", 4, None),
    ]
    rows = measuring.rows_of_steps("resnet18_infer_b12", programs[:3] + programs[4:], effort)
    assert [(row["peer_name"], row["goal"]) for row in rows] == [
        ("torchscript", None),
        ("eager", None),
    ]


def test_of_memory_less_is_better(module):
    measuring = module("measuring")
    sizes = {"unit": "bytes", "peer_name": "eager"}
    effort = effort_of(measuring)
    row = measuring.row_of("unet16_memory", 2, effort, ours=100, peer=200, **sizes)
    assert (row["ratio"], row["reached"]) == (0.5, True)
    row = measuring.row_of("unet16_memory", 2, effort, ours=300, peer=200, **sizes)
    assert (row["ratio"], row["reached"]) == (1.5, False)


def test_of_half_precision_less_is_better_too(module):
    measuring = module("measuring")
    programs = [
        Program(measuring, "ours", 2, 1.0),
        Program(measuring, "half", 2, 1.25),
        Program(measuring, "stochastic", 2, 0.75),
    ]
    rows = measuring.rows_of_own("cnn_half", programs, effort_of(measuring))
    assert [(row["name"], row["ratio"], row["reached"]) for row in rows] == [
        ("cnn_half", 1.25, False),
        ("cnn_half_stochastic", 0.75, True),
    ]
    assert {row["peer_name"] for row in rows} == {"float32"}
    assert measuring.WORKLOADS["unet16_half_memory"].goals == {2: 0.6}


def test_half_precision_beside_our_own_float32(tmp_path):
    file = tmp_path / "rows.json"
    result = bench("--quick", "--only", "cnn_half,transformer_half", "--json", file)
    assert result.returncode == 0, result.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [row["name"] for row in rows] == [
        "cnn_half",
        "cnn_half_stochastic",
        "transformer_half",
        "transformer_half_stochastic",
    ]
    assert all(row["peer_name"] == "float32" and row["goal"] is None for row in rows)


def test_replicas_beside_one_of_the_whole_batch(tmp_path):
    file = tmp_path / "rows.json"
    result = bench("--quick", "--only", "cnn_replicas", "--json", file)
    assert result.returncode == 0, result.stderr
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["name"], row["peer_name"]) == ("cnn_replicas", "one replica")


def test_instances_beside_one_of_the_whole_batch(tmp_path):
    file = tmp_path / "rows.json"
    result = bench("--quick", "--only", "cnn_instances", "--json", file)
    assert result.returncode == 0, result.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [row["name"] for row in rows] == ["cnn_instances", "cnn_instances_no_overlap"]
    for row in rows:
        assert row["peer_name"] == "one instance"
        assert 0 < row["waiting"] < 1 and row["bytes_sent"] > 0
    assert result.stderr.count("waiting for gradients") == 2


def test_the_arena_is_what_the_log_says(tmp_path):
    file = tmp_path / "rows.json"
    result = bench("--quick", "--only", "unet16_half_memory", "--json", file)
    assert result.returncode == 0, result.stderr
    (row,) = json.loads(file.read_text())["rows"]
    assert row["unit"] == "bytes" and row["ratio"] == pytest.approx(row["ours"] / row["peer"])


def test_different_values_are_no_comparison(module):
    measuring = module("measuring")
    programs = [Program(measuring, side, 1, 1) for side in ("ours", "eager")]
    programs[0].values = [2.0, 1.0]
    for values in ([2.0, 1.1], [2.0, float("nan")]):
        programs[1].values = values
        with pytest.raises(measuring.Failed, match=f"eager: computes {values[1]}, but ours"):
            measuring.check_same_values(programs, 1e-3)
    programs[1].values = [2.0001, 1.0001]
    measuring.check_same_values(programs, 1e-3)


def test_a_hopeless_peer_gets_no_turns(module):
    measuring = module("measuring")
    programs = [Program(measuring, "eager", n, n) for n in (1, 2)]
    programs += [Program(measuring, "torchscript_frozen", 1, 10)]
    kept = measuring.without_hopeless(programs, lambda program: program.median())
    assert kept == [programs[0], programs[2]]


def test_threads_of_a_program(module):
    programs = module("programs")
    environment = programs.Setting(2, 1, precise=True).environment()
    assert environment["OMP_NUM_THREADS"] == environment["TESSERA_NUM_THREADS"] == "2"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["TESSERA_PRECISION"] == "precise"
    assert "TESSERA_PRECISION" not in programs.Setting(2, 1).environment()


def test_the_page_says_what_was_not_measured(module):
    content = dict(
        command="bench/run", date="today", commit="c", cpu="x", torch="z", blas="y", peak=None
    )
    failures = ["cnn_b1, ours: too hot"]
    text = module("report").markdown({**content, "rows": [], "failures": failures})
    assert text.startswith("`bench/run`, today, commit c, on x, PyTorch z, BLAS y:\n")
    assert text.endswith("\n\nNot measured:\n\n- cnn_b1, ours: too hot")


def test_no_matplotlib_no_plot(module, monkeypatch, tmp_path):
    monkeypatch.setitem(importlib.sys.modules, "matplotlib", None)
    reason = module("report").plot(tmp_path / "a.svg", {"rows": []})
    assert reason == "matplotlib is not installed"


def test_onnx_runtime_may_be_out_of_reach(module, monkeypatch, tmp_path):
    onnx_peer = module("onnx_peer")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(onnx_peer.Failed, match="node and npm are not installed"):
        onnx_peer.packages()
    for name in ("node", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'npm error: no network' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(onnx_peer.Failed, match="cannot fetch .*: npm error: no network"):
        onnx_peer.packages()
    assert not list((tmp_path / "tessera").iterdir())


def test_which_blas_is_installed(module, tmp_path):
    blas = module("blas")
    assert blas.installed(tmp_path) is None
    for name in ("blas", "openblas-pthread"):
        library = tmp_path / "x86_64-linux-gnu" / name / "libblas.so.3.11.0"
        library.parent.mkdir(parents=True)
        library.touch()
        link = tmp_path / "x86_64-linux-gnu/libblas.so.3"
        link.unlink(missing_ok=True)
        link.symlink_to(library)
        assert blas.installed(tmp_path) == name


def test_openblas_takes_the_place_of_the_reference(module, monkeypatch, tmp_path):
    blas = module("blas")
    monkeypatch.setattr(blas, "installed", lambda: "blas")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    monkeypatch.setattr(blas, "fetch", lambda folder: "no network")
    assert blas.prepare() == "reference" and os.environ["LD_LIBRARY_PATH"] == "/mine"
    folder = tmp_path / "tessera/libopenblas0-pthread/usr/lib/x86_64-linux-gnu/openblas-pthread"
    folder.mkdir(parents=True)
    assert blas.prepare() == "openblas-pthread"
    assert os.environ["LD_LIBRARY_PATH"] == f"{folder}:/mine"


def test_lists_workloads():
    assert bench("--list").stdout.split() == NAMES
    assert bench("--list", "--only", "cnn_b").stdout.split() == NAMES[:3]
    assert bench("--list", "--only", "cnn_b1").stdout.split() == ["cnn_b1"]
    assert bench("--list", "--only", "unet8,mlp").stdout.split() == ["mlp_b64", "unet8"]
    assert all(name in bench("--help").stdout for name in NAMES)
    rows = bench("--rows", "--only", "cnn_b16,unet16_memory").stdout.splitlines()
    words = [tuple(row.split()[:3]) for row in rows]
    assert words == [("cnn_b16", "1", ">="), ("cnn_b16", "2", ">="), ("unet16_memory", "2", "<=")]
    (row,) = bench("--rows", "--only", "unet16_half").stdout.splitlines()
    assert row.split()[:4] == ["unet16_half", "2", "<=", "1.15"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--only", "alexnet"], "there is no workload 'alexnet': cnn_b1,"),
        (["--threads", "two"], "'two' is no list of numbers of threads"),
        (["--threads", "0"], "'0' is no list of numbers of threads"),
        (["--rounds", "0"], "at least one turn"),
        (["--json", "/no/such/folder/rows.json"], "'/no/such/folder' is no folder"),
        (["--plot", "rows.txt"], "'rows.txt' is neither an .svg nor a .png"),
        (["--markdown", "README.md"], "'README.md' has no block from <!-- begin bench/run -->"),
    ],
)
def test_wrong_usage(arguments, words):
    result = bench(*arguments)
    assert result.returncode == 2 and words in result.stderr


def test_a_program_that_fails_is_an_error(tmp_path):
    result = bench("--quick", "--only", "cnn_b1", PYTHONPATH="", TESSERA_BINARY_DIR=str(tmp_path))
    assert result.returncode == 1 and result.stdout == ""
    # Whichever of our programs is tried first.
    ours = "cnn_b1, ours, 1 thread: ModuleNotFoundError: No module named 'poptorch'"
    backend = "torch._dynamo.exc.InvalidBackend: Invalid backend: 'tessera'"
    assert ours in result.stderr or backend in result.stderr
    assert "no row says its percentage of the peak" in result.stderr
