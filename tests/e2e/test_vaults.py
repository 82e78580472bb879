"""Vaults that are damaged, swapped, of a newer release or half written, and a full disk during a snapshot, with real
processes (issue 3, "Bad input": a clear error with the remedy, nothing lost, the cluster undisturbed)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import pytest

from palisade.client import Client
from palisade.vault.opening import open_vault, read_vault
from palisade.vault.record_check import CHECKSUMS
from palisade.vault.tables import VaultTable
from tests.support.full_disk import little_room
from tests.support.load import Load, check_record
from tests.support.processes import Cluster, FollowerProcess, NodeProcess, palisade, until

pytestmark = pytest.mark.e2e

FAILED, REFUSED = 1, 2
ROOM_BYTES = 6 << 20
VALUE_BYTES = 256 << 10
NEEDLE = b"a value that can be found on the disk"


class WithVault(FollowerProcess):
    """A follower whose vault and last log lines can be inspected. `alone`: it runs without its cluster."""

    alone = False

    def command(self) -> list[str]:
        return [*super().command(), *(["--standalone"] if self.alone else [])]

    @property
    def vault(self) -> Path:
        return self.data_dir / "vault"

    def last_line(self) -> str:
        return [line for line in self.log().splitlines() if line.startswith("palisade node:")][-1]

    def kept_report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data_dir / "recovery.json").read_text())
        return found


@pytest.fixture
def new_follower(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[[str], WithVault]]:
    made: list[WithVault] = []

    def make(name: str) -> WithVault:
        made.append(WithVault(tmp_path, name, join=cluster["n1"].http))
        return made[-1]

    yield make
    for each in made:
        each.kill()


async def write(cluster: Cluster, prefix: str, count: int = 20, value: bytes = b"v") -> int:
    """Returns the last revision."""
    async with Client(cluster.endpoints, timeout_s=20) as client:
        await client.put_many(((f"{prefix}/{number}", value) for number in range(count)), outstanding=16)
        return (await client.put(f"{prefix}/last", "x")).revision


async def caught_up(follower: WithVault, revision: int) -> None:
    async def is_there() -> bool:
        status = await follower.status()
        return bool(status.get("ready")) and status["revision"] >= revision

    await until(is_there, f"{follower.id} being at {revision} (its log ends with: {follower.log()[-800:]})")


async def equal(cluster: Cluster, follower: WithVault) -> None:
    """When stopped, its vault is the cluster's state."""
    assert await follower.stop() == 0
    async with Client(cluster.endpoints) as client:
        digest = await client.digest()
    vault = open_vault(follower.vault)
    try:
        assert (vault.revision, vault.chain, vault.packed_sums()) == (digest.revision, digest.chain, digest.buckets)
    finally:
        vault.close()
    code, said, _ = await palisade("vault", "verify", "--data-dir", str(follower.data_dir), "--json")
    assert (code, json.loads(said)["sound"]) == (0, True)


async def put_aside(follower: WithVault) -> None:
    """As the error messages say."""
    code, _, said = await palisade("vault", "reset", "--confirm", "--data-dir", str(follower.data_dir))
    assert code == 0, said


