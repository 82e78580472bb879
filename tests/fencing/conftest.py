"""The machines decide from values alone: whatever reaches for the world from inside `fencing` raises here."""

from __future__ import annotations

import pytest

from tests.support.no_world import forbidden


@pytest.fixture(autouse=True)
def no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden(monkeypatch, "fencing", frozenset[str]())
