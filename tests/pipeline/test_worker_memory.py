"""Modules are frozen in workers of Spark that are used again, and only there."""

from __future__ import annotations

import gc
import sys
from types import ModuleType

import pytest

from palisade.pipeline.worker_memory import freeze_modules


def test_modules_are_frozen_once_after_each_import(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(len(sys.modules)))
    freeze_modules()
    assert frozen == []
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    freeze_modules()
    freeze_modules()
    assert len(frozen) == 1
    monkeypatch.setitem(sys.modules, "imported_by_a_task", ModuleType("imported_by_a_task"))
    freeze_modules()
    freeze_modules()
    assert len(frozen) == 2
