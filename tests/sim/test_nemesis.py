"""Faults have their documented effects: which nodes an isolation cuts off, and for how long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palisade.node.config import RetentionConfig
from palisade.recovery.decision import RefusalReason
from tests.sim.ambient import ambient
from tests.sim.checkers.bounded_wait import BoundedWait, Leading
from tests.sim.checkers.procedures import Procedures
from tests.sim.clients import Client
from tests.sim.cluster_nemesis import ClusterNemesis
from tests.sim.faults import CLIENTS, SCENARIOS, Fault, Kind
from tests.sim.foreign import make_foreign
from tests.sim.link_faults import DEAF_FROM
from tests.sim.machine_faults import SILENT_S, UNREAD_S
from tests.sim.node import Host
from tests.sim.plants.vaults import EVICTIONS_INTERRUPTED
from tests.sim.run import BEGIN_S, Run, run_seed
from tests.sim.vault_disk import Hand
from tests.sim.world import Settings, World
from tests.support.machine import all_vote
from tests.support.onlooker import Violation


def isolated(amount: float) -> World:
    """n2, half a second after it was isolated for a second; no node was restarted."""
    world = World(1, Settings())
    Client(world, "c1")
    ClusterNemesis(world, (Fault(0.0, Kind.ISOLATE, "n2", "n1", 1.0, amount),)).start()
    world.simulation.run_for(0.5)
    return world


def test_node_that_is_isolated_is_cut_off_from_clients_where_the_fault_says_so() -> None:
    world = isolated(DEAF_FROM + 0.01)
    assert not world.network.passes("n2", "n1")
    assert not world.network.passes("c1", "n2")
    assert not world.network.passes("n2", "c1")
    assert world.network.passes("c1", "n1")
    world.simulation.run_for(1.0)
    assert not world.network.blocked
    world.close()


def test_fault_is_counted_when_it_strikes_and_not_when_it_is_tried() -> None:
    """Otherwise every row stays green even if faults do nothing."""
    world = isolated(DEAF_FROM - 0.01)
    assert "fault: isolate" not in world.coverage
    assert not world.network.passes("n2", "f1")
    assert not world.network.passes("f1", "n2")
    assert world.coverage["fault: isolate"] == 1
    world.close()


@pytest.mark.parametrize(
    "kind", [Kind.CRASH, Kind.CRASH_IN_WRITE, Kind.CRASH_IN_TURN, Kind.POWER, Kind.PAUSE, Kind.STOP]
)
def test_stopped_node_is_not_hit_by_faults(kind: Kind) -> None:
    world = World(1, Settings())
    ClusterNemesis(world, (Fault(0.0, kind, "n2", "n1", 1.0, 0.5),)).start()
    world.simulation.run_for(0.5)
    assert not world.coverage
    world.close()


def test_isolated_pause_lets_only_the_messages_of_its_first_moment_arrive() -> None:
    """When the node resumes, it has not received anything that others sent meanwhile, and receives nothing new yet."""
    world = World(1, Settings())
    host, blocked = world.hosts["n2"], world.network.blocked
    host.process = host.new_process("n2")
    ClusterNemesis(world, (Fault(0.0, Kind.PAUSE_ISOLATED, "n2", "n1", 1.0),)).start()
    seen = []
    for for_s in (UNREAD_S / 2, UNREAD_S, 1.0, SILENT_S):
        world.simulation.run_for(for_s)
        seen.append((host.paused, ("n1", "n2") in blocked and ("n2", "f1") in blocked))
    assert seen == [(True, False), (True, True), (False, True), (False, False)]
    assert world.coverage == {"fault: pause-isolated": 1}
    world.close()


def test_fault_of_the_leader_affects_every_node_that_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the one that does not know yet that another one was elected."""
    world = World(1, Settings())
    for host in world.members:
        host.process = host.new_process(host.id)
    monkeypatch.setattr(World, "leaders", lambda self: self.members[1:])
    ClusterNemesis(world, (Fault(0.0, Kind.PAUSE, "leader", "n1", 1.0),)).start()
    world.simulation.run_for(0.5)
    assert [host.paused for host in world.members] == [False, True, True]
    world.close()


def test_machine_whose_node_is_down_may_lose_its_power_too() -> None:
    world = World(1, Settings())
    host = world.hosts["n2"]
    host.process = host.new_process("n2")
    host.kill()
    boot, offset_s = host.disk.boot, host.offset_s
    ClusterNemesis(world, (Fault(0.0, Kind.POWER, "n2", "n1", 1.0),)).start()
    world.simulation.run_for(0.5)
    assert (host.disk.boot, host.offset_s) != (boot, offset_s)
    assert "fault: power" not in world.coverage
    world.close()


