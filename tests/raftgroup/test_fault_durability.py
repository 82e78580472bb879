"""Faults 4 and 5 of pysyncobj.md: the bare library shows each of them, this package does not.

And scenarios.md: crash after vote before reply, after append before reply; power loss: everything unsynced is dropped.
"""

from __future__ import annotations

import asyncio
import os
import struct
from pathlib import Path
from typing import Any

import lmdb
import pytest
from pysyncobj.journal import FileJournal

from palisade.raftgroup.durable_outbox import Outbox
from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.lmdb_journal import JournalFile, LmdbJournal
from palisade.raftgroup.membership import Member, MemberRole
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Entry
from palisade.raftgroup.proposals import Applied
from tests.support.lone_replica import LoneReplica, storage, voters


def test_fault_4_library_never_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    monkeypatch.setattr(os, "fdatasync", calls.append)
    journal = FileJournal(str(tmp_path / "journal"))
    journal.add(b"x", 1, 1)
    journal.setCurrentTerm(5, "n2")
    journal.onOneSecondTimer()
    assert calls == [], "term, vote and entry are in the page cache at best"


def test_fault_4_acknowledgement_waits_for_the_disk() -> None:
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1), (2, 1)], prev=(0, 0))
    follower.tick()
    assert follower.said(MessageKind.APPEND_REPLY) == []
    follower.sync()
    assert [body[1] for body in follower.said(MessageKind.APPEND_REPLY)] == [3]


def test_fault_4_vote_waits_for_the_disk() -> None:
    voter = LoneReplica()
    voter.waits(1.0)
    voter.gets("n2", MessageKind.REQUEST_VOTE, 1, 0, 0, False)
    voter.tick()
    assert voter.said(MessageKind.VOTE) == []
    voter.sync()
    assert voter.said(MessageKind.VOTE) == [[1, True, storage("n1")]]


def test_fault_4_candidate_requests_votes_after_its_own_is_on_disk() -> None:
    candidate = LoneReplica()
    candidate.waits(1.6)
    candidate.tick()
    candidate.gets("n2", MessageKind.PRE_VOTE_REPLY, 1, True, 0, storage("n2"))
    candidate.tick()
    assert candidate.replica.engine.term == 1
    assert candidate.said(MessageKind.REQUEST_VOTE) == []
    candidate.sync()
    assert len(candidate.said(MessageKind.REQUEST_VOTE)) == 2


def test_fault_4_message_queued_during_a_sync_waits_for_the_next_one() -> None:
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1)], prev=(0, 0))
    disk = follower.journal.disk
    at_once = disk.before_sync

    async def meanwhile() -> None:
        disk.before_sync = at_once
        follower.gets_append("n2", 1, [(2, 1)], prev=(1, 1))

    disk.before_sync = meanwhile
    asyncio.run(follower.journal.sync())
    assert follower.journal.dirty
    follower.replica.synced()
    assert [body[1] for body in follower.said(MessageKind.APPEND_REPLY)] == [2]
    follower.sync()
    assert [body[1] for body in follower.said(MessageKind.APPEND_REPLY)] == [3]


def test_fault_4_leader_commits_nothing_that_is_not_on_its_own_disk() -> None:
    """It counts itself for the majority, so a follower's answer alone is not enough."""
    leader = LoneReplica()
    leader.leads()
    ends = leader.proposes(b"\x93\xa1x\xa1a\xa1v")
    assert leader.said(MessageKind.APPEND, to="n2"), "its own disk is no reason to let the others wait (thesis 10.2.1)"
    leader.acknowledges("n2")
    leader.acknowledges("n3")
    leader.tick()
    assert ends == []
    assert leader.machine.applied[0] < leader.journal.last.index
    leader.settle()
    assert [type(end) for end in ends] == [Applied]


def with_a_learner() -> LoneReplica:
    """One voter, which needs no other vote, and so waits for no other answer for what is on its disk."""
    learner = Member("n2", MemberRole.LEARNER, storage("n2"), {"peer": "n2"})
    return LoneReplica(membership=voters("n1").with_member(learner))


def test_fault_4_leader_sends_nothing_in_its_term_before_the_term_is_on_disk() -> None:
    """tests/sim, scenario restores, seed 31218."""
    leader = with_a_learner()
    leader.waits(leader.timing.election_timeout_max_s + 0.01)
    leader.tick()
    assert leader.replica.engine.leads
    leader.replica.connected("n2")
    assert leader.sent == []
    leader.sync()
    leader.tick()
    assert [body[0] for body in leader.said(MessageKind.APPEND, to="n2")] == [1]


def test_fault_4_entries_of_one_index_and_term_are_never_sent_with_two_contents() -> None:
    """Entries lost in a crash, together with their term, were in no other log."""
    leader = with_a_learner()
    sent: dict[tuple[int, int], set[bytes]] = {}
    for command in (b"\x93\xa1x\xa1a\xa1v", b"\x93\xa1x\xa1a\xa1w"):
        leader.waits(leader.timing.election_timeout_max_s + 0.01)
        leader.tick()
        leader.proposes(command)
        leader.replica.connected("n2")
        for term, _, prev_index, _, _, entries in leader.said(MessageKind.APPEND, to="n2"):
            for number, (packed, _) in enumerate(entries, prev_index + 1):
                sent.setdefault((number, term), set()).add(packed)
        leader.crash()
    assert not [at for at, commands in sent.items() if len(commands) > 1]
    leader.waits(leader.timing.election_timeout_max_s + 0.01)
    leader.settle()
    assert leader.said(MessageKind.APPEND, to="n2"), "it does speak, once its term is on its disk"


