"""Queries while copies of segments move, and while data nodes, brokers and the leader die (S3, S5; issue 17).

Each count returns every row, and no broker reports a missing segment, since one replica is up all the time.
`scripts/moves` is the longer run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from palisade.cli.scenarios.counting import interrupted
from tests.support.processes import until
from tests.support.segment_ground import DAYS, SegmentGround

pytestmark = pytest.mark.e2e

QUERIES = 300
PAUSE_S = 0.05


@pytest.fixture(scope="module")
def shared_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SegmentGround]:
    ground = SegmentGround(tmp_path_factory.mktemp("segments"))
    yield ground
    ground.kill()


@pytest.fixture
async def ground(shared_ground: SegmentGround) -> SegmentGround:
    await shared_ground.ready()
    return shared_ground


async def test_queries_count_every_row_while_copies_move(ground: SegmentGround) -> None:
    moves = ground.moves
    async with ground.counts() as counts:
        await counts.during(ground.moving(lambda: counts.done < QUERIES, random.Random(17)), at_once=2)
    assert counts.done > QUERIES
    assert ground.moves >= moves + 3


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
