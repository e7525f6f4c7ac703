#!/usr/bin/python3
"""Prints the lines of each folder and the longest files. Something to look at; never fails.

usage: tools/sizes.py [root of a checkout]
"""
import collections
import pathlib
import sys

TOPS = ("tessera", "python", "examples", "tests", "bench", "tools")
SUFFIXES = (".h", ".cpp", ".py", ".sh")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    code = collections.Counter()
    tests = collections.Counter()
    files = []
    for top in TOPS:
        for file in (root / top).rglob("*"):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            lines = len(file.read_text(errors="replace").splitlines())
            files.append((lines, file.relative_to(root)))
            is_test = top == "tests" or file.stem.endswith("_test")
            (tests if is_test else code)[file.relative_to(root).parent] += lines
    print(f"{'code':>7} {'tests':>7}  folder")
    for folder in sorted(set(code) | set(tests)):
        print(f"{code[folder]:7} {tests[folder]:7}  {folder}")
    print(f"{code.total():7} {tests.total():7}  in all\n\nlongest files")
    for lines, file in sorted(files, reverse=True)[:10]:
        print(f"{lines:7}  {file}")


if __name__ == "__main__":
    main()
