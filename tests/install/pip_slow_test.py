"""`pip install` that builds everything itself."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


def test_pip_builds_and_installs(tmp_path):
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    for command in (
        ["/usr/bin/python3", "-m", "venv", "--system-site-packages", tmp_path / "v"],
        [tmp_path / "v/bin/pip", "install", "--no-build-isolation", "--no-index", ROOT],
        [tmp_path / "v/bin/python", ROOT / "examples/python/01_linear.py"],
    ):
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
