"""Each rule of `raft_checkers.py` is proved by a planted fault that it must detect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import palisade.raftgroup.replica
from palisade.raftgroup.durable_outbox import Outbox
from palisade.raftgroup.errors import RaftError
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.message_screen import Append, Extend, Matched, Missing, StaleTerm
from palisade.raftgroup.ports import Entry
from palisade.raftgroup.proposals import CallbackProposal
from palisade.raftgroup.read_barrier import ReadBarrier
from tests.support.onlooker import Violation
from tests.support.raft_checkers import Operation, check_linearizable
from tests.support.raft_cluster import Cluster, Node
from tests.support.raft_network import Weather
from tests.support.raft_rules.leader_completeness import LeaderCompleteness
from tests.support.register_machine import RegisterMachine, put

MakeCluster = Callable[..., Cluster]


def settled(cluster: Cluster) -> Node:
    leader = cluster.leader()
    for number in range(5):
        cluster.put(leader.id, "a", f"v{number}")
    cluster.run_until(cluster.converged)
    return leader


def test_checker_detects_two_leaders_in_one_term(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    settled(cluster)
    usurper = cluster.followers()[0]
    cluster.tolerates_failed_nodes = True
    usurper.process.call(usurper.group._replica.engine._SyncObj__onBecomeLeader)
    with pytest.raises(Violation, match=r"election safety: .* both lead term 1"):
        cluster.run_for(1.0)


def test_checker_detects_a_decreasing_term(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    settled(cluster)
    cluster.followers()[0].group._replica.engine._SyncObj__raftCurrentTerm = 0
    with pytest.raises(Violation, match="went back from 1 to 0"):
        cluster.run_for(1.0)


def test_checker_detects_logs_that_do_not_match(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    settled(cluster)
    cluster.checkers.check_logs()
    entries = cluster.followers()[0].disk.journal._entries
    entries[2] = Entry(b"\x01", entries[2].index, entries[2].term)
    with pytest.raises(Violation, match="log matching"):
        cluster.checkers.check_logs()


def cut_off_with_a_write(cluster: Cluster) -> Node:
    """A leader with a write in its log that no other member has, and that it takes for committed."""
    leader = settled(cluster)
    cluster.network.isolate(leader.id)
    leader.process.call(lambda: leader.group.submit(CallbackProposal([put("lost", "a", "lost")], lambda _: None, 0.5)))
    cluster.run_for(0.1)
    leader.group._replica.engine.commit_to(leader.disk.journal.last.index)
    cluster.run_for(0.3)
    assert leader.disk.machine.registers["a"] == "lost"
    return leader


def test_checker_detects_a_leader_without_committed_entries(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cut_off_with_a_write(cluster)
    with pytest.raises(Violation, match="leads term 2 without the committed entry"):
        cluster.run_for(5.0)


def test_checker_detects_two_commands_at_one_index(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    leader = cut_off_with_a_write(cluster)
    index = leader.disk.machine.applied[0]
    term, commands = cluster.checkers.committed.pop(index)
    cluster.checkers.rule(LeaderCompleteness).entries.pop(index)
    cluster.run_for(5.0)
    cluster.put(cluster.leader().id, "a", "another one")
    with pytest.raises(Violation, match="another node applied"):
        cluster.checkers.applied_by(leader.id)(index, term, commands)


def test_checker_detects_a_command_applied_twice(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    leader = settled(cluster)
    _, _, commands = leader.disk.machine.log[-1]
    leader.process.call(lambda: leader.group.submit(CallbackProposal([commands[0]], lambda _: None)))
    with pytest.raises(Violation, match="and again at"):
        cluster.run_for(1.0)


def unguarded(message: Append, log: Any, term: int, _commit: int) -> StaleTerm | Missing | Matched | Extend:
    """As in the library: everything after prev_index is replaced (fault 1)."""
    if message.term < term:
        return StaleTerm()
    if message.prev_index > log.last.index or log.term_at(message.prev_index) != message.prev_term:
        return Missing(min(log.last.index, message.prev_index) + 1)
    return Extend(message, truncates=True) if message.entries else Matched(message.covers, message.commit)


def test_checker_detects_a_group_without_the_screen(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(palisade.raftgroup.replica, "screen_append", unguarded)
    assert any(breaks_in_a_storm(make_cluster(seed)) for seed in range(50))


def test_group_with_the_screen_survives_the_same_storms(make_cluster: MakeCluster) -> None:
    assert not any(breaks_in_a_storm(make_cluster(seed)) for seed in range(10))


def breaks_in_a_storm(cluster: Cluster) -> bool:
    """Repeated and reordered messages, then the leader dies."""
    cluster.tolerates_failed_nodes = True
    try:
        settled(cluster)
        cluster.network.weather = Weather((0.0005, 0.01), repeat=0.5, reorder=0.5)
        for number in range(20):
            cluster.put(cluster.leader().id, "a", f"v{number}")
        cluster.crash(cluster.leader().id)
        cluster.network.heal()
        cluster.leader()
        cluster.checkers.check_run()
    except (AssertionError, RaftError):
        return True
    return False


def test_checker_detects_messages_before_their_state_is_on_disk(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outbox, "send_durable", lambda self, *message: self._send(*message))
    with pytest.raises(Violation, match="on disk"):
        settled(make_cluster())


def test_checker_detects_a_disk_with_false_syncs(make_cluster: MakeCluster) -> None:
    """Acknowledged writes are lost on all members after a power failure."""
    cluster = make_cluster()
    leader = settled(cluster)
    disks: dict[str, tuple[MemoryJournal, Any]] = {
        member: (node.disk.journal, node.disk.journal.disk.stored) for member, node in cluster.nodes.items()
    }
    for node in cluster.nodes.values():
        node.disk.machine.persist()
    lied = [(node.disk.machine, list(node.disk.machine.log)) for node in cluster.nodes.values()]
    cluster.put(leader.id, "a", "acknowledged")
    cluster.run_for(1.0)
    for member in cluster.nodes:
        cluster.crash(member)
    for journal, disk in disks.values():
        journal.disk.stored = disk
        journal.crash()
    for machine, log in lied:
        machine.log = log
        machine.persist()
        machine.crash()
    for member in cluster.nodes:
        cluster.start(member)
    with pytest.raises(Violation, match="without the committed entry"):
        cluster.run_for(5.0)


def test_checker_detects_a_read_without_a_barrier(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadBarrier, "passes", lambda _: True)
    cluster = make_cluster()
    leader = settled(cluster)
    slow = cluster.followers()[0]
    slow.disk.fsync_s = 0.5
    cluster.put(leader.id, "a", "second")
    cluster.run_for(0.01)
    assert cluster.read(slow.id, "a") != "second"
    with pytest.raises(Violation, match="stands before it"):
        cluster.checkers.check_run()


async def confirmed_before(barrier: ReadBarrier) -> int:
    """Any earlier confirmation by a majority in this term is accepted."""
    await barrier._confirmed.until(0.0)
    return barrier._replica.engine.applied_index


def test_checker_detects_a_leader_that_confirms_an_old_read(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has given up its lease and receives nothing, and its successor has committed a write meanwhile."""
    monkeypatch.setattr(ReadBarrier, "_confirmed_here", confirmed_before)
    cluster = make_cluster()
    old = settled(cluster)
    heir, other = cluster.followers()
    for node in (heir, other):
        cluster.network.block(node.id, old.id)
    cluster.call(old.id, hand_over(old, heir))
    cluster.run_until(lambda: heir.group.leads, within_s=0.5)
    cluster.put(heir.id, "a", "second")
    cluster.run_for(0.01)
    assert cluster.read(old.id, "a") == "v4"
    with pytest.raises(Violation, match="stands before it"):
        cluster.checkers.check_run()


