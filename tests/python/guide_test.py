"""Programs of the guide that are whole run as they stand there."""
import pathlib
import re
import subprocess
import sys

import pytest

GUIDE = pathlib.Path(__file__).parents[2] / "docs/guide"
BLOCK = re.compile(r"^```python\n(import .*?)^```$", re.DOTALL | re.MULTILINE)


def programs():
    for page in sorted(GUIDE.glob("*.md")):
        for i, block in enumerate(BLOCK.findall(page.read_text())):
            yield pytest.param(block, id=f"{page.stem}-{i}")


@pytest.mark.parametrize("text", programs())
def test_a_program_runs(tmp_path, text):
    (tmp_path / "program.py").write_text(text)
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-B", "program.py"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_there_are_such_programs():
    assert len(list(programs())) >= 2
