"""The code in the guide: every program stands on its own and runs as it stands there."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import poptorch
import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("TESSERA_BINARY_DIR", ROOT / "build"))
GUIDE = sorted((ROOT / "docs/guide").glob("*.md"))
OTHERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(language, pages=GUIDE):
    for page in pages:
        texts = [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]
        for i, text in enumerate(texts):
            yield pytest.param(text, id=f"{page.stem}-{i}")


def one_block(page, language):
    (text,) = [block.values[0] for block in blocks(language, [ROOT / "docs/guide" / page])]
    return text


def test_every_block_says_what_it_is():
    for page in [*GUIDE, *OTHERS]:
        for kind, text in BLOCK.findall(page.read_text()):
            assert kind in ("python", "cpp", "sh", "text", "json", "cmake"), f"{page.name}:\n{text}"


@pytest.mark.parametrize("text", blocks("python"))
def test_a_program_runs(tmp_path, text):
    if "torch.compile(" in text and not hasattr(torch, "compile"):
        pytest.skip("PyTorch 1.13 has no torch.compile()")
    (tmp_path / "program.py").write_text(text)
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-B", "program.py"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_there_are_such_programs():
    assert len(list(blocks("python"))) >= 10
    assert len(list(blocks("cpp"))) >= 2
    assert len(list(blocks("sh"))) >= 5


def test_programs_in_cpp_compile(tmp_path):
    """All of them at once, each in a namespace: reading PyTorch's headers is what takes time."""
    includes, bodies = set(), []
    for i, block in enumerate(blocks("cpp")):
        lines = block.values[0].splitlines()
        includes |= {line for line in lines if line.startswith("#include")}
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        bodies.append(f"namespace block{i} {{\n{body}\n}}\n")
    (tmp_path / "blocks.cpp").write_text("\n".join([*sorted(includes), *bodies]))
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    (command,) = [c["command"] for c in commands if c["file"].endswith("cpp/01_linear.cpp")]
    flags = [flag for flag in shlex.split(command) if re.match(r"-(I|D|isystem|std=|f)", flag)]
    flags += ["-isystem" + word for word in re.findall(r"-isystem (\S+)", command)]
    flags = [flag for flag in flags if flag != "-isystem"]
    compiler = ["g++", *flags, "-O0", "-fsyntax-only", "-Wall", "-Wno-main", "blocks.cpp"]
    result = subprocess.run(compiler, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def commands_in(text):
    """The commands of a shell block, as lists of words: without variables, pipes and comments."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\||;", re.sub(r"(^|\s)#.*", "", line)):
            words = part.split()
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words:
                yield words


def complaint_about(words):
    """Why a reader could not run a command, or None."""
    name = words[0]
    if name in ("cd", "export"):
        return None
    if name.removeprefix("build/bin/") == "tessera":
        result = subprocess.run([BUILD / "bin/tessera", words[1], "--help"], capture_output=True)
        return None if result.returncode == 0 else f"there is no `tessera {words[1]}`"
    if name == "poprun":
        return None if (BUILD / "bin/poprun").exists() else "poprun is not built"
    if name in ("srun", "sbatch", "scontrol"):  # of clusters
        return None
    if name.startswith("build/"):
        return None if (BUILD / name.removeprefix("build/")).exists() else f"{name} is not built"
    if name.startswith("venv/") or name in ("python3", "/usr/bin/python3", "docker"):
        return None
    if "/" in name:
        return None if (ROOT / name).exists() else f"there is no {name}"
    return None if shutil.which(name) else f"{name} is not installed"


@pytest.mark.parametrize("text", blocks("sh", [*GUIDE, *OTHERS]))
def test_commands_exist(text):
    complaints = [complaint_about(words) for words in commands_in(text)]
    assert not any(complaints), [words for words in complaints if words]


def test_files_that_the_commands_name_exist():
    for page in [*GUIDE, *OTHERS]:
        for kind, text in BLOCK.findall(page.read_text()):
            for file in re.findall(r"(?:examples|tools)/[\w/.]+", text if kind == "sh" else ""):
                assert (ROOT / file).exists(), f"{page.name} names {file}"


def test_the_options_of_a_file_and_of_json_are_taken(tmp_path):
    (tmp_path / "train.conf").write_text(one_block("options.md", "text"))
    from_file, from_json = poptorch.Options(), poptorch.Options()
    from_file.loadFromFile(str(tmp_path / "train.conf"))
    from_json.from_json(one_block("options.md", "json"))
    for options in (from_file, from_json):
        assert options.device_iterations == 2
        assert options.Training.gradient_accumulation == 4
