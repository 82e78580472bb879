"""Makes clock, random source, socket and disk raise for the modules of one package, but for its edges."""

from __future__ import annotations

import builtins
import os
import random
import sys
import time
from collections.abc import Callable, Collection
from typing import Any

import pytest

WORLD = [
    *[(time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep")],
    *[(random, name) for name in ("random", "randrange", "randint", "choice", "shuffle", "getrandbits")],
    *[(os, name) for name in ("open", "urandom", "getpid", "stat", "listdir", "remove")],
    (builtins, "open"),
    (builtins, "hash"),
]


class WorldReached(AssertionError):
    """A decision looked at a clock, a random source or a disk."""


def forbidden(monkeypatch: pytest.MonkeyPatch, package: str, edges: Collection[str]) -> None:
    for module, name in WORLD:
        monkeypatch.setattr(module, name, _guarded(package, edges, f"{module.__name__}.{name}", getattr(module, name)))


def _guarded(package: str, edges: Collection[str], name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def guard(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.split(".")[0] == package and caller not in edges:
            raise WorldReached(f"{caller} calls {name}")
        return original(*args, **kwargs)

    return guard
