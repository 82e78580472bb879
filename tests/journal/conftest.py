"""The pure core decides from values alone: clock, random source and disk raise for callers inside `journal`."""

from __future__ import annotations

import pytest

from tests.support.no_world import forbidden


@pytest.fixture(autouse=True)
def no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden(monkeypatch, "journal")
