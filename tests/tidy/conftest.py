"""The source files that the tidy tests read: parsed once."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("metastore", "node", "palisade", "raftgroup", "recovery", "vault")
"""The folders of the distribution; those that palisade/ links to are read once, under their own names."""
TEXT_SUFFIXES = {".py", ".md", ".cfg", ".toml", ".txt", ".svg", ".json", ".yml", ""}


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: its path below the root, its text and its tree."""

    path: str
    text: str
    tree: ast.Module


def parse(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path.relative_to(ROOT).as_posix(), text, ast.parse(text, str(path)))


@pytest.fixture(scope="session")
def production() -> list[Source]:
    """Every module of the distribution."""
    return [parse(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.fixture(scope="session")
def everything(production: list[Source]) -> list[Source]:
    """Production, tests and scripts."""
    return production + [parse(path) for name in ("tests", "scripts") for path in sorted((ROOT / name).rglob("*.py"))]


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """Every text file that is ours, by its path: code, documents, scripts. In a linked work tree `.git` is a file."""
    found: dict[str, str] = {}
    for name in (*PACKAGES, "tests", "scripts", "docs", ".ci"):
        for path in sorted((ROOT / name).rglob("*")):
            if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts:
                found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8", errors="replace")
    for path in sorted(ROOT.glob("*")):
        if path.is_file() and path.suffix in TEXT_SUFFIXES and path.name != ".git":
            found[path.name] = path.read_text(encoding="utf-8", errors="replace")
    return found


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
