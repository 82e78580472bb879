"""palisade recover-quorum: the vault of the node that continues alone, and bad input (issue 3, R7)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from palisade.fencing.release import Registration, Releases
from palisade.fencing.timing import FenceTiming
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import FoundCluster, Put, SystemWrite
from palisade.metastore.state import StoreState
from palisade.metastore.state_machine import MetaStore
from palisade.metastore.system_records import SystemRecords
from palisade.node.data_dir import claim_data_dir
from palisade.node.fencing.holder_registry import PREFIX, registrations, value_of
from palisade.raftgroup.journal_identity import keep_membership, keep_restored, open_storage
from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.raftgroup.ports import BATCH
from palisade.vault.directory import DATA
from palisade.vault.opening import open_vault, read_vault
from palisade.vault.position import VaultLineage
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver
from tests.support.vault_feed import follow, items_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of n1, which was stopped; n2 and n3 are lost. Its vault is at LV 4."""
    path = tmp_path / "n1"
    claim_data_dir(path, cluster="c1", node="n1")
    disk = LmdbStore(path / "store")
    driver = Driver(disk)  # type: ignore[arg-type]
    driver.do(FoundCluster("id-1"))
    for key in (b"a", b"b", b"c"):
        driver.do(Put(key, b"v"))
    index, term = driver.store.applied
    asyncio.run(disk.flush())
    vault = open_vault(path / "vault")
    vault.claim(VaultLineage("id-1", 1, "n1"))
    follow(vault, driver)
    vault.close()
    disk.close()
    asyncio.run(make_log(path / "raft", index, term))
    return path


async def make_log(path: Path, index: int, term: int) -> None:
    journal = LmdbJournal(path)
    own = open_storage(journal, "c1", "n1", Random(1)).incarnation
    storages = {"n1": own, "n2": "other", "n3": "third"}
    members = (Member(name, MemberRole.VOTER, storage, {"peer": name}) for name, storage in storages.items())
    keep_membership(journal, Membership(tuple(members), version=1, generation=1))
    journal.reset(index, term)
    journal.set_term(term, None)
    await journal.sync()
    journal.close()


def run(folder: Path, *arguments: str, exit_code: int = 0) -> Any:
    """The JSON of the answer, or of the refusal."""
    result = CliRunner().invoke(main, ["recover-quorum", "--data-dir", str(folder), *arguments, "--json"])
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stderr)["error"] if exit_code else json.loads(result.stdout)


def asides(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if "vault" in each.name)


def started(folder: Path) -> MetaStore:
    """Its state behind the whole of its log, as at the beginning of its first term."""
    disk, journal = LmdbStore(folder / "store"), LmdbJournal(folder / "raft")
    try:
        copy = MemoryStore("copy")
        for table in Table:
            copy.put_many(table, dict(disk.scan(table, b"", None)))
        store = MetaStore(copy)
        for entry in journal.slice(store.applied[0] + 1, journal.last.index + 1):
            if entry.command.startswith(BATCH):
                stamp, commands = msgpack.unpackb(entry.command[len(BATCH) :])
                store.apply(entry.index, entry.term, stamp, commands)
        return store
    finally:
        journal.close()
        disk.close()


def untouched(folder: Path) -> bool:
    """Whether it is still one of three, with its vault where it was."""
    shown = run(folder)
    return (shown["done"], shown["generation"], asides(folder)) == (False, 2, ["vault"])


def test_old_vault_is_renamed_completely(folder: Path) -> None:
    vault = read_vault(folder / "vault")
    items = items_of(vault)
    vault.close()
    assert untouched(folder)
    done = run(folder, "--confirm", "c1")
    assert (done["done"], done["generation"], done["lost_members"]) == (True, 2, ["n2", "n3"])
    assert done["vault_aside"] == str(folder / "vault.aside-1")
    assert asides(folder) == ["vault.aside-1"]
    aside = read_vault(folder / "vault.aside-1")
    assert (aside.revision, items_of(aside)) == (4, items)
    aside.close()


@pytest.mark.parametrize(
    ("known", "wait_s"),
    [
        (None, FenceTiming().proceed_s()),
        (Registration("n2", "v", 1.0), FenceTiming().proceed_s()),
        (Registration("n2", "v", 8.0), FenceTiming().proceed_s(8.0)),
        (Registration("n2", "v", 1.0, proceed_s=9.0), 9.0),
    ],
)
def test_first_leader_waits_for_unknown_leases(folder: Path, known: Registration | None, wait_s: float) -> None:
    """As long as for the longest that it knows, and for one of the default (F3)."""
    if known is not None:
        register(folder, known)
    run(folder)
    assert started(folder).lineage.generation == 1
    run(folder, "--confirm", "c1")
    store = started(folder)
    (former,) = [each for each in registrations(store.system) if each != known]
    core = Releases(FenceTiming())
    core.begin_term(9, 100.0, [former], 4)
    assert (store.lineage.generation, former.node) == (2, "(before generation 2)")
    assert core.advance(100.0 + wait_s - 0.01) is None
    assert core.advance(100.0 + wait_s) == 4


