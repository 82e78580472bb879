"""The pure core decides from values alone: whatever reaches for the world from inside `vault` raises here."""

from __future__ import annotations

import pytest

from tests.support.no_world import forbidden

EDGE_FILES = (
    "directory",
    "driving",
    "fence_file",
    "lmdb_backend",
    "lmdb_format",
    "reader",
    "reader_source",
    "verification",
)
EDGES = frozenset(f"vault.{name}" for name in EDGE_FILES)


@pytest.fixture(autouse=True)
def no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises only for callers inside the pure core, so that the tools around the test go on."""
    forbidden(monkeypatch, "vault", EDGES)
