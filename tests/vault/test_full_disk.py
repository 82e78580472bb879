"""A full or failing disk during a snapshot, a batch or a close: a clear error, nothing lost."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palisade.vault.change import HEADER
from palisade.vault.directory import DATA, VaultDirectory
from palisade.vault.errors import VaultUnusable
from palisade.vault.incoming_difference import Incoming
from palisade.vault.opening import open_vault
from palisade.vault.verification import verify_at_rest
from tests.support.vault_feed import follow, full, items_of


@contextmanager
def no_room_behind(size_bytes: int) -> Iterator[None]:
    """Limits the size of this process's files: to LMDB it looks like a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def body(number: int) -> bytes:
    key = b"/big/%04d" % number
    return HEADER.pack(2, 2, 1, 0, len(key), 20_000) + key + bytes(20_000)


def test_batch_without_disk_space_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "v"
    driver = full([(b"a", b"1")])
    vault = open_vault(path)
    follow(vault, driver)
    before = (items_of(vault), vault.position, vault.packed_sums())
    large = full([(b"a", b"1"), *((b"k%03d" % n, bytes(10_000)) for n in range(100))])
    with (
        no_room_behind((path / DATA).stat().st_size + 8192),
        pytest.raises(VaultUnusable, match="make room"),
    ):
        follow(vault, large)
    assert (items_of(vault), vault.position, vault.packed_sums()) == before
    follow(vault, large)
    assert vault.revision == large.store.revision
    vault.close()
    assert verify_at_rest(path) == 101


def test_snapshot_without_disk_space_keeps_its_chunks(tmp_path: Path) -> None:
    path = tmp_path / "v"
    vault = open_vault(path)
    incoming = Incoming(vault, 2, notify=False)
    incoming.put([body(0)], b"", b"/big/0001")
    with (
        no_room_behind((path / DATA).stat().st_size + 8192),
        pytest.raises(VaultUnusable, match="Its content is unchanged"),
    ):
        incoming.put([body(number) for number in range(1, 50)], b"/big/0001", None)
    vault.close()
    again = open_vault(path)
    assert again.recovering is not None
    assert again.recovering.next_stretch() == (b"/big/0001", None, 0)
    assert again.key_count == 1
    again.close()
    assert verify_at_rest(path) == 1


@pytest.mark.parametrize("fails", ["the sync of the folder", "the fence page"])
def test_vault_with_failing_close_releases_its_file_and_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Raises a vault error, which the command handles, and leaves the file free for the next opener."""
    vault = open_vault(tmp_path / "v")
    follow(vault, full([(b"a", b"1")]))

    def raises(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        if fails == "the fence page":
            patch.setattr("palisade.vault.fence_file.os.pwrite", raises)
        else:
            patch.setattr(VaultDirectory, "sync", raises)
        with pytest.raises(VaultUnusable, match="Input/output error"):
            vault.close()
    again = open_vault(tmp_path / "v")
    assert again.revision == 2
    again.close()


def test_verified_vault_that_cannot_be_marked_raises_a_vault_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = open_vault(tmp_path / "v", boot_id="first")
    follow(vault, full([(b"a", b"1")]))
    vault.backend.abandon()
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EIO, "it fails")))
    with pytest.raises(VaultUnusable, match="it fails"):
        open_vault(tmp_path / "v", boot_id="second")