def register(folder: Path, holder: Registration) -> None:
    disk = LmdbStore(folder / "store")
    SystemRecords(disk, StoreState(disk)).write(SystemWrite((), ((PREFIX + holder.node, value_of(holder)),)))
    asyncio.run(disk.flush())
    disk.close()


def test_earlier_renamed_vault_is_not_overwritten(folder: Path) -> None:
    (folder / "vault.aside-1").mkdir()
    (folder / "vault.aside-1" / "precious").touch()
    run(folder, "--confirm", "c1")
    assert asides(folder) == ["vault.aside-1", "vault.aside-2"]
    assert (folder / "vault.aside-1" / "precious").exists()
    assert (folder / "vault.aside-2" / DATA).exists()


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "a lock"])
def test_node_without_a_vault_is_recovered(folder: Path, left: str) -> None:
    """Seen: a folder without a vault, as a crash before the first commit leaves it, ended the command half-way."""
    for each in (folder / "vault").iterdir():
        each.unlink()
    (folder / "vault").rmdir()
    if left != "nothing":
        (folder / "vault").mkdir()
    if left == "a lock":
        (folder / "vault" / "owner.lock").touch()
    assert run(folder, "--confirm", "c1")["done"] is True
    assert asides(folder) == ([] if left == "nothing" else ["vault"])


def test_vault_in_use_is_refused_before_any_change(folder: Path) -> None:
    vault: Vault = open_vault(folder / "vault")
    error = run(folder, "--confirm", "c1", exit_code=1)
    assert (error["code"], error["retry"]) == ("not-recovered", True)
    assert error["message"].startswith("nothing was done: the vault directory")
    vault.close()
    assert untouched(folder)
    assert run(folder, "--confirm", "c1")["done"] is True


def test_vault_that_cannot_be_renamed_is_reported_with_the_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = Path.rename

    def rename(self: Path, target: Any) -> Any:
        if self.name == "vault":
            raise PermissionError(13, "Permission denied")
        return renamed(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    message = run(folder, "--confirm", "c1", exit_code=1)["message"]
    assert "n1 is the only voter now, but the vault" in message
    assert f"palisade vault reset --data-dir {folder} --confirm" in message
    monkeypatch.undo()
    reset = CliRunner().invoke(main, ["vault", "reset", "--data-dir", str(folder), "--confirm"])
    assert (reset.exit_code, asides(folder)) == (0, ["vault.aside-1"])


@pytest.mark.parametrize("name", ["c2", "", "C1"])
def test_confirm_with_another_name_changes_nothing(folder: Path, name: str) -> None:
    assert "nothing was done" in run(folder, "--confirm", name, exit_code=1)["message"]
    assert untouched(folder)


def test_second_recovery_and_other_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    run(folder, "--confirm", "c1")
    assert "only voter" in run(folder, "--confirm", "c1", exit_code=1)["message"]
    assert "no data folder of a node" in run(tmp_path / "none", exit_code=1)["message"]
    (tmp_path / "file").touch()
    assert "no data folder of a node" in run(tmp_path / "file", exit_code=1)["message"]
    assert not (tmp_path / "none").exists()


def test_restored_folder_that_was_never_started_is_refused_with_the_reason(tmp_path: Path) -> None:
    """It was "no member by its own log: it was not admitted yet, was removed, or has lost its disk"."""
    path = tmp_path / "n1"
    claim_data_dir(path, cluster="c1", node="n1")
    disk = LmdbStore(path / "store")
    driver = Driver(disk)  # type: ignore[arg-type]
    driver.do(FoundCluster("id-1"))
    asyncio.run(disk.flush())
    disk.close()
    journal = LmdbJournal(path / "raft")
    open_storage(journal, "c1", "n1", Random(1))
    keep_restored(journal, driver.store.applied, 2, "backup 12ab of revision 7")
    asyncio.run(journal.sync())
    journal.close()
    message = run(path, exit_code=1)["message"]
    assert "n1 was restored from backup 12ab of revision 7, and its cluster has not been founded since" in message
    assert "start all its founding members ('palisade up', or 'palisade node --initial-cluster')" in message


@pytest.mark.parametrize("content", ["", "vault"])
def test_folder_of_a_node_that_was_never_a_member_is_refused_and_unchanged(tmp_path: Path, content: str) -> None:
    """The folders of a log and a store were created in it, so a waiting node continued without its initialization."""
    path = tmp_path / "n1"
    claim_data_dir(path, cluster="c1", node="n1")
    if content:
        (path / content).mkdir()
    message = run(path, exit_code=1)["message"]
    assert f"{path} has no log of the Raft group, so this node was never a member: give the folder" in message
    assert {each.name for each in path.iterdir()} == {"node.json", *([content] if content else [])}


def test_recover_quorum_changes_nothing_after_ctrl_c(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("palisade.node.survivor_store.force_new_cluster", interrupted)
    result = CliRunner().invoke(main, ["recover-quorum", "--data-dir", str(folder), "--confirm", "c1"])
    assert (result.exit_code, result.output) == (130, "")
    monkeypatch.undo()
    assert untouched(folder)
