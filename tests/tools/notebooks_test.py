"""tools/make_notebooks: a notebook is its script, cut into cells."""
import json
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = '''"""Title

More.
"""

# fmt: off

# %%
a = 1


# %% [markdown]
# ## Then
#
# Text.

# %%
# Why.
print(a)
'''


def make_notebooks(*arguments):
    command = [ROOT / "tools/make_notebooks", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "examples/python").mkdir(parents=True)
    (tmp_path / "examples/python/a.py").write_text(SCRIPT)
    (tmp_path / "examples/python/a.ipynb").write_text("old")
    return tmp_path


def test_the_notebooks_are_their_scripts():
    result = make_notebooks()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_script_that_changed_is_noticed_and_mended(checkout):
    result = make_notebooks(checkout)
    assert result.returncode == 1
    assert "examples/python/a.ipynb is not the notebook of its script" in result.stdout
    assert make_notebooks("--fix", checkout).returncode == 0
    assert make_notebooks(checkout).returncode == 0


def test_cells_hold_prose_and_code_and_nothing_else(checkout):
    make_notebooks("--fix", checkout)
    notebook = json.loads((checkout / "examples/python/a.ipynb").read_text())
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]] == [
        ("markdown", "# Title\n\nMore."),
        ("code", "a = 1"),
        ("markdown", "## Then\n\nText."),
        ("code", "# Why.\nprint(a)"),
    ]
