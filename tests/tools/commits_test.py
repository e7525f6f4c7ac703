"""tools/check_commits: which messages it lets through, and where it has nothing to say."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
GOOD = "passes: fold constants\n\nMerging finds more after it.\n"
WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
WHO |= {"GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": "/dev/null"}


def git(folder, *arguments):
    command = ["git", "-C", str(folder), *arguments]
    environment = {**os.environ, **WHO}
    return subprocess.run(command, check=True, env=environment, capture_output=True, text=True)


def commit(folder, message):
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD").stdout.strip()


def check_commits(folder, *options):
    command = [ROOT / "tools/check_commits", *options, folder]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def history(tmp_path):
    """A repository with one commit from before the rule; its folder and that commit."""
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    return tmp_path, commit(tmp_path, "whatever people wrote before there was a rule" + "!" * 60)


def test_the_project_keeps_the_rule():
    result = check_commits(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        "backend/cpu: x\n\nWhy.\n",
        "ops, cpu: x\n\nWhy.\n",
        "data loader: x\n\nWhy.\n",
        f"docs: {'x' * 66}\n\nWhy.\n",
        "docs: a\n\nWhy.\n\nCo-authored-by: A <a@b>\n",
    ],
)
def test_what_keeps_the_rule(history, message):
    folder, base = history
    commit(folder, message)
    result = check_commits(folder, "--since", base)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "message, words",
    [
        (f"docs: {'x' * 67}\n\nWhy.\n", "the title has 73 columns, 72 are allowed"),
        ("format\n\nWhy.\n", "must read `scope: what`"),
        ("Docs: big\n\nWhy.\n", "must read `scope: what`"),
        ("docs:\n\nWhy.\n", "must read `scope: what`"),
        ("docs: no body\n", "a body must say why"),
        ("docs: no body\n\nCo-authored-by: A <a@b>\n", "a body must say why"),
        ("docs: no gap\nWhy.\n", "the line below the title must be empty"),
    ],
)
def test_what_does_not(history, message, words):
    folder, base = history
    name = commit(folder, message)
    commit(folder, GOOD)
    result = check_commits(folder, "--since", base)
    assert result.returncode == 1
    assert len(result.stdout.splitlines()) == 1
    assert words in result.stdout and result.stdout.startswith(name[:7])


def test_a_merge_may_say_what_git_says(history):
    folder, base = history
    git(folder, "checkout", "--quiet", "-b", "side")
    commit(folder, GOOD)
    git(folder, "checkout", "--quiet", "main")
    commit(folder, GOOD)
    git(folder, "merge", "--quiet", "--no-edit", "side")
    assert check_commits(folder, "--since", base).returncode == 0


def assert_skipped(result):
    assert result.returncode == 0
    assert result.stdout.startswith("commits are not checked: ")
    assert result.stderr == ""


def test_a_shallow_clone_has_nothing_to_compare_with(history, tmp_path_factory):
    folder, base = history
    commit(folder, "not so good")
    clone = tmp_path_factory.mktemp("clone")
    git(clone, "clone", "--quiet", "--depth", "1", f"file://{folder}", ".")
    assert_skipped(check_commits(clone, "--since", base))


def test_neither_has_another_history(history):
    assert_skipped(check_commits(history[0]))


def test_nor_a_copy_without_git(tmp_path):
    assert_skipped(check_commits(tmp_path))
