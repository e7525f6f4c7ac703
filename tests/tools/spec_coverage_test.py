"""tools/spec_coverage finds rows without a test and tests that name no row."""
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def spec_coverage(*arguments):
    command = [ROOT / "tools/spec_coverage", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def house(tmp_path):
    """A tree with two rows, and a function that writes a file of it."""

    def write(path, *lines):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
        return tmp_path

    write("tests/spec_rows.txt", "# a list", "", "1.4 destroy  # frees it", "5 no # in a word")
    return write


def test_the_projects_tests_prove_every_row():
    result = spec_coverage()
    assert result.stdout + result.stderr == ""
    assert result.returncode == 0


@pytest.mark.parametrize(
    "lines",
    [
        ['@pytest.mark.spec("1.4 destroy", "5 no")', "def test_it():", "    pass"],
        ['pytestmark = pytest.mark.spec("1.4 destroy", "5 no")'],
        ['pytestmark = [pytest.mark.spec("1.4 destroy"), pytest.mark.spec("5 no")]'],
        ['CASES = [pytest.param(1, marks=pytest.mark.spec("5 no", "1.4 destroy"))]'],
    ],
)
def test_python_marks(house, lines):
    result = spec_coverage(house("tests/python/a_test.py", "import pytest", *lines))
    assert result.stdout + result.stderr == ""
    assert result.returncode == 0


@pytest.mark.parametrize("path", ["tests/e2e/a_test.cpp", "tessera/api/a_test.cpp", "tessera/a.h"])
def test_cpp_marks(house, path):
    root = house(path, "// spec: 1.4 destroy, 5 no", "TEST(A, B) {}")
    result = spec_coverage(root)
    assert result.stdout + result.stderr == ""
    assert result.returncode == 0


def test_a_row_without_a_test(house):
    root = house("tests/a_test.py", '@pytest.mark.spec("5 no")', "def test_it():", "    pass")
    result = spec_coverage(root)
    assert result.stdout == "tests/spec_rows.txt:3: no test for '1.4 destroy'\n"
    assert result.returncode == 1
    assert spec_coverage("--marks", root).returncode == 0


def test_a_mark_without_a_row(house):
    root = house("tests/a_test.py", 'pytestmark = pytest.mark.spec("1.4 destroy", "5 no", "5 x")')
    house("tessera/a_test.cpp", "", "  // spec: 1.4 copy")
    result = spec_coverage("--marks", root)
    assert result.stdout == (
        "tests/a_test.py:1: '5 x' is no row of tests/spec_rows.txt\n"
        "tessera/a_test.cpp:2: '1.4 copy' is no row of tests/spec_rows.txt\n"
    )
    assert result.returncode == 1


def test_a_mark_that_is_not_written_out(house):
    root = house("tests/a_test.py", "pytestmark = pytest.mark.spec(NAME)")
    result = spec_coverage("--marks", root)
    assert "tests/a_test.py:1: write the row out" in result.stdout
    assert result.returncode == 1


def test_mistakes_in_the_list(house):
    root = house("tests/spec_rows.txt", "1.4 destroy", "destroy", "1.4 destroy", "5 a, b")
    house("tests/a_test.py", 'pytestmark = pytest.mark.spec("1.4 destroy")')
    result = spec_coverage(root)
    assert result.stdout == (
        "spec_rows.txt:2: 'destroy' is no section and name\n"
        "spec_rows.txt:3: '1.4 destroy' is in line 1 already\n"
        "spec_rows.txt:4: '5 a, b' is no section and name\n"
    )


def test_help_and_wrong_options():
    assert "usage: tools/spec_coverage" in spec_coverage("--help").stdout
    assert spec_coverage("--nothing").returncode == 1
