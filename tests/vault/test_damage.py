"""A damaged, torn, newer or foreign vault is refused with the remedy; a flipped bit is never served (issue 3, R1)."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import lmdb
import msgpack
import pytest

from palisade.vault import directory
from palisade.vault.directory import DATA, META, UNSYNCED, VaultDirectory, check_head
from palisade.vault.errors import VaultDamaged, VaultError, VaultForeign, VaultNewer, VaultUnusable
from palisade.vault.inspection import export_rows, summary_of
from palisade.vault.lmdb_tables import LmdbBackend
from palisade.vault.opening import open_vault, read_vault
from palisade.vault.position import unpack_position
from palisade.vault.record_check import CHECKSUMS
from palisade.vault.tables import VaultTable
from palisade.vault.vault import POSITION, Vault
from palisade.vault.verification import verify, verify_at_rest
from tests.support.power_loss import PAGE_BYTES, during_commit
from tests.support.vault_feed import follow, full, items_of, write_some

REMEDY = "palisade vault reset"


def filled(path: Path, writes: int = 300) -> list[tuple[object, ...]]:
    driver = full([])
    write_some(driver, random.Random(writes), writes)
    vault = open_vault(path)
    follow(vault, driver)
    items = items_of(vault)
    vault.close()
    return items


def test_sound_vault_verifies(tmp_path: Path) -> None:
    items = filled(tmp_path / "v")
    assert verify_at_rest(tmp_path / "v") == len(items)


def test_flipped_bit_is_never_served(tmp_path: Path) -> None:
    """Every read is correct or refused, and `verify` detects what reads do not."""
    expected = filled(tmp_path / "v")
    whole = (tmp_path / "v" / DATA).read_bytes()
    rng = random.Random(8)
    refusals = []
    for _ in range(400):
        bit = rng.randrange(len(whole) * 8)
        damaged = bytearray(whole)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        (tmp_path / "v" / DATA).write_bytes(damaged)
        try:
            keys = verify_at_rest(tmp_path / "v")
        except VaultError as error:
            refusals.append(str(error))
            continue
        assert keys == len(expected)
        vault = open_vault(tmp_path / "v")
        assert items_of(vault) == expected
        vault.close()
    assert len(refusals) > 50
    assert [text for text in refusals if "reset" not in text and "folder" not in text] == []


def test_values_are_verified_at_every_read(tmp_path: Path) -> None:
    filled(tmp_path / "v")
    data = tmp_path / "v" / DATA
    vault = open_vault(tmp_path / "v")
    item = next(vault.range(b"/k/"))
    vault.close()
    whole = data.read_bytes()
    marker = item.key + item.value
    assert whole.count(marker) >= 1
    data.write_bytes(whole.replace(marker, item.key + bytes(len(item.value))[:-1] + b"\x01"))
    vault = open_vault(tmp_path / "v")
    with pytest.raises(VaultDamaged, match=REMEDY):
        vault.get(item.key)
    with pytest.raises(VaultDamaged, match=REMEDY):
        list(vault.range(b""))
    vault.close()


def test_missing_entry_is_detected_by_bucket_sums(tmp_path: Path) -> None:
    filled(tmp_path / "v")
    vault = open_vault(tmp_path / "v")
    stored, _ = next(vault.backend.scan(VaultTable.ENTRY, b"", None))
    vault.backend.commit({VaultTable.ENTRY: {stored: None}})
    with pytest.raises(VaultDamaged, match=r"1 bucket sums of the vault do not match.*" + REMEDY):
        list(verify(vault))
    vault.close()


@pytest.mark.parametrize("length", [1, 151, 4096, 5000, 20000])
def test_torn_file_is_refused_before_lmdb_opens_it(tmp_path: Path, length: int) -> None:
    filled(tmp_path / "v")
    with (tmp_path / "v" / DATA).open("r+b") as stream:
        stream.truncate(length)
    with pytest.raises(VaultDamaged, match=REMEDY):
        open_vault(tmp_path / "v")


@pytest.mark.parametrize("walked", [None, "page 7 is missing"])
def test_short_file_is_refused_only_if_a_page_in_use_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walked: str | None
) -> None:
    """LMDB counts pages at the end that it freed in the transaction that took them, and does not write them."""
    filled(tmp_path / "v")
    data = tmp_path / "v" / DATA
    with data.open("r+b") as stream:
        stream.truncate(data.stat().st_size - 4096)
    monkeypatch.setattr(directory, "problem_of", lambda path: walked)
    if walked is None:
        check_head(tmp_path / "v")
    else:
        with pytest.raises(VaultDamaged, match="is truncated.*" + REMEDY):
            check_head(tmp_path / "v")


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_check_head_accepts_a_vault_that_grows_between_its_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """A reader process opens the vault while the node commits between the reads of the two heads."""
    writer = LmdbBackend(tmp_path / "vault")
    torn: list[None] = []

    def unpack(head: bytes) -> tuple[int, ...]:
        """The first call comes after the first head was read and before the second."""
        if not torn:
            torn.append(None)
            for number in range(commits):
                writer.commit({VaultTable.CONFIG: {b"%d" % number: bytes(1 << 20)}})
        return META.unpack(head)

    monkeypatch.setattr(directory, "META", SimpleNamespace(size=META.size, unpack=unpack))
    check_head(tmp_path / "vault")
    writer.close()
    assert torn


def test_newer_vault_format_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "v")
    rewrite_format(tmp_path / "v", ["palisade-vault", 4, "ab"])
    with pytest.raises(VaultNewer, match=r"has format 4; this program knows up to 3.*" + REMEDY):
        open_vault(tmp_path / "v")


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / DATA).write_bytes(b"not an LMDB file " * 1000)
    with pytest.raises(VaultDamaged, match="no LMDB file"):
        open_vault(tmp_path / "v")
    with lmdb.open(str(tmp_path / "other")) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    with pytest.raises(VaultForeign, match="not a vault"):
        open_vault(tmp_path / "other")
    with pytest.raises(VaultForeign, match="there is no vault in"):
        read_vault(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def rewrite_format(path: Path, said: list[object]) -> None:
    packed = CHECKSUMS.seal_all(VaultTable.META, [(b"format", msgpack.packb(said))])[0][1]
    with lmdb.open(str(path), max_dbs=32) as env:
        about = env.open_db(b"ABOUT")
        with env.begin(write=True) as txn:
            txn.put(b"format", packed, db=about)


def test_vault_has_one_writer_and_many_readers(tmp_path: Path) -> None:
    driver, vault = full([(b"a", b"1"), (b"b", b"2")]), open_vault(tmp_path / "v")
    follow(vault, driver, 2)
    with pytest.raises(VaultUnusable, match="in use"):
        open_vault(tmp_path / "v")
    with pytest.raises(VaultUnusable, match="in use"):
        VaultDirectory(tmp_path / "v").put_aside()
    vault.close()
    vault = open_vault(tmp_path / "v")
    assert vault.revision == 2
    vault.close()
    looked_at = read_vault(tmp_path / "v")
    assert (summary_of(looked_at).revision, summary_of(looked_at).keys) == (2, 1)
    assert [row["value"] for row in export_rows(looked_at)] == ["1"]
    looked_at.close()


def test_reader_of_a_changing_vault_sees_one_moment(tmp_path: Path) -> None:
    """The export is exactly the state of the revision that it names (issue 3: palisade vault export)."""
    driver, vault = full([(b"a", b"1"), (b"b", b"2")]), open_vault(tmp_path / "v")
    follow(vault, driver, 2)
    backend = vault.backend
    assert isinstance(backend, LmdbBackend)
    backend.hold()
    rows = export_rows(vault)
    follow(vault, driver)
    assert [row["key"] for row in rows] == ["a"]
    assert (backend.get(VaultTable.ENTRY, b"b"), backend.get_many(VaultTable.ENTRY, [b"b"])) == (None, {})
    assert list(backend.key_pages(VaultTable.ENTRY, b"", None, 9)) == [[b"a"]]
    assert unpack_position(backend.get(VaultTable.META, POSITION)).revision == 2
    vault.close()
    looked_at = read_vault(tmp_path / "v")
    assert isinstance(looked_at.backend, LmdbBackend)
    assert looked_at.backend.held, "it may change while it is looked at"
    assert [row["key"] for row in export_rows(looked_at)] == ["a", "b"]
    looked_at.close()


def test_running_vault_can_be_verified(tmp_path: Path) -> None:
    """Of one moment: later changes do not affect it."""
    driver, vault = full([(b"k%04d" % n, b"") for n in range(1200)]), open_vault(tmp_path / "v")
    follow(vault, driver, 1201)
    steps = verify(vault)
    assert next(steps) == 500
    write_some(driver, random.Random(2), 50)
    follow(vault, driver)
    assert list(steps) == [1000, 1200]
    assert max(verify(vault)) == vault.key_count
    vault.close()


def test_put_aside_loses_nothing(tmp_path: Path) -> None:
    items = filled(tmp_path / "v")
    assert VaultDirectory(tmp_path / "v").put_aside() == tmp_path / "v.aside-1"
    vault = open_vault(tmp_path / "v")
    assert vault.revision == 0
    vault.close()
    assert VaultDirectory(tmp_path / "v").put_aside() == tmp_path / "v.aside-2"
    aside = read_vault(tmp_path / "v.aside-1")
    assert items_of(aside) == items
    aside.close()


def test_power_failure_but_not_process_death_makes_a_vault_suspect(tmp_path: Path) -> None:
    path = tmp_path / "v"
    vault = open_vault(path, boot_id="first")
    follow(vault, full([(b"a", b"1")]))
    shutil.copytree(path, tmp_path / "copy")
    assert (tmp_path / "copy" / UNSYNCED).read_text() == "first"
    assert not VaultDirectory(tmp_path / "copy", "first").suspect
    assert VaultDirectory(tmp_path / "copy", "second").suspect
    assert VaultDirectory(tmp_path / "copy", "").suspect
    vault.close()
    assert not VaultDirectory(path, "second").suspect
    mended = open_vault(tmp_path / "copy", boot_id="second")
    assert mended.revision == 2
    mended.backend.abandon()
    assert not VaultDirectory(tmp_path / "copy", "second").suspect


@pytest.mark.parametrize("content", [None, b""], ids=["no file", "an empty one"])
def test_power_failure_before_the_first_byte_leaves_a_new_vault(tmp_path: Path, content: bytes | None) -> None:
    """Not a damaged vault: there would be nothing to put aside."""
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / UNSYNCED).write_text("first")
    if content is not None:
        (tmp_path / "v" / DATA).write_bytes(content)
    vault = open_vault(tmp_path / "v", boot_id="second")
    assert (vault.revision, vault.lineage) == (0, None)
    follow(vault, full([(b"a", b"1")]))
    vault.close()
    assert verify_at_rest(tmp_path / "v") == 1


@pytest.mark.parametrize("name", [DATA, "owner.lock", "lock.mdb", "fence"])
def test_folder_in_place_of_the_vault_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "v" / name).mkdir(parents=True)
    with pytest.raises(VaultUnusable, match=str(tmp_path / "v")):
        open_vault(tmp_path / "v")
    assert (tmp_path / "v" / name).is_dir()


@pytest.mark.parametrize("thing", ["a file", "a link to itself"])
def test_file_in_place_of_the_vault_folder_is_refused_and_kept(tmp_path: Path, thing: str) -> None:
    path = tmp_path / "v"
    path.write_text("mine") if thing == "a file" else path.symlink_to(path)
    with pytest.raises(VaultUnusable, match=str(path)):
        open_vault(path)
    assert path.is_symlink() or path.read_text() == "mine"


def test_vault_after_power_failure_is_whole_or_refused(tmp_path: Path) -> None:
    """NOSYNC: any part of the last commits may be on the disk, in any order, including new heads with old pages."""
    path, driver = tmp_path / "v", full([])
    write_some(driver, random.Random(1), 200)
    vault = open_vault(path, boot_id="first")
    follow(vault, driver, 120)
    vault.backend.sync()
    before, states = (path / DATA).read_bytes(), {120: items_of(vault)}
    for last in (140, 170):
        follow(vault, driver, last)
        states[last] = items_of(vault)
    after = (path / DATA).read_bytes()
    vault.backend.abandon()
    rng, seen = random.Random(4), set[str]()
    for file in [*during_commit(before, after, rng, 60), *with_heads(before, after, rng, 60)]:
        (path / DATA).write_bytes(file)
        (path / UNSYNCED).write_text("first")
        try:
            found: Vault = open_vault(path, boot_id="second")
        except VaultDamaged as error:
            seen.add("refused" if REMEDY in str(error) else str(error))
            continue
        seen.add("whole")
        assert items_of(found) == states[found.revision]
        found.close()
    assert seen == {"whole", "refused"}


def with_heads(before: bytes, after: bytes, rng: random.Random, count: int) -> list[bytes]:
    """The same with the new heads, which need no sync to reach the disk."""
    heads = after[: 2 * PAGE_BYTES]
    return [heads + file[2 * PAGE_BYTES :] for file in during_commit(before, after, rng, count)]
