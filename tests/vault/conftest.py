"""The pure core decides from values alone: whatever reaches for the world from inside `vault` raises here."""

from __future__ import annotations

import pytest

from tests.support.no_world import forbidden

EDGES = frozenset(
    ("vault.directory", "vault.fence_file", "vault.lmdb_backend", "vault.lmdb_format", "vault.verification")
)


@pytest.fixture(autouse=True)
def no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises only for callers inside the pure core, so that the tools around the test go on."""
    forbidden(monkeypatch, "vault", EDGES)
