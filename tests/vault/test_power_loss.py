"""A vault in which a power failure has left some pages in their earlier state (issue 3, M7)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import msgpack

from palisade.base.digest import content_of, unpack_sums
from palisade.vault.directory import DATA, UNSYNCED
from palisade.vault.errors import VaultDamaged
from palisade.vault.incoming_difference import Incoming
from palisade.vault.opening import open_vault
from palisade.vault.tables import VaultTable
from palisade.vault.vault import POSITION
from palisade.vault.verification import verify
from tests.support.power_loss import PAGE_BYTES
from tests.support.vault_feed import follow, full, items_of, revision_at

HEADS = 2
OLDER_MAX = 3
"""A page is used again two commits later: what it held then is whole, and of the same table."""


def pages_of(file: bytes) -> list[bytes]:
    return [file[at : at + PAGE_BYTES] for at in range(0, len(file), PAGE_BYTES)]


def mixtures(before: bytes, after: bytes) -> Iterator[bytes]:
    """The later file with each set of its pages, except the heads, replaced by the earlier ones."""
    now = pages_of(after)
    then = pages_of(before)
    then += [bytes(PAGE_BYTES)] * (len(now) - len(then))
    changed = [number for number in range(HEADS, len(now)) if then[number] != now[number]]
    for count in range(len(changed) + 1):
        for stale in combinations(changed, count):
            yield b"".join(then[number] if number in stale else page for number, page in enumerate(now))


def test_mixture_of_old_and_new_pages_is_always_refused(tmp_path: Path) -> None:
    """Entries and bucket sums of the same earlier revision match each other; LV and its chain are of the later one."""
    path, driver = tmp_path / "v", full([(b"a", b"%d" % number) for number in range(6)])
    vault = open_vault(path, boot_id="first")
    states, files = {}, {}
    for revision in range(2, 8):
        follow(vault, driver, revision)
        states[revision], files[revision] = items_of(vault), (path / DATA).read_bytes()
    vault.backend.abandon()
    seen = set[str]()
    for older in range(1, OLDER_MAX + 1):
        for mixture in mixtures(files[7 - older], files[7]):
            (path / DATA).write_bytes(mixture)
            (path / UNSYNCED).write_text("first")
            try:
                found = open_vault(path, boot_id="second")
            except VaultDamaged as error:
                seen.add(str(error).split(":")[0])
                continue
            assert items_of(found) == states[found.revision]
            found.backend.abandon()
    assert "the entries of the vault are not those of revision 7" in seen


def test_content_digest_is_known_after_every_kind_of_change(tmp_path: Path) -> None:
    """Also in a vault of format 2, which did not store it, after its next change."""
    driver = full([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    vault = open_vault(tmp_path / "v")
    follow(vault, driver, 2)
    vault.backend.commit({VaultTable.META: {POSITION: msgpack.packb([2, vault.chain, 1])}})
    vault.close()
    vault = open_vault(tmp_path / "v")
    assert vault.position.content is None
    assert max(verify(vault)) == 1
    follow(vault, driver, 3)
    assert vault.position.content == content_of(vault.sums)
    follow(vault, driver)
    assert vault.position.content == content_of(vault.sums)
    assert max(verify(vault)) == 2
    digest = driver.store.digest()
    incoming = Incoming(vault, 4, notify=False)
    incoming.repair((), [b"b"])
    assert vault.position.content == content_of(vault.sums)
    incoming.repair([revision.bodies[0] for revision in [revision_at(driver, 3)]], ())
    incoming.finish(digest.chain, unpack_sums(digest.buckets))
    assert vault.position.content == content_of(vault.sums)
    assert max(verify(vault)) == 2
    vault.close()
