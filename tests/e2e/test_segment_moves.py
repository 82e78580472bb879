"""Queries while copies of segments move, and while data nodes, brokers and the leader die (S3, S5; issue 17).

Each count returns every row, and no broker reports a missing segment, since one replica is up all the time.
`scripts/moves --kills` has the moves and the deaths in one run, with 10,000 counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from palisade.cli.scenarios.counting import interrupted
from palisade.client import Client
from palisade.vault.errors import Fenced
from palisade.wire.segment_errors import SegmentsUnavailable
from tests.support.processes import NodeProcess, metrics_at, until
from tests.support.segment_ground import DAYS, END, START, SegmentGround

pytestmark = pytest.mark.e2e

QUERIES, MOVES = 3_000, 30
"""`scripts/moves` repeats the test with 10,000 counts."""
PAUSE_S = 0.05


@pytest.fixture
async def ground(data_cluster: Callable[[type[SegmentGround]], SegmentGround]) -> SegmentGround:
    found = data_cluster(SegmentGround)
    await found.ready()
    return found


async def test_queries_count_every_row_while_copies_move(ground: SegmentGround) -> None:
    """Each wrong number of rows, and each segment that is reported missing, is an error of `during`."""
    moved = ground.moves + MOVES
    async with ground.counts() as counts:

        def goes_on() -> bool:
            return counts.done < QUERIES or ground.moves < moved

        await counts.during(ground.moving(goes_on, random.Random(17)), at_once=2)


async def test_query_counts_every_row_when_a_data_node_is_killed_in_the_middle_of_it(ground: SegmentGround) -> None:
    """And the following ones, while its announcements have not expired, after that, and after its return."""
    victim = ground[ground.pair[0]]

    async def killed() -> None:
        victim.kill()

    async with ground.counts() as counts, ground.client() as client:
        assert (await counts.one(interrupted(counts.ask, killed, DAYS // 2))).segments == DAYS
        assert not victim.running

        async def expired() -> bool:
            return not (await ground.announcements(client))[victim.id]

        await counts.during(until(expired, "the end of the dead node's announcements"), pause_s=PAUSE_S)
        victim.start()
        await counts.during(until(lambda: ground.is_settled(client), "its return"), pause_s=PAUSE_S)


async def test_queries_count_every_row_while_the_leader_and_a_broker_are_killed(ground: SegmentGround) -> None:
    """The leader is the coordinator, and each member is a broker."""
    async with ground.counts() as counts:
        leader = await ground.cluster.leader()
        leader.kill()
        await counts.during(ground.cluster.leader(among=ground.cluster.running), pause_s=PAUSE_S)
        leader.start()
        await counts.during(ground.cluster.ready(), pause_s=PAUSE_S)
        other = (await ground.cluster.followers())[0]
        other.kill()
        await counts.one()
        other.start()
        await counts.during(ground.cluster.ready(), pause_s=PAUSE_S)


async def test_restart_of_all_brokers_and_the_coordinator_forgets_no_segment(ground: SegmentGround) -> None:
    """`loaded` is durable: brokers that have never seen an announcement list exactly what has no server (seed 003)."""
    for node in (*ground.cluster.nodes, *ground.data_nodes):
        node.kill()
    ground.cluster.start()
    await ground.cluster.ready()
    names = sorted(str(record.segment) for record in ground.records)
    for member in ground.cluster.nodes:
        async with Client([member.stream], follow_leader=False) as client:

            async def unavailable(client: Client = client) -> bool:
                """Once the node serves, and the leases of the killed data nodes have ended."""
                try:
                    found = await client.segments_lookup("flights", START, END, on_missing="allow")
                except Fenced:
                    return False
                return sorted(found["missing"]) == names

            await until(unavailable, f"all segments missing at {member.id}")
            with pytest.raises(SegmentsUnavailable) as refused:
                await client.segments_lookup("flights", START, END)
            assert sorted(refused.value.missing) == names
    await ground.ready()
    async with ground.counts() as counts:
        assert (await counts.one()).segments == DAYS


async def test_metrics_of_real_nodes_show_brokers_and_copies(ground: SegmentGround) -> None:
    """As listed in docs/metrics.md."""
    async with ground.counts() as counts:
        await counts.one()
    copies = 0.0
    lookups = 0.0
    for node in (*ground.cluster.nodes, *ground.data_nodes):
        found: dict[str, float] = {}

        async def has_no_missing_segment(node: NodeProcess = node, found: dict[str, float] = found) -> bool:
            """The view follows the vault; a lookup also reads what the vault does not have yet."""
            found.update(await metrics_at(node.http))
            return found["palisade_broker_segments_missing"] == 0

        await until(has_no_missing_segment, f"the view of {node.id} having every announcement")
        assert found["palisade_broker_synced"] == 1
        assert found["palisade_broker_segments_known"] == found["palisade_broker_segments_queryable"] == DAYS
        assert found["palisade_broker_revision"] > 0
        assert found["palisade_broker_view_age_seconds"] >= 0
        assert found["palisade_broker_first_sync_seconds"] > 0
        lookups += found.get('palisade_broker_lookups_total{outcome="complete"}', 0)
        if node in ground.data_nodes:
            assert found['palisade_segments{state="missing"}'] == found['palisade_segments{state="extra"}'] == 0
            assert (found['palisade_segments_bytes{state="local"}'] > 0) == (node.id in ground.pair)
            copies += found['palisade_segments{state="local"}']
            assert found['palisade_realtime_segments{state="realtime"}'] == found["palisade_realtime_rows"] == 0
    assert copies == 2 * DAYS
    assert lookups > 0
