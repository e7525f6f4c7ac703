"""tools/check_layers lets the tree through and catches what its table forbids."""
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def check_layers(root):
    return subprocess.run([ROOT / "tools/check_layers", root], capture_output=True, text=True)


@pytest.fixture
def house(tmp_path):
    """A tree with the project's own table, and a function that writes a file of it."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/layers.txt", tmp_path / "tools")

    def write(path, *lines):
        file = tmp_path / "tessera" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
        return tmp_path

    return write


def test_the_project_keeps_its_layers():
    result = check_layers(ROOT)
    assert result.stdout == ""
    assert result.returncode == 0


@pytest.mark.parametrize(
    "path, include",
    [
        ("ops/a.cpp", '"tessera/ir/graph.h"'),
        ("ops/a.cpp", '"tessera/ops/b.h"'),
        ("ops/a.cpp", "<vector>"),
        ("ops/a.cpp", "<fmt/format.h>"),
        ("backend/cpu/lower/a.cpp", '"tessera/backend/cpu/plan.h"'),
        ("backend/cpu/kernels/onednn/conv.cpp", "<oneapi/dnnl/dnnl.hpp>"),
        ("torch/capture.cpp", "<ATen/ATen.h>"),
        ("bindings/module.cpp", "<pybind11/pybind11.h>"),
        ("tessera.h", '"tessera/api/options/options.h"'),
    ],
)
def test_allows(house, path, include):
    result = check_layers(house(path, f"#include {include}"))
    assert result.stdout == ""
    assert result.returncode == 0


@pytest.mark.parametrize(
    "path, include, sentence",
    [
        ("base/a.h", '"tessera/ir/graph.h"', "base may not include ir"),
        ("kernels/a.h", '"tessera/ir/graph.h"', "kernels may not include ir"),
        ("passes/a.cpp", "<tessera/runtime/session.h>", "passes may not include runtime"),
        ("passes/a.cpp", '"tessera/backend/cpu/plan.h"', "passes may not include backend/cpu"),
        ("torch/a.cpp", '"tessera/api/options/options.h"', "torch may not include api"),
        ("runtime/a.cpp", "<torch/torch.h>", "only in: torch, api, bindings"),
        ("cli/a.cpp", "<c10/core/Device.h>", "only in: torch, api, bindings"),
        ("backend/cpu/engine.cpp", "<dnnl.hpp>", "only in: backend/cpu/kernels"),
        ("ops/a.cpp", "<xbyak/xbyak.h>", "only in: backend/cpu/kernels"),
        ("api/a.cpp", "<pybind11/pybind11.h>", "only in: bindings"),
        ("torch/a.cpp", "<Python.h>", "only in: bindings"),
        ("ops/a.cpp", '"op_def.h"', "from the root"),
        ("ops/a.cpp", '"tessera/attic/old.h"', "in no folder"),
    ],
)
def test_catches(house, path, include, sentence):
    result = check_layers(house(path, "// A comment", f"#  include {include}"))
    assert result.returncode == 1
    assert result.stdout.startswith(f"tessera/{path}:2: ")
    assert sentence in result.stdout
    assert result.stdout.count("\n") == 1


def test_catches_a_folder_that_is_not_in_the_table(house):
    result = check_layers(house("attic/a.cpp", "int x;"))
    assert result.returncode == 1
    assert "tessera/attic/a.cpp:1: is in no folder" in result.stdout


def test_refuses_a_table_that_points_upwards(house):
    root = house("base/a.h", "")
    (root / "tools/layers.txt").write_text("base: ir\nir: base\n")
    result = check_layers(root)
    assert result.returncode == 1
    assert "'ir' must stand above 'base'" in result.stderr
