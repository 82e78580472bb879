"""Verifying a vault as a whole blocks neither the node nor its stop (issue 3, R1)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from palisade.recovery import vault_opening
from palisade.recovery.vault_opening import opened
from palisade.vault import opening
from palisade.vault.directory import UNSYNCED, VaultDirectory
from palisade.vault.errors import VaultDamaged, VaultUnusable
from palisade.vault.opening import open_vault
from tests.support.vault_feed import follow, full
from tests.support.waiting import until

KEYS = 3_000


@pytest.fixture
def suspect(tmp_path: Path) -> Path:
    """After a power failure."""
    path = tmp_path / "vault"
    vault = open_vault(path)
    follow(vault, full((b"/k/%04d" % number, b"v") for number in range(KEYS)))
    vault.close()
    (path / UNSYNCED).write_text("another boot")
    return path


class Held:
    """Verification continues when permitted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate, self.began = threading.Event(), threading.Event()
        verify = opening.verify

        def slowly(vault: Any) -> Any:
            for keys in verify(vault):
                self.began.set()
                assert self.gate.wait(10)
                yield keys

        monkeypatch.setattr(opening, "verify", slowly)


async def test_vault_opening_does_not_block_the_node(
    suspect: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held(monkeypatch)
    waiting = asyncio.create_task(opened(suspect))
    await until(held.began.is_set)
    assert not waiting.done()
    held.gate.set()
    vault = await waiting
    assert vault.key_count == KEYS
    assert not (suspect / UNSYNCED).exists()
    vault.close()
    assert "verifying the whole vault" in caplog.text


async def test_stop_during_verification_leaves_the_vault_unchanged(
    suspect: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    waiting = asyncio.create_task(opened(suspect))
    await until(held.began.is_set)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    held.gate.set()
    await until(lambda: can_be_opened(suspect))
    assert (suspect / UNSYNCED).exists(), "it is verified anew by the next start"


async def test_vault_opened_after_the_stop_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def late(path: Path, **_: Any) -> Any:
        assert gate.wait(10)
        return open_vault(path)

    monkeypatch.setattr(vault_opening, "open_vault", late)
    waiting = asyncio.create_task(opened(tmp_path))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    await until((tmp_path / "data.mdb").exists)
    await until(lambda: can_be_opened(tmp_path))


def can_be_opened(path: Path) -> bool:
    """The vault is closed, and inspection repairs nothing."""
    directory = VaultDirectory(path)
    try:
        directory.claim()
    except VaultUnusable:
        return False
    directory.release()
    return True


async def test_vault_opening_raises_refusals(suspect: Path) -> None:
    (suspect / "data.mdb").write_bytes(b"no LMDB file" * 1_000)
    with pytest.raises(VaultDamaged, match="palisade vault reset"):
        await opened(suspect)
