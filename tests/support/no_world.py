"""Makes clock, random source and disk raise for the pure modules of one room.

`tests/tidy/edges.txt` lists the modules that may use them.
"""

from __future__ import annotations

import builtins
import os
import random
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest

EDGES = Path(__file__).resolve().parents[1] / "tidy/edges.txt"
WORLD = [
    *[(time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep")],
    *[(random, name) for name in ("random", "randrange", "randint", "choice", "shuffle", "getrandbits")],
    *[(os, name) for name in ("open", "urandom", "getpid", "stat", "listdir", "remove")],
    (builtins, "open"),
    (builtins, "hash"),
]


class WorldReached(AssertionError):
    """A pure module used a clock, a random source or a disk."""


def forbidden(monkeypatch: pytest.MonkeyPatch, room: str) -> None:
    """Raises only for callers inside the pure modules of `room`, so that the tools around a test continue to work."""
    for module, name in WORLD:
        monkeypatch.setattr(module, name, _guarded(room, f"{module.__name__}.{name}", getattr(module, name)))


def _guarded(room: str, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    inside = f"palisade.{room}."

    def guard(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith(inside) and not is_edge(caller):
            raise WorldReached(f"{caller} calls {name}")
        return original(*args, **kwargs)

    return guard


@cache
def is_edge(module: str) -> bool:
    """`module` is a dotted name below `palisade`."""
    path = module.replace(".", "/") + ".py"
    return any(fnmatch(each, pattern) for pattern in edges() for each in (path, path.removeprefix("palisade/")))


@cache
def edges() -> tuple[str, ...]:
    """The patterns of the files that may reach the world."""
    lines = EDGES.read_text(encoding="utf-8").splitlines()
    return tuple(line.split()[0] for line in lines if line.strip() and not line.startswith("#"))
