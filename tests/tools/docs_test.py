"""The documentation points at files that exist and shows the programs that are tested."""
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors_of(page):
    """The anchors that a page's headings get, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    dead = []
    for link in LINK.findall(text):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            dead.append(link)
    assert not dead, ", ".join(dead)


def test_the_readme_shows_the_examples():
    result = subprocess.run([ROOT / "tools/embed_examples"], capture_output=True, text=True)
    assert result.stdout + result.stderr == ""
    assert result.returncode == 0


def embed(root, *options):
    command = [ROOT / "tools/embed_examples", *options, root]
    return subprocess.run(command, capture_output=True, text=True)


def test_an_example_that_changed_is_noticed_and_mended(tmp_path):
    (tmp_path / "a.py").write_text("print(2)\n")
    readme = tmp_path / "README.md"
    readme.write_text("<!-- begin a.py -->\n```python\nprint(1)\n```\n<!-- end a.py -->\n")
    result = embed(tmp_path)
    assert result.returncode == 1
    assert "another text than a.py" in result.stdout
    assert embed(tmp_path, "--fix").returncode == 0
    assert "print(2)" in readme.read_text() and "print(1)" not in readme.read_text()
    assert embed(tmp_path).returncode == 0


def test_an_example_that_went_away_is_noticed(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- begin a.py -->\n```python\nprint(1)\n```\n<!-- end a.py -->\n")
    result = embed(tmp_path)
    assert result.returncode == 1
    assert "does not exist" in result.stdout


def test_a_block_that_is_not_closed_is_noticed(tmp_path):
    (tmp_path / "README.md").write_text("<!-- begin a.py -->\n```python\nprint(1)\n```\n")
    result = embed(tmp_path)
    assert result.returncode == 1
    assert "without its block" in result.stdout
