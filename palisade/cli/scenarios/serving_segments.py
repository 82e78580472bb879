"""Seed 003: segments that are never silently missing, while their servers die, change and are no longer needed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from palisade.base.errors import PalisadeError
from palisade.catalog.demo.segments import records_of
from palisade.catalog.demo.tables import FLIGHTS
from palisade.catalog.segment import ANNOUNCED, announced_by
from palisade.cli.scenarios.actor import Actor
from palisade.cli.scenarios.counting import QueryCounts, WrongCount
from palisade.cli.scenarios.local_data import first_days, write_origin
from palisade.cli.scenarios.members import Members
from palisade.cli.scenarios.stage import Stage
from palisade.cli.scenarios.story import Report, Scenario, plain
from palisade.client.publishing import publish
from palisade.segments.assigning import assign_segments
from palisade.wire.segment_errors import SegmentsUnavailable

DAYS = 6
START, END, LAST = "2013-01-01", "2013-01-07", "2013-01-06"
MOVES = 3


class Flights:
    """Six days of flights, one segment each, in a cluster with data nodes f1, f2, ..."""

    def __init__(self, stage: Stage, cluster: Members) -> None:
        self.stage, self.cluster = stage, cluster
        self.rows = 0
        self.nodes: list[Actor] = []

    async def publish(self) -> None:
        rows = await asyncio.to_thread(first_days, DAYS)
        origin = self.stage.folder / "origin"
        await asyncio.to_thread(write_origin, origin, rows)
        await self.cluster.load([])
        self.rows = len(rows)
        records = await asyncio.to_thread(records_of, FLIGHTS, rows)
        await publish(self.cluster.client, FLIGHTS.name, records)

    async def start(self, *names: str) -> None:
        options = ("--segments", "--segments-origin", str(self.stage.folder / "origin"))
        started = [self.cluster.follower(name, *options) for name in names]
        self.nodes += started
        for node in started:
            await node.start()
        latest = await self.cluster.latest()
        for node in started:
            await self.stage.caught_up(node, latest)

    async def assign(self, nodes: Sequence[str], replicas: int) -> None:
        await assign_segments(self.cluster.client, nodes, replicas, FLIGHTS.name, lambda done, of: None)

    async def announced(self, *nodes: str) -> None:
        """Waits until exactly these nodes announce each segment."""

        async def holds() -> bool:
            found = await self.cluster.client.range(ANNOUNCED, prefix=True)
            return Counter(announced_by(kv.key)[0] for kv in found.kvs) == dict.fromkeys(nodes, DAYS)

        await self.stage.until(holds, f"each segment announced by {' and '.join(nodes) or 'no node'}")

    async def states(self) -> Counter[str]:
        """Number of segments in each state, according to a broker."""
        listed = await self.cluster.client.segments_list(FLIGHTS.name)
        return Counter(each["state"] for each in listed["segments"])

    async def reach(self, **states: int) -> None:
        async def holds() -> bool:
            return await self.states() == states

        await self.stage.until(holds, f"states {plain(states)}")

    async def names(self) -> list[str]:
        listed = await self.cluster.client.segments_list(FLIGHTS.name)
        return [each["segment"] for each in listed["segments"]]

    def counts(self) -> QueryCounts:
        return QueryCounts(self.cluster.streams, FLIGHTS.name, START, END, self.rows)

    async def missing(self) -> list[str]:
        """The segments that make a lookup fail; none if it succeeds."""
        try:
            await self.cluster.client.segments_lookup(FLIGHTS.name, START, END)
        except SegmentsUnavailable as error:
            return list(error.missing)
        return []


async def holding(counts: Callable[[], Awaitable[Any]]) -> tuple[bool, str]:
    """Whether all counts were right, and the reason if not."""
    try:
        await counts()
        return True, ""
    except (WrongCount, PalisadeError) as error:
        return False, str(error)


async def server_dies(stage: Stage) -> Report | None:
    flights = Flights(stage, await stage.cluster())
    await flights.publish()
    before = await flights.states()
    stage.say(f"{DAYS} days of flights are published; no data node has them: {plain(before)}")
    stage.check("loading", before == {"loading": DAYS} and await flights.missing() == [])
    await flights.start("f1")
    await flights.assign(["f1"], 1)
    await flights.announced("f1")
    await flights.reach(served=DAYS)
    async with flights.counts() as counts:
        stage.say("f1 loads and announces them, the leader marks them as loaded: queries count on them")
        stage.check("served", *await holding(counts.one))
        leader = str((await flights.cluster["n1"].status())["leader"])
        await flights.nodes[0].kill()
        await flights.cluster[leader].kill()
        stage.say(f"f1 is killed, and with it {leader}, the leader and coordinator; it is started again")
        await flights.cluster.start()
        await flights.announced()
        missing = await flights.missing()
        stage.check("exact-list", missing == await flights.names(), f"{len(missing)} segments")
        await flights.nodes[0].start()
        await flights.announced("f1")
        stage.say("f1 starts again and announces its copies")
        stage.check("back", *await holding(counts.one))
    return None


async def segments_move(stage: Stage) -> Report | None:
    flights = Flights(stage, await stage.cluster(1))
    await flights.publish()
    await flights.start("f1", "f2")
    await flights.assign(["f1"], 1)
    await flights.announced("f1")
    await flights.reach(served=DAYS)
    stage.say(f"f1 has the only copies of {DAYS} segments")

    async def moves() -> None:
        for number in range(MOVES):
            target = ("f2", "f1")[number % 2]
            await flights.assign([target], 1)
            await flights.announced(target)
            stage.say(f"all of them move to {target}, while rows are counted")

    async with flights.counts() as counts:
        stage.check("no-wrong-count", *await holding(lambda: counts.during(moves(), at_once=2)))
    return None


async def no_longer_needed(stage: Stage) -> Report | None:
    flights = Flights(stage, await stage.cluster(1))
    await flights.publish()
    await flights.start("f1")
    await flights.assign(["f1"], 1)
    await flights.announced("f1")
    await flights.reach(served=DAYS)
    client = flights.cluster.client
    await client.segments_set_replicas(FLIGHTS.name, 0, start=START, end="2013-01-02")
    found = await client.segments_lookup(FLIGHTS.name, START, END)
    stage.say("the first day gets replication factor 0, while f1 still announces it")
    stage.check("unserved", len(found["unserved"]) == 1 and len(found["segments"]) == DAYS - 1, found["unserved"])
    await client.segments_mark_unused(FLIGHTS.name, start=LAST, end=END)
    found = await client.segments_lookup(FLIGHTS.name, START, END)
    stage.say("the last day is marked unused, while f1 still announces it")
    stage.check("unused", len(found["segments"]) == DAYS - 2 and not found["missing"])
    await flights.nodes[0].kill()
    await flights.announced()
    stage.say("f1 is killed, and its announcements expire: of the others, no query may silently lack one")
    left = await flights.missing()
    names = await flights.names()
    stage.check("dropped-later", left == names[1:-1], f"{len(left)} of {len(names)} segments are missing")
    await client.segments_mark_unused(FLIGHTS.name, start="2013-01-02", end=LAST)
    stage.say("the others are marked unused as well, after they were dropped")
    stage.check("dropped-before", await flights.missing() == [])
    return None


SCENARIOS = (
    Scenario(
        "segment-server-dies",
        "the only data node with copies dies, and the coordinator with it; queries fail with the exact list",
        "seed 003: created, server died, coordinator restarted; S2, S3",
        server_dies,
        {
            "loading": "before a data node has a copy, no query counts on the segments",
            "served": "once they are announced and marked as loaded, a count returns every row",
            "exact-list": "without a server, after a change of the leader, a lookup fails with exactly these segments",
            "back": "once their server is back, a count returns every row",
        },
    ),
    Scenario(
        "segments-move",
        "the only copies move between data nodes while rows are counted all the time",
        "seed 003: moved from A to B; S5",
        segments_move,
        {"no-wrong-count": "every count returns every row, and no broker reports a missing segment"},
    ),
    Scenario(
        "segments-not-needed",
        "segments get replication factor 0 or are marked unused, before and after their server drops them",
        "seed 003: marked unused and dropped in either order, replication factor 0; S5",
        no_longer_needed,
        {
            "unserved": "with replication factor 0 a segment is listed as not served, and the lookup does not fail",
            "unused": "a segment that is marked unused is in no answer, although a node still announces it",
            "dropped-later": "when their server is gone, exactly the used segments with replicas are missing",
            "dropped-before": "segments that are marked unused after they were dropped are not missing",
        },
    ),
)
