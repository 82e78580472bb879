"""The catalog decides from values: whatever reaches for the world from inside it raises, but for its edge."""

from __future__ import annotations

import pytest

from tests.support.no_world import forbidden


@pytest.fixture(autouse=True)
def no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden(monkeypatch, "catalog", {"catalog.demo.flights"})