async def hand_over(leader: Node, heir: Node) -> None:
    assert leader.group._replica.hand_over(heir.id)


def test_checker_detects_a_refused_write_that_is_applied(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    settled(cluster)
    cluster.checkers.history[0].outcome = "refused"
    with pytest.raises(Violation, match="was refused, and is applied"):
        cluster.checkers.check_run()


def test_checker_detects_a_state_without_an_acknowledged_write(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    settled(cluster)
    machine: RegisterMachine = cluster.followers()[0].disk.machine
    index, term, _ = machine.log[3]
    machine.log[3] = (index, term, ())
    with pytest.raises(Violation, match="does not have it"):
        cluster.checkers.check_run()


class TestLinearizability:
    """Of one register; `w1` and `w2` are at positions 1 and 2."""

    def check(self, *operations: Operation) -> None:
        def fail(text: str) -> None:
            raise Violation("linearizable", text)

        check_linearizable(list(operations), {"w1": (1, 0), "w2": (2, 0)}, fail)

    @staticmethod
    def write(name: str, begin: float, end: float, outcome: str = "applied") -> Operation:
        return Operation("c", "a", begin, operation=name, end=end, outcome=outcome)

    @staticmethod
    def read(seen: str | None, begin: float, end: float) -> Operation:
        return Operation("c", "a", begin, seen=seen, end=end, outcome="read")

    def test_reads_and_writes_in_order_are_linearizable(self) -> None:
        self.check(self.read(None, 0, 1), self.write("w1", 2, 3), self.read("w1", 4, 5), self.write("w2", 6, 7))

    def test_read_concurrent_with_a_write_may_see_either_value(self) -> None:
        self.check(self.write("w1", 0, 9), self.read(None, 1, 2), self.read("w1", 3, 4))

    def test_stale_read_is_a_violation(self) -> None:
        with pytest.raises(Violation):
            self.check(self.write("w1", 0, 1), self.read(None, 2, 3))

    def test_new_then_old_is_a_violation(self) -> None:
        with pytest.raises(Violation):
            self.check(self.write("w1", 0, 9), self.read("w1", 1, 2), self.read(None, 3, 4))

    def test_write_after_a_later_one_is_a_violation(self) -> None:
        with pytest.raises(Violation):
            self.check(self.write("w2", 0, 1), self.write("w1", 2, 3))

    def test_read_of_an_unwritten_value_is_a_violation(self) -> None:
        with pytest.raises(Violation):
            self.check(self.read("w1", 0, 1), self.write("w1", 2, 3))

    def test_write_of_unknown_outcome_may_take_effect_late(self) -> None:
        late = self.write("w2", 0, 1, "unknown")
        self.check(late, self.write("w1", 2, 3), self.read("w1", 4, 5), self.read("w2", 6, 7))

    def test_acknowledged_write_never_applied_is_a_violation(self) -> None:
        with pytest.raises(Violation):
            self.check(self.write("w9", 0, 1))
