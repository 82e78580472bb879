"""Pure inside, effects at the edge: only the files of `edges.txt` import what reaches the world."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from .conftest import Source

EFFECTS = {
    "aiohttp", "asyncio", "ctypes", "datetime", "fcntl", "io", "lmdb", "mmap", "multiprocessing", "os", "random",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib", "uuid", "uvloop",
}  # fmt: skip
EFFECT_CALLS = {"open", "input", "print", "hash"}  # hash() of bytes differs from process to process


@pytest.fixture(scope="module")
def edges(root: Path) -> list[str]:
    lines = (root / "tests/tidy/edges.txt").read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def calls_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def effects_of(source: Source) -> set[str]:
    imported = {name.split(".")[0] for name in imports_of(source.tree)} & EFFECTS
    return imported | {f"{name}()" for name in set(calls_of(source.tree)) & EFFECT_CALLS}


def is_edge(path: str, edges: list[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in edges)


def test_only_the_listed_files_reach_the_world(production: list[Source], edges: list[str]) -> None:
    found = {
        source.path: sorted(effects)
        for source in production
        if (effects := effects_of(source)) and not is_edge(source.path, edges)
    }
    assert not found, f"pure files that reach the world (hand it in, or list them in tests/tidy/edges.txt): {found}"


def test_the_rule_sees_a_clock_in_a_pure_file() -> None:
    text = "import time\ndef f():\n    return open('x')"
    assert effects_of(Source("metastore/mvcc.py", text, ast.parse(text))) == {"time", "open()"}


def test_private_names_of_pysyncobj_stay_in_the_engine(production: list[Source]) -> None:
    found = [s.path for s in production if "_SyncObj__" in s.text and s.path != "raftgroup/library.py"]
    assert not found, f"move these seams into raftgroup/library.py: {found}"


def test_pysyncobj_is_imported_by_raftgroup_only(production: list[Source]) -> None:
    found = [
        source.path
        for source in production
        if not source.path.startswith("raftgroup/")
        and any(name.split(".")[0] == "pysyncobj" for name in imports_of(source.tree))
    ]
    assert not found


def test_nothing_is_pickled(everything: list[Source]) -> None:
    """Fault 11 of PySyncObj, N5: access to a port that unpickles is control of the machine."""
    banned = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"}
    found = [source.path for source in everything if {name.split(".")[0] for name in imports_of(source.tree)} & banned]
    assert not found
