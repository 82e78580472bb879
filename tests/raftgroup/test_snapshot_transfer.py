"""The transfer of a snapshot: scenarios.md, "Snapshot: ..., older, interrupted, corrupted, exactly one install"."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.base.snapshots import SnapshotMeta
from palisade.raftgroup.snapshot_receiver import SnapshotReceiver
from palisade.raftgroup.snapshot_sender import SnapshotSender, TransferOutcome
from palisade.raftgroup.snapshot_transfer import (
    AbortWriter,
    CloseReader,
    Install,
    OpenWriter,
    ReadChunk,
    SendMessage,
    TransferRefusal,
    TransferTiming,
    WriteChunk,
    accept,
    acknowledge,
    chunk,
    done,
    offer,
    read_message,
    refuse,
)
from tests.support.snapshot_world import INDEX, MEMBERSHIP, World

PIECES = [b"piece %d" % number for number in range(20)]
META = SnapshotMeta("s1", 100, 3, 4096)
OFFER = offer(META, 4, MEMBERSHIP)
TIMING = TransferTiming()


class Follower:
    """A receiver whose effects are inspected instead of executed."""

    def __init__(self, *, term: int = 4, commit_index: int = 10) -> None:
        self.receiver = SnapshotReceiver(TIMING)
        self.term = term
        self.commit_index = commit_index
        self.now = 0.0

    def gets(self, wire: Any, member: str = "n1") -> list[Any]:
        effects = self.receiver.receive(member, wire, self.now, term=self.term, commit_index=self.commit_index)
        if effects and isinstance(effects[-1], OpenWriter):
            effects += self.receiver.opened(0)
        return effects


def says(*bodies: list[Any]) -> list[SendMessage]:
    return [SendMessage("n1", body) for body in bodies]


def leader() -> SnapshotSender:
    return SnapshotSender("n2", META, MEMBERSHIP, 4, TIMING, 0.0)


def accepted_leader(pieces: int) -> SnapshotSender:
    """A sender that was accepted and has read as many pieces as it wants."""
    sender = leader()
    sender.start(0.0)
    answer(sender, sender.receive(accept("s1", 0, False), 0.0), pieces)
    return sender


def answer(sender: SnapshotSender, effects: list[Any], pieces: int) -> list[list[Any]]:
    """Answer its reads until there are no more; returns the messages sent meanwhile."""
    sent: list[list[Any]] = []
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, SendMessage):
            sent.append(effect.body)
        elif isinstance(effect, ReadChunk):
            data = b"%d" % effect.number if effect.number < pieces else None
            effects += sender.read(effect.number, data, 0.0)
    return sent


def numbers(sent: list[list[Any]]) -> list[int]:
    return [body[2] for body in sent if body[0] == 3]


# From one end to the other.


@pytest.mark.parametrize("pieces", [1, 2, 4, 5, 20])
def test_snapshot_arrives_whole_and_is_installed_once(pieces: int) -> None:
    world = World(1, PIECES[:pieces])
    world.start()
    world.run_to_the_end(5)
    world.check()
    assert world.sender.outcome is TransferOutcome.INSTALLED
    assert world.reads == list(range(pieces + 1))


def test_interrupted_transfer_resumes() -> None:
    world = World(2, PIECES)
    world.start()
    world.run_until(lambda: world.receiver.next_chunk == 12)
    world.break_connection(5.0)
    world.run_to_the_end()
    world.check()
    assert world.sender.sent_bytes < 27 * len(PIECES[-1])


def test_restarted_follower_continues_with_its_pieces() -> None:
    world = World(3, PIECES)
    world.start()
    world.run_until(lambda: world.receiver.next_chunk == 12)
    world.restart_follower(keep=0.5)
    world.run_to_the_end()
    world.check()


def test_restarted_follower_with_every_piece_installs() -> None:
    """It was stopped between the last piece and the install: only the mark of the last piece is missing."""
    world = World(4, PIECES)
    world.start()
    world.run_until(lambda: world.receiver.installing)
    world.restart_follower(keep=1.0)
    world.run_to_the_end()
    world.check()


def test_new_leader_with_the_same_snapshot_continues_the_transfer() -> None:
    world = World(5, PIECES)
    world.start()
    world.run_until(lambda: world.receiver.next_chunk == 12)
    world.do(world.sender.abort("this node does not lead any more"))
    assert (world.sender.outcome, world.reader_closed) == (TransferOutcome.FAILED, 1)
    world.reads.clear()
    world.reader_closed = 0
    world.offer_again("snapshot-1", term=7)
    world.run_to_the_end()
    world.check()
    assert min(world.reads) >= 11


def test_new_leader_with_another_snapshot_replaces_the_transfer() -> None:
    world = World(6, PIECES)
    world.start()
    world.run_until(lambda: world.receiver.next_chunk == 12)
    world.do(world.sender.abort("this node does not lead any more"))
    world.reader_closed = 0
    world.offer_again("snapshot-2", index=INDEX - 10, term=7)
    world.run_to_the_end()
    world.check()
    assert world.aborted == ["snapshot-1"]
    assert world.committed == INDEX - 10


def test_long_install_is_waited_for() -> None:
    world = World(7, PIECES)
    world.install_s = 300.0
    world.start()
    world.run_to_the_end()
    world.check()


# The follower.


@pytest.mark.parametrize("commit_index", [100, 101])
def test_snapshot_that_is_not_ahead_of_the_follower_is_refused(commit_index: int) -> None:
    """PySyncObj, fault 9; M11."""
    follower = Follower(commit_index=commit_index)
    text = f"the snapshot is of 100, this follower has committed {commit_index}"
    assert follower.gets(OFFER) == says(refuse("s1", TransferRefusal.NOT_AHEAD, text))
    assert follower.receiver.receiving is None


def test_snapshot_of_an_earlier_leader_is_refused() -> None:
    follower = Follower(term=5)
    assert follower.gets(OFFER) == says(
        refuse("s1", TransferRefusal.OLD_TERM, "the offer is of term 4, this follower is in term 5")
    )


def test_follower_that_caught_up_by_the_log_abandons_the_transfer() -> None:
    follower = Follower()
    follower.gets(OFFER)
    follower.commit_index = 100
    aborted, refusal = follower.gets(chunk("s1", 0, b"x", True))
    assert aborted == AbortWriter()
    assert refusal.body[:3] == [2, "s1", TransferRefusal.NOT_AHEAD]
    assert follower.receiver.receiving is None


def test_corrupted_piece_is_requested_again_and_not_written() -> None:
    follower = Follower()
    follower.gets(OFFER)
    spoilt = chunk("s1", 0, b"x", True)
    spoilt[4] = b"y"
    assert follower.gets(spoilt) == says(acknowledge("s1", 0))
    assert follower.gets(chunk("s1", 0, b"x", True)) == [
        WriteChunk(0, b"x"),
        *says(acknowledge("s1", 1)),
        Install(META, MEMBERSHIP),
    ]


@pytest.mark.parametrize("number", [0, 2, 5])
def test_out_of_order_piece_is_not_written(number: int) -> None:
    follower = Follower()
    follower.gets(OFFER)
    follower.gets(chunk("s1", 0, b"x", False))
    assert follower.gets(chunk("s1", number, b"x", number == 5)) == says(acknowledge("s1", 1))


def test_repeated_last_piece_causes_one_install() -> None:
    follower = Follower()
    follower.gets(OFFER)
    last = chunk("s1", 0, b"x", True)
    assert Install(META, MEMBERSHIP) in follower.gets(last)
    assert follower.gets(last) == says(acknowledge("s1", 1))
    assert follower.gets(OFFER) == says(accept("s1", 1, True))
    assert follower.receiver.installed(1.0) == says(done("s1", True, ""))
    assert follower.gets(last) == says(done("s1", True, ""))
    assert follower.gets(OFFER) == says(done("s1", True, ""))


def test_install_in_progress_is_never_replaced() -> None:
    follower = Follower()
    follower.gets(OFFER)
    follower.gets(chunk("s1", 0, b"x", True))
    other = offer(SnapshotMeta("s2", 200, 4, None), 9, None)
    assert follower.gets(other) == says(refuse("s2", TransferRefusal.BUSY, "the snapshot of 100 is being installed"))
    assert follower.receiver.installing


def test_late_older_offer_does_not_replace_a_newer_one() -> None:
    follower = Follower()
    follower.gets(offer(SnapshotMeta("s2", 200, 4, None), 4, None))
    assert follower.gets(OFFER)[0].body[:3] == [2, "s1", TransferRefusal.BUSY]
    assert follower.gets(chunk("s2", 0, b"x", False)) == [WriteChunk(0, b"x"), *says(acknowledge("s2", 1))]


def test_unfinished_transfer_is_discarded_for_a_newer_one() -> None:
    follower = Follower()
    follower.gets(OFFER)
    follower.gets(chunk("s1", 0, b"x", False))
    newer = SnapshotMeta("s2", 200, 4, None)
    assert follower.gets(offer(newer, 4, None)) == [AbortWriter(), OpenWriter(newer), *says(accept("s2", 0, False))]
    assert follower.gets(chunk("s1", 1, b"y", False))[0].body[:3] == [2, "s1", TransferRefusal.UNKNOWN]


def test_repeated_offer_opens_one_writer() -> None:
    follower = Follower()
    assert follower.gets(OFFER) == [OpenWriter(META), *says(accept("s1", 0, False))]
    assert follower.gets(OFFER) == says(accept("s1", 0, False))


def test_invalid_pieces_are_discarded_with_the_reason() -> None:
    follower = Follower()
    follower.gets(OFFER)
    follower.gets(chunk("s1", 0, b"x", True))
    assert follower.receiver.invalid("rows are missing", 1.0) == [
        AbortWriter(),
        *says(done("s1", False, "rows are missing")),
    ]
    assert follower.gets(OFFER) == says(done("s1", False, "rows are missing"))
    follower.now = 1.1 + TIMING.failure_memory_s
    assert follower.gets(OFFER)[0] == OpenWriter(META)


def test_abandoned_transfer_is_discarded() -> None:
    follower = Follower()
    follower.gets(OFFER)
    assert follower.receiver.tick(TIMING.receiver_idle_s) == []
    assert follower.receiver.tick(TIMING.receiver_idle_s + 1) == [AbortWriter()]
    assert follower.receiver.receiving is None


def test_install_is_never_abandoned_for_idleness() -> None:
    follower = Follower()
    follower.gets(OFFER)
    follower.gets(chunk("s1", 0, b"x", True))
    assert follower.receiver.tick(10 * TIMING.receiver_idle_s) == []


# The leader.


def test_window_limits_the_pieces_in_flight() -> None:
    sender = leader()
    sender.start(0.0)
    assert numbers(answer(sender, sender.receive(accept("s1", 0, False), 0.0), 20)) == [0, 1, 2, 3]
    assert numbers(answer(sender, sender.receive(acknowledge("s1", 2), 0.1), 20)) == [4, 5]


def test_pieces_are_read_one_at_a_time() -> None:
    sender = leader()
    sender.start(0.0)
    assert sender.receive(accept("s1", 0, False), 0.0) == [ReadChunk(0)]
    assert sender.receive(acknowledge("s1", 0), 0.0) == []
    assert sender.read(0, b"a", 0.0) == [ReadChunk(1)]


def test_piece_requested_again_is_sent_again_once() -> None:
    sender = accepted_leader(20)
    assert numbers(answer(sender, sender.receive(acknowledge("s1", 0), 0.1), 20)) == [0, 1, 2, 3]
    assert sender.receive(acknowledge("s1", 0), 0.1) == []


def test_silence_makes_the_leader_ask_at_growing_intervals() -> None:
    sender = accepted_leader(20)
    asked = [tenths / 10 for tenths in range(1, 300) if sender.tick(tenths / 10)]
    assert asked == pytest.approx([1.0, 3.0, 7.0, 15.0, 23.0])
    assert numbers(answer(sender, sender.receive(accept("s1", 2, False), 29.0), 20)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("wire", "outcome"),
    [
        (done("s1", True, ""), TransferOutcome.INSTALLED),
        (done("s1", False, "torn"), TransferOutcome.FAILED),
        (refuse("s1", TransferRefusal.NOT_AHEAD, "has it"), TransferOutcome.NOT_NEEDED),
        (refuse("s1", TransferRefusal.OLD_TERM, "deposed"), TransferOutcome.FAILED),
        (refuse("s1", 77, "of a later release"), TransferOutcome.FAILED),  # type: ignore[arg-type]
    ],
)
def test_transfer_ends_for_each_reason(wire: list[Any], outcome: TransferOutcome) -> None:
    sender = accepted_leader(20)
    assert sender.receive(wire, 0.1) == [CloseReader()]
    assert (sender.outcome, sender.reason) == (outcome, wire[3])
    assert sender.receive(wire, 0.2) == sender.tick(1e9) == sender.connected(1e9) == sender.abort("again") == []


def test_busy_follower_is_asked_again() -> None:
    sender = leader()
    (first,) = sender.start(0.0)
    assert sender.receive(refuse("s1", TransferRefusal.BUSY, "wait"), 0.1) == []
    assert sender.tick(1.0) == [first]


def test_follower_that_lost_the_transfer_gets_a_new_offer() -> None:
    sender = accepted_leader(20)
    assert sender.receive(refuse("s1", TransferRefusal.UNKNOWN, "?"), 0.1) == [
        SendMessage("n2", offer(META, 4, MEMBERSHIP))
    ]
    assert sender.receive(refuse("s1", TransferRefusal.UNKNOWN, "?"), 0.1) == []
    assert numbers(answer(sender, sender.receive(accept("s1", 0, False), 0.2), 20)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("hear", "limit", "reason"),
    [
        (None, TIMING.silence_s, "has not answered"),
        (accept("s1", 0, False), TIMING.stall_s, "has made no progress"),
        (refuse("s1", TransferRefusal.BUSY, "wait"), TIMING.life_s, "did not receive its snapshot"),
    ],
)
def test_transfer_always_ends(hear: list[Any] | None, limit: float, reason: str) -> None:
    """An open snapshot keeps the store from freeing space."""
    sender, now = leader(), 0.0
    sender.start(now)
    while sender.outcome is None and now < 2 * TIMING.life_s:
        now += 0.5
        if hear is not None:
            sender.receive(hear, now)
        sender.tick(now)
    assert sender.outcome is TransferOutcome.FAILED
    assert reason in sender.reason
    assert now == pytest.approx(limit, abs=1.0)


def test_absent_follower_is_abandoned() -> None:
    sender = accepted_leader(20)
    assert sender.disconnected(1.0) == []
    assert sender.tick(1.0 + TIMING.absence_s) == []
    assert sender.tick(1.1 + TIMING.absence_s) == [CloseReader()]
    assert sender.reason == "n2 was away for 60 s"


def test_unreadable_snapshot_ends_the_transfer() -> None:
    sender = accepted_leader(20)
    assert sender.unreadable("the snapshot is gone") == [CloseReader()]
    assert sender.reason == "the snapshot is gone"


def test_snapshot_without_pieces_fails() -> None:
    sender = leader()
    sender.start(0.0)
    sender.receive(accept("s1", 0, False), 0.0)
    assert sender.read(0, None, 0.0) == [CloseReader()]
    assert sender.outcome is TransferOutcome.FAILED


def test_acknowledgement_of_too_many_pieces_fails() -> None:
    sender = accepted_leader(2)
    assert sender.receive(acknowledge("s1", 3), 0.1) == []
    sender.connected(0.2)
    assert sender.receive(accept("s1", 3, False), 0.3) == [CloseReader()]
    assert "3 pieces of a snapshot with 2" in sender.reason


# Garbage.

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary() | st.text(), lambda inner: st.lists(inner, max_size=8)
)
ALMOST = st.tuples(st.integers(-1, 7), st.sampled_from(["s1", "s2"])).flatmap(
    lambda head: st.lists(st.integers(-2, 3) | st.booleans() | st.binary() | st.text(), max_size=6).map(
        lambda fields: [*head, *fields]
    )
)


@given(st.lists(ANYTHING | ALMOST, max_size=12))
def test_garbage_is_answered_or_ignored_and_never_installed(messages: list[Any]) -> None:
    sender, follower = accepted_leader(20), Follower()
    follower.gets(OFFER)
    for wire in messages:
        answer(sender, sender.receive(wire, 0.1), 20)
        effects = follower.gets(wire)
        message = read_message(wire)
        assert message is not None or effects == []
        for effect in effects:
            if isinstance(effect, WriteChunk):
                assert message is not None
                assert chunk("s1", effect.number, effect.data, message[2][3])[2:] == message[2]
