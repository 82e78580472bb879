"""Segments of a node that is killed while it moves them: some are kept, others fetched or evicted."""

from __future__ import annotations

import asyncio
import csv
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from palisade.catalog.demo.flights import find_data, read_rows
from palisade.catalog.demo.segments import records_of
from palisade.catalog.demo.tables import FLIGHTS
from palisade.catalog.segment import SegmentRecord
from palisade.cli.scenarios.actor import Actor
from palisade.cli.scenarios.catching_up import EQUAL, UNDISTURBED, check_state
from palisade.cli.scenarios.edits import late_flights
from palisade.cli.scenarios.members import Members
from palisade.cli.scenarios.stage import Stage
from palisade.cli.scenarios.story import Report, Scenario, plain
from palisade.client.publishing import publish, read_data_source
from palisade.metastore.requests import Put
from palisade.segments.segment_store import file_of
from palisade.segments.verification import REMEMBERED

MONTH = "flights/2013-01"
LATE = frozenset(str(day) for day in range(1, 11))
DROPPED = range(27, 32)
DIES_AT = 18
"""The step after 15 evictions, while the third segment is stored."""

Rows = Sequence[Sequence[str]]


def january() -> list[list[str]]:
    """Every flight out of New York in that month."""
    month = FLIGHTS.header.index("month")
    return list(takewhile(lambda row: row[month] == "1", read_rows(find_data(), FLIGHTS)))


def first_days(number: int) -> list[list[str]]:
    """Every flight out of New York on the first days of the year."""
    month, day = FLIGHTS.header.index("month"), FLIGHTS.header.index("day")
    rows = read_rows(find_data(), FLIGHTS)
    return list(takewhile(lambda row: row[month] == "1" and int(row[day]) <= number, rows))


def write_origin(folder: Path, rows: Rows) -> None:
    folder.mkdir(exist_ok=True)
    incoming = folder / "incoming"
    with incoming.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([FLIGHTS.header, *rows])
    incoming.replace(folder / f"{FLIGHTS.name}.csv")


async def crash_in_eviction(stage: Stage) -> Report | None:
    cluster, origin = await stage.cluster(1), stage.folder / "origin"
    flights = await asyncio.to_thread(january)
    await asyncio.to_thread(write_origin, origin, flights)
    await cluster.load([])
    records = await asyncio.to_thread(records_of, FLIGHTS, flights)
    await publish(cluster.client, FLIGHTS.name, records)
    await assign(stage, cluster)
    options = ("--segments", "--segments-origin", str(origin))
    victim, calm = (cluster.follower(name, *options) for name in ("f1", "f2"))
    full = await asyncio.to_thread(wanted_files, flights, await used(cluster))
    await have(stage, cluster, (victim, calm), full)
    for lease in await cluster.client.leases():  # of the announcements: its end, some seconds later, is a revision
        await cluster.client.lease_revoke(lease)
    stage.say(f"f1 and f2 keep {len(files_of(victim))} segments each, the flights of January, and are stopped")
    wanted = await change_flights(stage, cluster, flights, origin)
    untouched = inodes_of(victim)
    victim.plan["dies_at_step"] = DIES_AT
    await victim.start()
    (code,) = await stage.all_end([victim])
    stage.say(f"f1 starts, and dies in step {DIES_AT} of its eviction, with one segment half written: exit code {code}")
    torn = [name for name, content in files_of(victim).items() if content not in wanted.values()]
    del victim.plan["dies_at_step"]
    latest = await cluster.latest()
    await victim.start()
    report = await stage.caught_up(victim, latest)
    await calm.start()  # after f1: its announcements are revisions that f1 would have missed
    smooth = await stage.caught_up(calm, latest)
    stage.say("f1 starts again, then f2 starts without a crash")
    crashed = code == -signal.SIGKILL and "eviction" in report["phases"] and len(torn) == 1
    stage.check("crashed", crashed, f"torn: {', '.join(torn)}; f2: case {smooth['case']}")
    same = files_of(victim) == files_of(calm) == wanted
    stage.check("as-undisturbed", same, f"{len(wanted)} segments, each complete and in its version")
    kept = sum(untouched.get(name) == inode for name, inode in inodes_of(victim).items())
    counts = smooth["resources"]
    stage.check("keeps", kept == counts["kept"] > 0, f"{kept} files; f2 reports: {plain(counts)}")
    await check_state(stage, victim, cluster)
    return report