def test_fault_4_vote_sent_before_the_sync_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outbox, "send_durable", lambda self, *message: self._send(*message))
    voter = LoneReplica()
    voter.waits(1.0)
    voter.gets("n2", MessageKind.REQUEST_VOTE, 1, 0, 0, False)
    assert voter.said(MessageKind.VOTE) == [[1, True, storage("n1")]]
    voter.crash()
    voter.waits(1.0)
    voter.gets("n3", MessageKind.REQUEST_VOTE, 1, 0, 0, False)
    assert voter.said(MessageKind.VOTE) == [[1, True, storage("n1")]], "two votes in one term"


def test_crash_between_vote_and_answer_forgets_both_or_none() -> None:
    voter = LoneReplica()
    voter.waits(1.0)
    voter.gets("n2", MessageKind.REQUEST_VOTE, 1, 0, 0, False)
    voter.crash()
    assert (voter.replica.engine.term, voter.replica.engine.vote) == (0, None)
    voter.waits(1.0)
    voter.gets("n2", MessageKind.REQUEST_VOTE, 1, 0, 0, False)
    asyncio.run(voter.journal.sync())
    voter.crash()
    voter.waits(1.0)
    voter.gets("n3", MessageKind.REQUEST_VOTE, 1, 0, 0, False)
    voter.settle()
    assert voter.replica.engine.vote == "n2"
    assert voter.said(MessageKind.VOTE) == [], "the answer was lost, the vote was not"
    voter.gets("n2", MessageKind.REQUEST_VOTE, 1, 0, 0, False)
    voter.settle()
    assert voter.said(MessageKind.VOTE) == [[1, True, storage("n1")]]


def test_crash_between_append_and_answer_loses_nothing_acknowledged() -> None:
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1)], prev=(0, 0))
    follower.settle()
    follower.gets_append("n2", 1, [(2, 1)], prev=(1, 1))
    follower.crash()
    assert follower.log == [(1, 1)]
    follower.gets_append("n2", 1, [], prev=(2, 1))
    follower.settle()
    assert [body[1:3] for body in follower.said(MessageKind.APPEND_REPLY)] == [[2, False]], "it asks for entry 2 again"


def test_follower_applies_only_entries_on_its_own_disk() -> None:
    """Thus the state is ahead of the log only after a snapshot, and no membership is lost in a crash."""
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1), (2, 1)], prev=(0, 0), commit=2)
    follower.tick()
    assert follower.machine.applied == (0, 0)
    follower.settle()
    assert follower.machine.applied == (2, 1)


def test_term_never_decreases_over_a_restart() -> None:
    node = LoneReplica()
    terms = []
    for term in (3, 5, 9):
        node.gets("n2", MessageKind.HEARTBEAT, term, node.clock.time)
        node.settle()
        node.crash()
        terms.append(node.replica.engine.term)
    assert terms == [3, 5, 9]


def test_group_of_one_commits_and_keeps_its_log_over_a_restart() -> None:
    """etcd #14370."""
    single = LoneReplica(["n1"])
    single.waits(0.1)
    single.settle()
    assert single.replica.leads
    ends = single.proposes(b"\x93\xa1x\xa1a\xa1v")
    single.settle()
    assert [type(end) for end in ends] == [Applied]
    single.crash()
    single.waits(0.1)
    single.settle()
    assert single.replica.leads
    assert single.replica.engine.term == 2
    assert single.machine.registers == {"a": "v"}


def test_fault_5_library_loses_its_log_in_a_crash_during_compaction(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    journal = FileJournal(path)
    for index in range(1, 11):
        journal.add(b"entry", index, 1)
    journal.clear()
    assert len(FileJournal(path)) == 0, "deleteEntriesTo begins with this, then writes the rest anew"


def test_fault_5_library_reads_a_flipped_bit_as_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = FileJournal(str(path))
    journal.add(b"entry", 1, 1)
    journal.flush()
    image = path.read_bytes()
    path.write_bytes(image.replace(b"entry", b"enTry", 1))
    assert FileJournal(str(path))[0][0] == b"enTry"


def test_fault_5_library_has_32_bit_offsets(tmp_path: Path) -> None:
    journal = FileJournal(str(tmp_path / "journal"))
    journal._FileJournal__currentOffset = 1 << 32
    with pytest.raises(struct.error):
        journal._FileJournal__setLastRecordOffset(journal._FileJournal__currentOffset)


def filled(path: Path) -> LmdbJournal:
    journal = LmdbJournal(path)
    for index in range(1, 101):
        journal.append(Entry(b"entry", index, 1))
    asyncio.run(journal.sync())
    return journal


def test_fault_5_crash_during_compaction_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = filled(tmp_path)
    journal.compact_to(60)
    fill = JournalFile._fill

    def fill_and_die(self: JournalFile, *arguments: Any) -> None:
        fill(self, *arguments)
        raise OSError("no power")

    monkeypatch.setattr(JournalFile, "_fill", fill_and_die)
    with pytest.raises(NodeFailed):
        asyncio.run(journal.sync())
    journal.close()
    monkeypatch.undo()
    again = LmdbJournal(tmp_path)
    assert (again.first.index, again.last.index) == (0, 100)
    again.close()


def test_fault_5_flipped_bit_is_never_served(tmp_path: Path) -> None:
    filled(tmp_path).close()
    damaged = [path for path in tmp_path.rglob("*") if path.is_file() and b"entry" in path.read_bytes()]
    for path in damaged:
        path.write_bytes(path.read_bytes().replace(b"entry", b"enTry"))
    assert damaged
    with pytest.raises((NodeFailed, lmdb.Error)):
        LmdbJournal(tmp_path).slice(1, 101)
