"""The pure core decides from values alone: clock, random source and disk raise for callers inside `metastore`."""

from __future__ import annotations

import pytest

from tests.support.meta_driver import Driver
from tests.support.no_world import forbidden


@pytest.fixture(autouse=True)
def no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden(monkeypatch, "metastore")


@pytest.fixture
def driver() -> Driver:
    return Driver()