async def test_recovery_without_majority_waits_and_continues(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """scenarios.md, "Recovery": the majority is lost and returns; stop during recovery: clean, no hang."""
    cluster = new_cluster()
    cluster.start()
    await cluster.ready()
    follower = WithVault(tmp_path, "f1", join=cluster["n1"].http)
    follower.start()
    try:
        await caught_up(follower, await write(cluster, "before"))
        assert await follower.stop() == 0
        revision = await write(cluster, "missed")
        for lost in (cluster["n2"], cluster["n3"]):
            lost.pause()
        follower.start()
        await until(lambda: waits(follower), "the follower waiting")
        assert await follower.stop(within_s=10) == 0
        follower.start()
        await until(lambda: waits(follower), "the follower waiting again")
        for lost in (cluster["n2"], cluster["n3"]):
            lost.resume()
        await caught_up(follower, revision)
        assert "recovered: case=b" in follower.log(), (
            "its report may be of its next joining by now, which missed nothing"
        )
    finally:
        follower.kill()


async def waits(follower: WithVault) -> bool:
    """For a response of the cluster, or for admission: a leader whose lease had not expired may have responded."""
    ready = await follower.get("/readyz", timeout_s=2)
    if ready is None or ready["http_status"] != 503:
        return False
    return any(phase in ready["reasons"][0] for phase in ("seeking", "joining"))


def flip_bytes_of_the_value(path: Path) -> None:
    content = path.read_bytes()
    assert NEEDLE in content
    path.write_bytes(content.replace(NEEDLE, NEEDLE.replace(b"found", b"f0und")))


async def test_damaged_page_is_never_served_and_reset_costs_a_snapshot(
    cluster: Cluster, new_follower: Callable[[str], WithVault]
) -> None:
    """It is detected when the value is read: when it is replaced, by export, by verify."""
    follower = new_follower("f1")
    follower.start()
    await caught_up(follower, await write(cluster, "damaged", 3, NEEDLE))
    assert await follower.stop() == 0
    flip_bytes_of_the_value(follower.vault / "data.mdb")
    for command in ("verify", "export"):
        file = ["-"] if command == "export" else []
        code, out, said = await palisade("vault", command, *file, "--data-dir", str(follower.data_dir))
        assert (code, "f0und" in out) == (REFUSED - 1, False), said
        assert "palisade vault reset" in said
    async with Load(cluster.endpoints, "undisturbed") as load:
        follower.start()
        await write(cluster, "damaged", 3)
        assert await follower.ended() == REFUSED
        assert "is damaged" in follower.last_line()
        assert "palisade vault reset" in follower.last_line()
        await put_aside(follower)
        follower.start()
        await caught_up(follower, 1)
        record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await caught_up(follower, await write(cluster, "after"))
    await equal(cluster, follower)


async def test_voter_with_a_damaged_vault_stops_and_returns_with_a_new_vault(cluster: Cluster) -> None:
    """Its store and its vote are intact: only the vault has to be moved aside."""
    voter = next(node for node in await cluster.followers() if node.id != "n1")
    revision = await write(cluster, "damaged at a voter", 3, NEEDLE)
    await until(lambda: lv_of(voter) >= revision, "the value in the voter's vault")
    assert await voter.stop() == 0
    flip_bytes_of_the_value(voter.data_dir / "vault" / "data.mdb")
    voter.start()
    await until(voter.ready, "the voter being ready")
    await write(cluster, "damaged at a voter", 3)
    assert await voter.ended() == REFUSED
    (line,) = [line for line in voter.log().splitlines() if line.startswith("palisade node:")]
    assert "the vault's value of b'damaged at a voter/" in line
    assert "palisade vault reset" in line
    async with Load(cluster.endpoints, "beside a damaged vault", timeout_s=20) as load:
        code, _, said = await palisade("vault", "reset", "--confirm", "--data-dir", str(voter.data_dir))
        assert code == 0, said
        voter.start()
        await cluster.ready()
        record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()


def lv_of(node: NodeProcess) -> int:
    vault = read_vault(node.data_dir / "vault")
    try:
        return vault.revision
    finally:
        vault.close()


async def test_swapped_vaults_are_refused_until_swapped_back(
    cluster: Cluster, new_follower: Callable[[str], WithVault]
) -> None:
    pair = new_follower("f1"), new_follower("f2")
    for follower in pair:
        follower.start()
    revision = await write(cluster, "swapped")
    for follower in pair:
        await caught_up(follower, revision)
        assert await follower.stop() == 0
    swap(*pair)
    for follower, other in (pair, reversed(pair)):
        follower.start()
        assert await follower.ended() == REFUSED
        assert f"The vault belongs to node {other.id}, and this is node {follower.id}" in follower.last_line()
        assert "give each node its own back" in follower.last_line()
        report = follower.kept_report()
        assert (report["case"], report["outcome"], report["reason"]) == ("d", "refused", "foreign-node")
    swap(*pair)
    revision = await write(cluster, "swapped back")
    for follower in pair:
        follower.start()
        await caught_up(follower, revision)
        assert follower.kept_report()["case"] in ("a", "b")
        await equal(cluster, follower)


def swap(one: WithVault, other: WithVault) -> None:
    beside = one.data_dir / "beside"
    one.vault.rename(beside)
    other.vault.rename(one.vault)
    beside.rename(other.vault)


async def test_vault_of_a_newer_release_is_refused_unchanged(
    cluster: Cluster, new_follower: Callable[[str], WithVault]
) -> None:
    follower = new_follower("f1")
    follower.start()
    await caught_up(follower, await write(cluster, "newer"))
    assert await follower.stop() == 0
    said_format(follower.vault, 99)
    before = (follower.vault / "data.mdb").read_bytes()
    follower.start()
    assert await follower.ended() == REFUSED
    assert "has format 99; this program knows up to" in follower.last_line()
    assert "start it with the newer program" in follower.last_line()
    assert (follower.vault / "data.mdb").read_bytes() == before
    await put_aside(follower)
    follower.start()
    await caught_up(follower, await write(cluster, "as new"))
    await equal(cluster, follower)


def said_format(path: Path, version: int) -> None:
    packed = CHECKSUMS.seal_all(VaultTable.META, [(b"format", msgpack.packb(["palisade-vault", version, "ab"]))])[0][1]
    with lmdb.open(str(path), max_dbs=32) as env:
        about = env.open_db(b"ABOUT")
        with env.begin(write=True) as txn:
            txn.put(b"format", packed, db=about)


async def test_full_disk_during_a_snapshot_stops_the_node_and_the_snapshot_resumes(
    cluster: Cluster, new_follower: Callable[[str], WithVault]
) -> None:
    """It leaves a half-written snapshot: refused to readers, completed by the next start."""
    follower = new_follower("f1")
    follower.start()
    await caught_up(follower, await write(cluster, "small"))
    assert await follower.stop() == 0
    revision = await write(cluster, "large", 2 * ROOM_BYTES // VALUE_BYTES, os.urandom(VALUE_BYTES))
    async with Client(cluster.endpoints) as client:
        await client.compact(revision)
    async with Load(cluster.endpoints, "beside a full disk") as load:
        follower.before_exec = partial(little_room, ROOM_BYTES)
        follower.start()
        assert await follower.ended() == FAILED
        assert "make room on the disk" in follower.last_line()
        report = follower.kept_report()
        assert (report["case"], report["outcome"]) == ("c", "failed")
        assert "make room" in report["error"]
        await half_written(follower)
        follower.start()
        await caught_up(follower, revision)
        record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    again = follower.kept_report()
    assert (again["case"], again["first_case"], again["outcome"]) == ("c", "c", "done")
    assert again["bytes_fetched"] < 2 * ROOM_BYTES, "the chunks that were there were not fetched again"
    await caught_up(follower, await write(cluster, "after"))
    await equal(cluster, follower)


async def half_written(follower: WithVault) -> None:
    looked_at = read_vault(follower.vault)
    try:
        assert looked_at.recovering is not None
        assert looked_at.key_count > 0
    finally:
        looked_at.close()
    code, said, _ = await palisade("vault", "inspect", "--data-dir", str(follower.data_dir))
    assert (code, "is incomplete" in said) == (0, True)
    code, said, why = await palisade("vault", "export", "-", "--data-dir", str(follower.data_dir))
    assert (code, said) == (1, "")
    assert "a snapshot was not finished" in why
    follower.alone, follower.before_exec = True, None
    follower.start()
    assert await follower.ended() == REFUSED
    assert "is between two revisions and can't be read" in follower.last_line()
    follower.alone = False