def test_member_that_is_left_behind_dies_when_a_snapshot_has_become_its_store() -> None:
    """Its next start makes the log fit (`raftgroup.journal_identity.realigned`)."""
    settings = Settings(retention=RetentionConfig(log_entries=5))
    outcome = run_seed(3, "calm", (Fault(5.0, Kind.LEFT_BEHIND, "n2", "n1", 9.0),), settings)
    assert not outcome.violation, outcome.violation
    assert outcome.coverage["fault: left-behind"]
    assert outcome.coverage["snapshot is refused: not-ahead"]


def test_fault_that_does_not_kill_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hand, "write", lambda self, work: work())
    plan = tuple(Fault(2.0 + number, Kind.CRASH_IN_WRITE, "n2", "n1", 0.5, 0.5) for number in range(3))
    outcome = run_seed(3, "calm", plan, Settings())
    assert not outcome.violation, outcome.violation
    assert "fault: crash-in-write" not in outcome.coverage


def test_isolated_node_may_still_serve_clients() -> None:
    """The more dangerous case: its lease and its barrier must prevent stale responses."""
    world = isolated(DEAF_FROM - 0.01)
    assert not world.network.passes("n2", "f1")
    assert world.network.passes("c1", "n2")
    assert world.network.passes("n2", "c1")
    world.close()


@pytest.mark.parametrize("lose", [Host.wipe, lambda host: host.disk.put_vault_aside()], ids=["disk", "vault"])
def test_foreign_vault_is_lost_with_its_disk(lose: Callable[[Host], None]) -> None:
    """Otherwise a new and empty one would have to be refused for the old one's reason (strange 100293)."""
    world = World(1, Settings(followers=0))
    with ambient(1, lambda: world.now):
        world.start()
        world.simulation.run_until(world.all_serve, within_s=30.0)
        host = world.members[0]
        host.kill()
        assert make_foreign(host, 0.2)
        assert host.foreign is RefusalReason.FOREIGN_CLUSTER
        lose(host)
        assert host.foreign is None
        world.close()


@pytest.mark.parametrize(("amount", "lost"), [(0.2, ("n2", "c1")), (0.8, ("c1", "n2"))])
def test_link_to_clients_loses_responses_or_requests(amount: float, lost: tuple[str, str]) -> None:
    """The request arrives, and its response is lost; or it never arrives."""
    world = World(1, Settings())
    Client(world, "c1")
    ClusterNemesis(world, (Fault(0.0, Kind.ONE_WAY, "n2", CLIENTS, 1.0, amount),)).start()
    world.simulation.run_for(0.5)
    assert world.network.blocked == {lost}
    world.close()


def test_wall_clock_is_set_and_no_other_clock_jumps() -> None:
    world = World(1, Settings())
    host = world.hosts["n2"]
    process = host.new_process("n2")
    host.process = process
    before_ns, before_s = process.wall_ns(), process.now()
    ClusterNemesis(world, (Fault(0.0, Kind.WALL_STEP, "n2", "n1", 0.0, 0.9),)).start()
    world.simulation.run_for(0.5)
    assert process.wall_ns() - before_ns > 3_600 * 10**9
    assert process.now() - before_s < 1.0
    assert host.new_process("n2").wall_ns() == process.wall_ns()
    world.close()


def test_node_that_is_closed_while_it_starts_has_not_stopped_itself() -> None:
    """Restores 32119: the run was over, and had passed."""
    world = World(1, Settings(followers=1))
    with ambient(1, lambda: world.now):
        world.start()
        world.simulation.run_for(0.0)
        assert world.hosts["f1"].runs
        world.close()
    assert world.violations == []


def test_last_turn_of_a_killed_node_is_checked() -> None:
    """Many 162: a leader released a change, continued the procedure after it, and died before its turn was over."""
    world = World(1, Settings(followers=0))
    with ambient(1, lambda: world.now):
        procedures = Procedures(world)
        world.checkers = [procedures]
        world.start()
        world.simulation.run_until(world.all_serve, within_s=BEGIN_S)
        leader = world.leaders()[0]

        def release_and_die() -> None:
            leader.node.fencing.log.released = 1000
            leader.kill()

        assert procedures._released < 1000
        leader.process.call(release_and_die)
        world.simulation.run_for(0.1)
        world.close()
    assert procedures._released == 1000


