"""Which test files belong to changed files, by the import graph. Pure but for reading the tree.

A test belongs to a changed module if it imports it, itself or through helpers below `tests/`. Where no test does, the
modules that import the changed one stand for it, and so on until a test is found. Imports in functions count. A change
of what all tests depend on (`EVERYTHING`) belongs to all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

TESTS = "tests/"
EVERYTHING = ("setup.cfg", "pyproject.toml", "scripts/environment.sh", "scripts/test", "tests/conftest.py")
NO_CODE = ("*.md", "*.svg", "*.txt", ".*", "LICENSE", "scripts/*")
"""What the checks read, and no test imports."""
Graph = Mapping[str, frozenset[str]]
"""File -> the files that it imports, as paths below the root."""


def is_test(path: str) -> bool:
    return path.startswith(TESTS) and path.rpartition("/")[2].startswith("test_") and path.endswith(".py")


def import_graph(root: Path, files: Iterable[str]) -> dict[str, frozenset[str]]:
    """Of the Python files among `files`."""
    root = root.resolve()
    return {
        path: frozenset(_imported(root, path)) - {path}
        for path in files
        if path.endswith(".py") and (root / path).exists()
    }


def _imported(root: Path, path: str) -> Iterator[str]:
    tree = ast.parse((root / path).read_text(encoding="utf-8"), path)
    package = path.removesuffix(".py").removesuffix("/__init__").split("/")
    if not path.endswith("__init__.py"):
        package.pop()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield from _files_of(root, each.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = base + (node.module.split(".") if node.module else [])
            for each in node.names:
                yield from _files_of(root, [*module, each.name])
    if path.startswith(TESTS):
        for folder in Path(path).parents:
            if (root / folder / "conftest.py").exists():
                yield (folder / "conftest.py").as_posix()


def _files_of(root: Path, names: list[str]) -> Iterator[str]:
    """The module and the packages that it is in, where they are files below the root; the last name may be none."""
    for length in range(1, len(names) + 1):
        place = root.joinpath(*names[:length])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.exists():
                found = file.resolve()
                if found.is_relative_to(root):
                    yield found.relative_to(root).as_posix()


def affected(graph: Graph, changed: Iterable[str]) -> set[str] | None:
    """The test files that belong to the changed files, and those that are named after them; None: all."""
    importers: dict[str, set[str]] = {}
    for path, imported in graph.items():
        for each in imported:
            importers.setdefault(each, set()).add(path)
    found: set[str] = set()
    for path in changed:
        if path in EVERYTHING:
            return None
        if path.endswith(".py"):
            found |= _nearest(importers, {path})
            found |= {each for each in graph if is_test(each) and each.endswith(f"/test_{Path(path).name}")}
        elif not any(fnmatch(path, pattern) for pattern in NO_CODE):
            folder = path.rpartition("/")[0]
            found |= _nearest(importers, {each for each in graph if each.rpartition("/")[0] == folder})
    return {path for path in found if path in graph}


def _nearest(importers: Mapping[str, set[str]], changed: set[str]) -> set[str]:
    """The tests that reach one of them by way of the fewest modules of the product."""
    seen: set[str] = set()
    frontier = changed
    while frontier:
        within = _through_helpers(importers, frontier - seen)
        seen |= within
        if tests := {path for path in within if is_test(path)}:
            return tests
        frontier = {importer for path in within for importer in importers.get(path, ())} - seen
    return set()


def _through_helpers(importers: Mapping[str, set[str]], files: set[str]) -> set[str]:
    """These, and what imports them below `tests/`, itself or through others there."""
    found, waiting = set(files), list(files)
    while waiting:
        for importer in importers.get(waiting.pop(), ()):
            if importer.startswith(TESTS) and importer not in found:
                found.add(importer)
                waiting.append(importer)
    return found