async def have(stage: Stage, cluster: Members, nodes: Iterable[Actor], wanted: dict[str, bytes]) -> None:
    """Runs the nodes until they have these segments, then stops them."""
    latest = await cluster.latest()
    for node in nodes:
        await node.start()
    for node in nodes:
        await stage.caught_up(node, latest)
        await stage.until(lambda node=node: files_of(node) == wanted, f"{node.name} having its segments")  # type: ignore[misc]
        await node.stop()


async def assign(stage: Stage, cluster: Members) -> None:
    """These nodes have not run yet, so they are not in the topology, and --force is needed."""
    where = (
        "--nodes",
        "f1,f2",
        "--force",
        "--replicas",
        "2",
        "--prefix",
        MONTH,
        "--endpoints",
        ",".join(cluster.streams),
    )
    await stage.command("segments", "assign", *where)


async def change_flights(stage: Stage, cluster: Members, flights: Rows, origin: Path) -> dict[str, bytes]:
    """The files that a node must have at the end."""
    day = FLIGHTS.header.index("day")
    rows = late_flights([row for row in flights if int(row[day]) not in DROPPED], LATE)
    await asyncio.to_thread(write_origin, origin, rows)
    before = await used(cluster)
    records = await asyncio.to_thread(records_of, FLIGHTS, rows)
    await publish(cluster.client, FLIGHTS.name, records)
    same = {record.digest for record in records}
    over = [record.marked_unused() for record in before if record.digest not in same]
    await cluster.client.segments_txn((), [Put(record.segment.key, record.to_bytes()) for record in over])
    await assign(stage, cluster)
    await cluster.compact(await cluster.latest())
    stage.say(f"{len(LATE)} of them get late rows, {len(DROPPED)} are dropped, all are assigned again and compacted")
    return await asyncio.to_thread(wanted_files, rows, await used(cluster))


async def used(cluster: Members) -> list[SegmentRecord]:
    """The records of flights that are used."""
    _, _, records = await read_data_source(cluster.client, FLIGHTS.name)
    return [record for record in records.values() if record.used]


def wanted_files(rows: Rows, records: Iterable[SegmentRecord]) -> dict[str, bytes]:
    from palisade.catalog.demo.segment_files import segment_files  # imports pyarrow, which not every node has

    contents = segment_files(FLIGHTS, rows)
    return {file_of(str(record.segment)): contents[record.segment.id.interval] for record in records}


def folder_of(node: Actor) -> Path:
    return node.data_dir / "segments"


def files_of(node: Actor) -> dict[str, bytes]:
    return files_in(folder_of(node))


def files_in(folder: Path) -> dict[str, bytes]:
    """The segments below the folder of a node that may be moving them; a file that is renamed meanwhile is omitted."""
    found = dict[str, bytes]()
    for file in segments_in(folder):
        with suppress(FileNotFoundError):
            found[file.name] = file.read_bytes()
    return found


def inodes_of(node: Actor) -> dict[str, tuple[int, int]]:
    """A value that differs after every change of a file."""
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in segments_in(folder_of(node))}


def segments_in(folder: Path) -> list[Path]:
    """Excludes the file with the list of verified ones."""
    files = folder.iterdir() if folder.exists() else ()
    return [file for file in files if file.is_file() and not file.name.endswith(REMEMBERED)]


SCENARIOS = (
    Scenario(
        "crash-in-eviction",
        "a node dies in the middle of evicting local data; the next start ends like one without a crash",
        "R5; crash at every step of snapshot and eviction",
        crash_in_eviction,
        {
            "crashed": "the first start died with a segment half written, the next continued the stored plan",
            "as-undisturbed": "its segments are those of the data set and of the node without a crash, each complete",
            "keeps": "segments that were still assigned and unchanged were not touched",
            "equal": EQUAL,
            "undisturbed": UNDISTURBED,
        },
        "a",
    ),
)
