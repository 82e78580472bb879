"""A replicated journal in real processes: kill -9 of the active copy under load."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from palisade.journal.blocks import ENTRY_BYTES_MAX, file_name
from palisade.journal.client import JournalClient
from palisade.journal.errors import AppendUnknown, NotActive
from palisade.journal.log import RECENT_BYTES
from tests.support.journal_processes import ROLE, Pair, running_pair
from tests.support.metrics_page import differences
from tests.support.processes import Cluster, exposition_at, metrics_at, until

pytestmark = pytest.mark.e2e
FAILOVER_S = 10.0
"""The goal is 3 s on a quiet machine."""
OF_ACTIVE = (
    "palisade_journal_acknowledged_entry",
    "palisade_journal_held_bytes",
    "palisade_journal_lease_seconds",
    "palisade_journal_replica_state",
    "palisade_journal_replica_lag_entries",
)


@pytest.fixture
async def pair(new_cluster: Callable[..., Cluster], tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_pair(new_cluster(1), tmp_path) as pair:
        yield pair


async def append_until(stop: asyncio.Event, pair: Pair, acknowledged: dict[int, bytes]) -> None:
    async with JournalClient(ROLE, pair.addresses, timeout_s=FAILOVER_S) as client:
        count = 0
        while not stop.is_set():
            count += 1
            content = b"entry %d" % count
            with contextlib.suppress(AppendUnknown, NotActive):
                acknowledged[await client.append(content)] = content
            await asyncio.sleep(0.002)


async def more(acknowledged: dict[int, bytes]) -> None:
    enough = len(acknowledged) + 50
    await until(lambda: len(acknowledged) >= enough, "50 more acknowledged entries")


async def entries_of(pair: Pair) -> dict[int, bytes]:
    async with JournalClient(ROLE, pair.addresses) as client:
        return {number: content async for number, content in client.entries()}


async def test_acknowledged_entries_survive_kill_9_of_the_active_copy(pair: Pair) -> None:
    """It fails over to the backup, back to the primary that was started again, and over once more."""
    acknowledged: dict[int, bytes] = {}
    stop = asyncio.Event()
    load = asyncio.ensure_future(append_until(stop, pair, acknowledged))
    for _ in range(2):
        await more(acknowledged)
        pair.a.kill()
        await more(acknowledged)
        assert (await pair.status())[1]["state"] == "active"
        pair.a.start()
        await pair.reach("active", "in sync")
    stop.set()
    await load
    found = await entries_of(pair)
    assert {number: found.get(number) for number in acknowledged} == acknowledged


async def test_acknowledged_entries_survive_kill_9_of_the_active_copy_and_the_leader_at_once(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """`scripts/bench/run journal` measures how long it takes."""
    acknowledged: dict[int, bytes] = {}
    stop, cluster = asyncio.Event(), new_cluster(3)
    async with running_pair(cluster, tmp_path) as pair:
        load = asyncio.ensure_future(append_until(stop, pair, acknowledged))
        await more(acknowledged)
        leader = await cluster.leader()
        leader.kill()
        pair.a.kill()
        await more(acknowledged)
        assert (await pair.status())[1]["state"] == "active"
        stop.set()
        await load
        found = await entries_of(pair)
        assert {number: found.get(number) for number in acknowledged} == acknowledged


async def test_damage_that_a_reader_finds_costs_no_entry_and_is_mended_as_documented(pair: Pair) -> None:
    """docs/activation.md, "Failures": the active copy ends, the other one answers the reader, and fills the first one
    again after its directory was moved aside."""
    entry = b"x" * ENTRY_BYTES_MAX
    async with JournalClient(ROLE, pair.addresses, timeout_s=FAILOVER_S) as client:
        for _ in range(RECENT_BYTES // ENTRY_BYTES_MAX + 2):
            last = await client.append(entry)
        with (pair.a.directory / file_name(1)).open("r+b") as file:
            file.seek(1000)
            file.write(b"y")
        assert await client.read() == ([(1, entry)], last)
    await pair.reach("unreachable", "active")
    assert "start this copy empty, so that the other copy fills it" in pair.a.log_file.read_text("utf-8")
    pair.a.kill()
    pair.a.directory.rename(pair.a.directory.with_suffix(".aside"))
    pair.a.start()
    await pair.reach("active", "in sync")
    assert list((await entries_of(pair)).values()) == [entry] * last


async def test_second_process_in_one_directory_is_refused(pair: Pair) -> None:
    code, _, err = await pair.a.refused_start()
    assert code == 1
    assert "in use by another process" in err


async def test_metrics_of_both_copies_are_served(pair: Pair) -> None:
    """As listed in docs/metrics.md (issue 17)."""
    code, _, err = await pair.command("append", "one", "two")
    assert code == 0, err
    assert differences("journal copy", await exposition_at(pair.a.metrics)) == []
    assert differences("journal copy", await exposition_at(pair.b.metrics), absent=OF_ACTIVE) == []
    active, replica = [await metrics_at(copy.metrics) for copy in (pair.a, pair.b)]
    assert active['palisade_journal_info{name="a",role="orders"}'] == 1
    assert active['palisade_journal_state{state="active"}'] == replica['palisade_journal_state{state="in sync"}'] == 1
    assert active['palisade_journal_replica_state{state="in sync"}'] == 1
    assert active["palisade_journal_acknowledged_entry"] == active["palisade_journal_last_entry"] == 2
    assert replica["palisade_journal_last_entry"] == 2
    assert active["palisade_journal_replica_lag_entries"] == active["palisade_journal_held_bytes"] == 0
    assert active["palisade_journal_sequence"] == replica["palisade_journal_sequence"] > 0
    assert active["palisade_journal_agreed_sequence"] == active["palisade_journal_sequence"]
    assert active["palisade_journal_activations_total"] == 1
    assert 0 < active["palisade_journal_lease_seconds"] < 1
    assert min(each["palisade_journal_fsync_seconds_count"] for each in (active, replica)) > 0
    pair.b.kill()

    async def lost() -> bool:
        return (await metrics_at(pair.a.metrics))["palisade_journal_replicas_lost_total"] == 1

    await until(lost, "the replica being counted as lost")


async def test_copy_serves_without_the_store_if_it_is_configured_to(pair: Pair) -> None:
    """A4: by configuration. The other copy and the cluster are down."""
    code, _, err = await pair.command("append", "both")
    assert code == 0, err
    pair.kill()
    pair.cluster.kill()
    pair.b.start("--force-without-store")
    await until(lambda: "forced without the metadata store" in pair.b.log_file.read_text(), "what it gives up")
    await until(lambda: appended(pair, "alone"), "an appended entry")
    audit = pair.b.directory / "forced-activation.json"
    assert json.loads(audit.read_text())["owner"] == "b"
    pair.cluster.start()
    await until(lambda: not audit.exists(), "its activation being recorded")
    pair.a.start()
    await pair.reach("active", "in sync")
    assert [*(await entries_of(pair)).values()] == [b"both", b"alone"]


async def appended(pair: Pair, entry: str) -> bool:
    return (await pair.command("append", entry))[0] == 0