def test_clock_changes_its_speed_without_a_jump() -> None:
    """A task that sleeps by it wakes up when it shows the time, and it never goes back."""
    world = World(1, Settings(drift=0.25))
    host, shown, woken_at = world.hosts["n2"], list[float](), list[float]()
    process, at = host.new_process("n2"), 40.0

    def look() -> None:
        shown.append(process.now())
        process.loop.call_later(0.1, look)

    process.call(look)
    process.loop.call_later(at, lambda: woken_at.append(process.now() - shown[0]))
    plan = tuple(Fault(number + 0.05, Kind.WALL_STEP, "n2", "n1", 0.0, number / 32) for number in range(32))
    ClusterNemesis(world, plan).start()
    rates = set[float]()
    for _ in plan:
        before_s, rate = process.now(), host.rate
        world.simulation.run_for(1.0)
        assert abs(process.now() - before_s - 0.05 * rate - 0.95 * host.rate) < 1e-6
        rates.add(host.rate)
    world.simulation.run_for(30.0)
    assert len(rates) > 20
    assert 0.75 <= min(rates) < 0.8
    assert 1.2 < max(rates) <= 1.25
    assert shown == sorted(shown)
    assert abs(woken_at[0] - at) < 1e-6
    assert host.new_process("n2").now() == process.now()
    world.close()


def test_wait_is_measured_by_the_clock_of_the_leader() -> None:
    """Drift 34117: slow for 4 s, then fast, it was judged by the last speed alone."""
    world = World(1, Settings(drift=0.25))
    host = world.hosts["n2"]
    host.process = host.new_process("n2")
    checker = BoundedWait(world)
    leading = Leading((1, 1))
    host.run_at(0.75)
    checker._note(host, leading, 7, 6)
    world.simulation.run_for(4.0)
    host.run_at(1.25)
    checker._look(host, leading)
    world.simulation.run_for(0.5)
    with pytest.raises(Violation, match=r"revision 7 has waited 3\.625 s"):
        checker._look(host, leading)
    world.close()


def test_link_restored_before_any_send_is_no_fault() -> None:
    """Nor is it one when another fault cuts the same link later."""
    world = World(1, Settings())
    ClusterNemesis(world, tuple(Fault(at_s, Kind.CUT, "n2", "f1", 1.0) for at_s in (0.0, 2.0))).start()
    world.simulation.run_for(2.5)
    assert not world.network.passes("n2", "f1")
    assert world.coverage["fault: cut"] == 1
    world.close()


def test_disk_is_lost_only_once_all_members_are_voters_and_a_majority_has_that() -> None:
    """A leader that has only appended the promotion of the previous one may be alone with it (restores 200256)."""
    world = World(1, Settings(followers=0))
    nemesis = ClusterNemesis(world, ())

    def promoted() -> Host | None:
        """The member that promoted it, as far as that member has it in its log."""
        return next((each for each in world.leaders() if all_vote(each.group.members, world.members)), None)

    with ambient(1, lambda: world.now):
        world.start()
        world.simulation.run_until(lambda: world.all_serve() and nemesis.is_whole(), within_s=30.0)
        wiped = next(each for each in world.members if each is not world.leader())
        wiped.wipe()
        nemesis.start_at(wiped)
        assert not nemesis.is_whole()
        world.simulation.run_until(lambda: promoted() is not None, within_s=30.0)
        assert not nemesis.is_whole()
        world.simulation.run_until(nemesis.is_whole, within_s=1.0)
        world.close()


@pytest.mark.parametrize("amount", [0.376, 0.42])
def test_membership_changes_in_the_middle_of_a_snapshot(amount: float) -> None:
    """The receiver is removed between two pieces, and joins again with a new disk (issue 16)."""
    settings = Settings(retention=RetentionConfig(log_entries=5))
    outcome = run_seed(3, "calm", (Fault(6.0, Kind.WIPE_AND_MORE, "n2", "n1", 1.0, amount),), settings)
    assert outcome.coverage["snapshot trouble: membership"] == 1
    assert not outcome.violation


@pytest.mark.parametrize(("amount", "starts"), [(0.4, 1), (0.5, 2), (0.9, 2)])
def test_member_that_is_left_behind_may_live_on(amount: float, starts: int) -> None:
    """Then the state of its process is replaced, and not only its store: pins, leases, watches (issue 16)."""
    settings = Settings(followers=0, retention=RetentionConfig(log_entries=5))
    plan = (Fault(2.0, Kind.LEFT_BEHIND, "n2", "n1", 6.0, amount),)
    run = Run(3, SCENARIOS["calm"], plan, settings)
    outcome = run.run()
    assert not outcome.violation, outcome.violation
    assert outcome.coverage["fault: left-behind"] == 1
    assert run.world.hosts["n2"].starts == starts


def test_follower_that_died_in_an_eviction_evicts_again_after_another_snapshot() -> None:
    """The second crash within the recovery from the first (issue 16)."""
    outcome = run_seed(
        EVICTIONS_INTERRUPTED.seed, "strange", EVICTIONS_INTERRUPTED.plan, EVICTIONS_INTERRUPTED.settings
    )
    assert not outcome.violation, outcome.violation
    assert outcome.coverage["rare path: dies in an eviction"]
    assert outcome.coverage["rare path: a snapshot during an eviction"]
