"""The pure core decides from values alone: whatever reaches for the world from inside `metastore` raises here."""

from __future__ import annotations

import builtins
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.meta_driver import Driver

WORLD = [
    *[(time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep")],
    *[(random, name) for name in ("random", "randrange", "randint", "choice", "shuffle", "getrandbits")],
    *[(os, name) for name in ("open", "urandom", "getpid", "stat", "listdir", "remove")],
    (socket, "socket"),
    (builtins, "open"),
    (builtins, "hash"),
]
EDGES = {
    f"metastore.{name}"
    for name in (
        "flush", "lmdb_file", "snapshot_writer", "store", "store_directory", "verification"
    )
}  # fmt: skip


class WorldReached(AssertionError):
    """A decision looked at a clock, a random source, a socket or a disk."""


def guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def guard(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith("metastore") and caller not in EDGES:
            raise WorldReached(f"{caller} calls {name}")
        return original(*args, **kwargs)

    return guard


@pytest.fixture(autouse=True)
def no_world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises only for callers inside the pure core, so that the tools around the test go on."""
    for module, name in WORLD:
        if name == "socket":
            continue
        monkeypatch.setattr(module, name, guarded(f"{module.__name__}.{name}", getattr(module, name)))


@pytest.fixture
def driver() -> Driver:
    return Driver()
