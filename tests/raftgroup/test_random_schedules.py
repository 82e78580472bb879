"""Random schedules of crashes, partitions, pauses, storms, slow disks, hand-overs and changes of membership.

Every rule of `tests/support/raft_checkers.py` is checked in each. A failure prints its seed, and the seed repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from palisade.raftgroup.log_retention import LogRetention
from palisade.raftgroup.read_barrier import ReadBarrier
from palisade.raftgroup.replica import Replica
from tests.sim.faults import CLIENTS, Kind, Plan, Scenario, plan_of
from tests.sim.nemesis import Nemesis
from tests.support.machine import FSYNC_S
from tests.support.onlooker import Violation
from tests.support.raft_clients import Clients
from tests.support.raft_cluster import Cluster, settled

FAULTS_S, QUIET_S = 8.0, 4.0
KINDS = (
    Kind.CRASH, Kind.POWER, Kind.POWER, Kind.ISOLATE, Kind.ISOLATE, Kind.ONE_WAY, Kind.CUT, Kind.CUT, Kind.SPLIT,
    Kind.SLOW_LINK, Kind.STORM, Kind.SLOW_DISK, Kind.TRANSFER, Kind.TRANSFER, Kind.PAUSE, Kind.PAUSE_ISOLATED,
    Kind.PAUSE_ISOLATED,
)  # fmt: skip
OF_GROUP = Scenario("group", KINDS, every_s=0.8)
OF_MEMBERS = Scenario("members of a group", (*KINDS, *(Kind.WIPE, Kind.REMOVE) * 4), every_s=0.8)


def random_run(seed: int, members: int = 3, *, changes_members: bool = False) -> Cluster:
    """Faults for a while, then none: all members agree, every acknowledged write exists, a leader leads."""
    cluster = Cluster(seed, members, drift=0.008, retention=LogRetention(20 if seed % 2 else 10_000), rejoins=True)
    try:
        _run(cluster, changes_members=changes_members)
    finally:
        cluster.simulation.close()
    return cluster


def _run(cluster: Cluster, *, changes_members: bool) -> None:
    if changes_members:
        cluster.leader()
    clients = Clients(cluster)
    nemesis = Nemesis(cluster, plan(cluster, OF_MEMBERS if changes_members else OF_GROUP))
    nemesis.start()
    cluster.run_for(FAULTS_S)
    nemesis.stop()
    cluster.leader(within_s=15.0)
    cluster.run_until(nemesis.is_whole, within_s=60.0)
    _ends_well(cluster, clients)


def plan(cluster: Cluster, scenario: Scenario) -> Plan:
    """Without faults between a member and its clients, which run in its process."""
    names = tuple(cluster.nodes)
    faults = plan_of(cluster.simulation.seed, scenario, FAULTS_S, names, names)
    return tuple(fault for fault in faults if fault.other != CLIENTS)


def _ends_well(cluster: Cluster, clients: Clients) -> None:
    cluster.run_for(1.0)
    clients.going = False
    cluster.run_for(QUIET_S)
    cluster.run_until(cluster.converged, within_s=5.0)
    cluster.checkers.check_run()


def with_an_only_voter(seed: int) -> None:
    """It waits for no vote or acknowledgement, only for its own disk, which is slow. All members come and go."""
    cluster = Cluster(seed, 1, drift=0.008, retention=LogRetention(20 if seed % 2 else 10_000))
    try:
        voter = settled(cluster)
        for member in ("n2", "n3"):
            node = cluster.add_node(member)
            cluster.run_for(0.1)
            cluster.call(voter.id, voter.group.add(cluster.member(node)))
        clients = Clients(cluster)
        voter.disk.fsync_s = 0.3
        for _ in range(40):
            cluster.restart(cluster.random.choice(list(cluster.nodes)))
            cluster.run_for(0.8 * cluster.random.random())
        voter.disk.fsync_s = FSYNC_S
        _ends_well(cluster, clients)
    finally:
        cluster.simulation.close()


def with_only_voters(seeds: range) -> None:
    for seed in seeds:
        with_an_only_voter(seed)


def random_runs(seeds: range) -> Iterator[Cluster]:
    for seed in seeds:
        yield random_run(seed, members=5 if seed % 5 == 0 else 3)


@pytest.mark.parametrize("block", range(8))
def test_random_schedule_breaks_no_rule(block: int) -> None:
    for cluster in random_runs(range(block * 10, block * 10 + 10)):
        assert any(operation.outcome == "applied" for operation in cluster.checkers.history)


@pytest.mark.parametrize("block", range(4))
def test_random_schedule_with_membership_changes_breaks_no_rule(block: int) -> None:
    for seed in range(1000 + block * 10, 1000 + block * 10 + 10):
        random_run(seed, members=3 + seed % 3, changes_members=True)


@pytest.mark.parametrize("block", range(4))
def test_random_schedule_with_a_single_voter_breaks_no_rule(block: int) -> None:
    with_only_voters(range(2000 + block * 10, 2000 + block * 10 + 10))


def test_checker_detects_a_single_voter_that_sends_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a connecting member is asked at once for its log, even if the leader's term is not on its disk yet."""

    def connected(self: Replica, member: str) -> None:
        if self.engine.leads:
            self.replication.probe(member)

    monkeypatch.setattr(Replica, "connected", connected)
    with pytest.raises(AssertionError, match="speaks in term"):
        with_only_voters(range(2000, 2040))


def leases_from_the_receipt_of_an_answer(patch: pytest.MonkeyPatch) -> None:
    """Not from the time at which the append that it answers was sent: a follower may have voted meanwhile."""
    begin = Replica.__init__

    def begun(self: Replica, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        acknowledge = self.lease.acknowledge
        patch.setattr(self.lease, "acknowledge", lambda voter, sent_at: acknowledge(voter, self._clock.now()))

    patch.setattr(Replica, "__init__", begun)


def leases_that_do_not_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReadBarrier, "passes", lambda self: self._replica.leads)


def reads_confirmed_before_they_began(patch: pytest.MonkeyPatch) -> None:
    async def confirmed(self: ReadBarrier) -> int:
        await self._confirmed.until(0.0)
        return self._replica.engine.applied_index

    patch.setattr(ReadBarrier, "_confirmed_here", confirmed)


@pytest.mark.parametrize(
    "planted",
    [leases_from_the_receipt_of_an_answer, leases_that_do_not_end, reads_confirmed_before_they_began],
    ids=lambda each: each.__name__,
)
def test_random_schedules_detect_a_planted_fault(
    planted: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 seeds of the simulator saw none of these: a bare group executes six times as many operations per second."""
    planted(monkeypatch)
    with pytest.raises(Violation, match="linearizable"):
        list(random_runs(range(80)))


def test_seed_repeats_its_run_exactly() -> None:
    first, second = random_run(4), random_run(4)
    assert first.simulation.turns == second.simulation.turns
    assert first.checkers.committed == second.checkers.committed
