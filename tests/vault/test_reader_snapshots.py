"""Readers keep pages of the vault from being reused only while they read."""

from __future__ import annotations

import gc

import pytest

from palisade.metastore.requests import Put
from palisade.vault.errors import Fenced, VaultUnusable
from palisade.vault.fence_file import clock_ns
from palisade.vault.lmdb_tables import READERS_MAX
from palisade.vault.reader import VaultReader
from tests.support.vault_feed import follow
from tests.vault.test_reader import Node, served

__all__ = ["served"]


def test_idle_reader_holds_no_snapshot(served: Node) -> None:
    """An idle reader pins no page: the file does not grow however often the same keys are written."""
    reader = VaultReader.over(served.vault)
    assert reader.get(b"/s/a") == b"1"
    assert len(reader.prefix(b"/s/")) == 3
    grown = []
    for number in range(300):
        served.driver.do(Put(b"/e/a", b"%d" % number * 500))
        follow(served.vault, served.driver)
        grown.append(served.vault.backend.size_bytes())  # type: ignore[attr-defined]
    assert grown[-1] == grown[20]
    assert reader.get(b"/e/a") == b"299" * 500
    held = reader.iterate(b"/s/")
    next(held)
    for _ in range(300):
        served.driver.do(Put(b"/e/a", bytes(1000)))
        follow(served.vault, served.driver)
    assert served.vault.backend.size_bytes() > grown[-1] * 2, "what the promise is worth"  # type: ignore[attr-defined]
    held.close()  # type: ignore[attr-defined]
    reader.close()


@pytest.mark.parametrize("kept", [False, True])
def test_refused_read_holds_no_snapshot(served: Node, kept: bool) -> None:
    """Found by rolling restarts (`tests/faults`), whose vaults grew without bound: the refusal formed a cycle with its
    traceback, which held the snapshot until the next garbage collection. In a process that only reads there may be
    none. The same if the caller keeps the error.
    """
    reader = VaultReader.over(served.vault, clock_ns=lambda: clock_ns() + late)
    errors: list[Exception] = []
    late = 0
    assert reader.get(b"/s/a") == b"1"
    late = 10**14
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            try:
                reader.get(b"/s/a")
            except Fenced as error:
                if kept:
                    errors.append(error)
        under_way = served.vault.backend.env.readers()  # type: ignore[attr-defined]
    finally:
        gc.enable()
    assert len(errors) == (3 if kept else 0)
    assert all(line.split()[2] == "-" for line in under_way.splitlines()[1:]), under_way
    reader.close()


def test_reads_beyond_the_maximum_are_refused(served: Node) -> None:
    reader = VaultReader.over(served.vault)
    held = []
    with pytest.raises(VaultUnusable, match="finish some of them") as refused:  # noqa: PT012
        while True:
            held.append(reader.iterate(b"/s/"))
            next(held[-1])
    assert refused.value.retry
    assert len(held) == READERS_MAX
    held.clear()
    assert reader.get(b"/s/a") == b"1"
    reader.close()
