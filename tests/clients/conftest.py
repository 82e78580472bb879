"""A cluster for clients that were written for etcd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.processes import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three nodes that are ready."""
    started = Cluster(tmp_path)
    started.start()
    try:
        await started.ready()
        yield started
    finally:
        started.kill()
