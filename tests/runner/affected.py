"""Maps changed files to test files, by the import graph. Pure, except that it reads the tree.

The tests of a changed module are those that import it, and those in the folder of its room (`tests/metastore` for
`metastore/`) that reach it through helpers below `tests/`. If there are none, all tests that reach it through helpers
count; if there are none of these either, the modules that import the changed one stand for it. Helpers of the simulator
do not count: they import the whole program, and the seeds of `--quick` cover that. The tests of a changed helper are
all that reach it. Imports in functions count, as do tables of `module:attribute`. A change of a file in `EVERYTHING`
affects all tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

TESTS = "tests/"
SIMULATOR = "tests/sim/"
EVERYTHING = ("setup.cfg", "pyproject.toml", "scripts/environment.sh", "scripts/test", "tests/conftest.py")
NO_CODE = ("*.md", "*.svg", "*.txt", ".*", "LICENSE", "scripts/*")
"""What the checks read, and no test imports."""
LAZY = re.compile(r"palisade(\.\w+)+:\w+")
"""What `LazyCommands` imports."""
Graph = Mapping[str, frozenset[str]]
"""File -> the files that it imports, as paths below the root."""


def is_test(path: str) -> bool:
    return path.startswith(TESTS) and path.rpartition("/")[2].startswith("test_") and path.endswith(".py")


def room_of(path: str) -> str:
    return path.removeprefix("palisade/").partition("/")[0]


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
                yield from _files_of(root, tuple(each.name.split(".")))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and LAZY.fullmatch(node.value):
            yield from _files_of(root, tuple(node.value.partition(":")[0].split(".")))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = base + (node.module.split(".") if node.module else [])
            for each in node.names:
                yield from _files_of(root, (*module, each.name))
    if path.startswith(TESTS):
        for folder in Path(path).parents:
            if (root / folder / "conftest.py").exists():
                yield (folder / "conftest.py").as_posix()


def _files_of(root: Path, names: tuple[str, ...]) -> Iterator[str]:
    """The module and its packages, where they are files below the root; the last name may be no module."""
    for length in range(1, len(names) + 1):
        yield from _files_at(root, names[:length])


@cache
def _files_at(root: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    place = root.joinpath(*names)
    found = [file.resolve() for file in (place.with_suffix(".py"), place / "__init__.py") if file.exists()]
    return tuple(file.relative_to(root).as_posix() for file in found if file.is_relative_to(root))


def affected(graph: Graph, changed: Iterable[str]) -> set[str] | None:
    """The test files of the changed files, and those that are named after them; None: all."""
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
            for each in graph:
                found |= _nearest(importers, {each}) if each.rpartition("/")[0] == folder else set()
    return {path for path in found if path in graph}


def _nearest(importers: Mapping[str, set[str]], changed: set[str]) -> set[str]:
    """The tests that reach one of them by way of the fewest modules of the product."""
    seen: set[str] = set()
    frontier = changed
    folders = tuple(f"{TESTS}{room_of(path)}/" for path in changed)
    while frontier:
        within = _through_helpers(importers, frontier - seen)
        seen |= within
        if tests := {path for path in within if is_test(path)}:
            importing = {each for path in frontier for each in (path, *importers.get(path, ()))} & tests
            own = {path for path in tests if path.startswith(folders)}
            return tests if all(path.startswith(TESTS) for path in frontier) else importing | own or tests
        frontier = {importer for path in within for importer in importers.get(path, ())} - seen
    return set()


def _through_helpers(importers: Mapping[str, set[str]], files: set[str]) -> set[str]:
    """These, and what imports them below `tests/`, itself or through other files there."""
    found, waiting = set(files), list(files)
    of_simulator = any(path.startswith(SIMULATOR) for path in files)
    while waiting:
        for importer in importers.get(waiting.pop(), ()):
            skipped = importer.startswith(SIMULATOR) and not of_simulator and not is_test(importer)
            if importer.startswith(TESTS) and not skipped and importer not in found:
                found.add(importer)
                waiting.append(importer)
    return found
