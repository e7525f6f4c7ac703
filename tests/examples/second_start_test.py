"""A second start of an example finds its programs, and says what that saved."""
import os
import pathlib
import subprocess

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples/python"


@pytest.mark.parametrize("name", ["01_linear.py", "03_custom_loss.py"])
def test_a_second_start_shows_the_hit(tmp_path, name):
    def said():
        result = subprocess.run(
            ["/usr/bin/python3", "-B", EXAMPLES / name],
            cwd=tmp_path,
            env={**os.environ, "POPTORCH_CACHE_DIR": "cache"},
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        return result.stderr

    first, second = said(), said()
    assert 'Creating "cache" directory' in first and "from the executable cache" not in first
    bars = [line for line in second.splitlines() if "Graph compilation" in line]
    assert bars and all("from the executable cache in " in bar for bar in bars), second
    assert "compiling took" in second
