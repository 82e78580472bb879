"""A batch is decoded once: by the follower that checks its append, and by no leader. What is kept for that is bounded,
and never applied in the place of another entry."""

from __future__ import annotations

import pytest

import palisade.raftgroup.message_screen
import palisade.raftgroup.proposals
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import NO_OP, Entry
from palisade.raftgroup.proposals import UnappliedEntries, batch_in
from tests.support.lone_replica import LoneReplica, write
from tests.support.register_machine import put


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every entry that is decoded, in order."""
    found: list[bytes] = []
    for module in (palisade.raftgroup.message_screen, palisade.raftgroup.proposals):
        monkeypatch.setattr(module, "batch_in", lambda entry: found.append(entry) or batch_in(entry))
    return found


def test_follower_decodes_each_batch_once(decoded: list[bytes]) -> None:
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1), (2, 1)], prev=(0, 0))
    follower.settle()
    follower.gets_append("n2", 1, [], prev=(2, 1), commit=2)
    follower.settle()
    assert follower.machine.applied == (2, 1)
    assert decoded == [write(1, 1), write(2, 1)]


def test_leader_decodes_none_of_its_own_batches(decoded: list[bytes]) -> None:
    leader = LoneReplica()
    leader.leads()
    decoded.clear()
    ends = leader.proposes(put("one", "a", "1"))
    leader.acknowledges("n2")
    leader.settle()
    assert len(ends) == 1
    assert decoded == []


def test_batch_of_an_earlier_start_is_decoded_when_applied(decoded: list[bytes]) -> None:
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1)], prev=(0, 0))
    follower.settle()
    follower.crash()
    decoded.clear()
    follower.gets_append("n2", 1, [], prev=(1, 1), commit=1)
    follower.settle()
    assert follower.machine.applied == (1, 1)
    assert decoded == [write(1, 1)]


def test_truncated_batch_is_not_applied_in_place_of_another() -> None:
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1), (2, 1), (3, 1)], prev=(0, 0))
    follower.settle()
    follower.gets_append("n3", 2, [(2, 2)], prev=(1, 1), commit=2)
    follower.settle()
    assert follower.machine.registers == {"a": "2.2"}
    assert follower.replica.unapplied.decoded == 0


def test_displaced_proposal_may_be_proposed_again_after_another_entry_at_its_index() -> None:
    leader = LoneReplica()
    term = leader.leads()
    ends = leader.proposes(put("mine", "a", "mine"))
    index = leader.journal.last.index
    leader.gets_append("n2", term + 1, [(index, term + 1)], prev=(index - 1, term))
    leader.settle()
    assert leader.replica.unapplied.take_displaced() == [], "the entry of n2 may yet lose against its own"
    leader.gets("n2", MessageKind.APPEND, term + 1, index, index, term + 1, 100.0, [])
    leader.settle()
    assert [list(each.commands) for each in leader.replica.unapplied.take_displaced()] == [[put("mine", "a", "mine")]]
    assert leader.replica.unapplied.take_displaced() == []
    assert ends == []


def entry(index: int, term: int = 1) -> Entry:
    """10 bytes. Decoded, it has no batch."""
    return Entry(NO_OP.ljust(10), index, term)


def test_decoded_batches_are_bounded_and_the_oldest_ones_stay() -> None:
    kept = UnappliedEntries(25)
    for index in (1, 2, 3):
        kept.keep(entry(index), (index, []))
    assert kept.decoded == 2
    assert kept.take(entry(3)) is None
    assert kept.take(entry(1)) == (1, [])
    kept.keep(entry(4), (4, []))
    assert kept.take(entry(4)) == (4, [])


def test_decoded_batches_answer_for_the_term_of_the_entry_only() -> None:
    kept = UnappliedEntries()
    kept.keep(entry(1, term=1), ("old", []))
    assert kept.take(entry(1, term=2)) is None
    assert kept.decoded == 0


def test_decoded_batches_free_what_was_truncated() -> None:
    kept = UnappliedEntries(20)
    kept.keep(entry(1), (1, []))
    kept.keep(entry(2), (2, []))
    kept.truncated_from(2)
    kept.keep(entry(2, term=2), ("new", []))
    assert kept.take(entry(2, term=2)) == ("new", [])
    kept.replaced_to(0)
    assert kept.decoded == 0
