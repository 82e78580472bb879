"""Which messages may reach the consensus library: compared with a naive model, for random histories and messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from palisade.raftgroup.append_replies import Acknowledge, AppendReply, DropReply, Resend, StepDown, screen_reply
from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.message_screen import Append, Extend, Matched, Missing, StaleTerm, screen_append
from palisade.raftgroup.ports import Entry

Verdict = StaleTerm | Missing | Matched | Extend
Screen = Callable[[Append, MemoryJournal, int, int], Verdict]


def log_of(terms: list[int], base: int = 0) -> MemoryJournal:
    """A log whose entry at index i + 1 has the term terms[i], compacted to `base`."""
    state = MemoryJournal()
    for number, term in enumerate(terms):
        state.append(Entry(b"%d.%d" % (number + 1, term), number + 1, term))
    if base:
        state.compact_to(base)
    return state


def append(term: int, history: list[int], prev: int, count: int, commit: int) -> Append:
    """An append of a leader with that history: `count` entries after `prev`."""
    entries = [
        Entry(b"%d.%d" % (index, history[index - 1]), index, history[index - 1])
        for index in range(prev + 1, prev + count + 1)
    ]
    return Append(term, commit, prev, history[prev - 1] if prev else 0, entries)


def terms(log: MemoryJournal) -> list[int]:
    return [entry.term for entry in log.slice(log.first.index + 1, log.last.index + 1)]


class TestAppends:
    def test_append_of_a_past_leader_is_refused(self) -> None:
        assert screen_append(append(1, [1], 0, 1, 0), log_of([1]), 2, 0) == StaleTerm()

    def test_append_after_missing_entries_requests_the_end_of_the_log(self) -> None:
        assert screen_append(append(1, [1, 1, 1], 3, 0, 0), log_of([1]), 1, 0) == Missing(2)

    def test_append_after_a_different_entry_requests_what_follows_the_commit_index(self) -> None:
        assert screen_append(append(3, [1, 3, 3], 2, 1, 0), log_of([1, 2]), 3, 1) == Missing(2)

    def test_matching_append_delivers_nothing_and_commits_only_what_it_covers(self) -> None:
        assert screen_append(append(2, [1, 1, 2], 0, 2, 3), log_of([1, 1, 1]), 2, 0) == Matched(2, 2)

    def test_append_is_delivered_from_the_first_difference_on(self) -> None:
        verdict = screen_append(append(3, [1, 3, 3], 0, 3, 9), log_of([1, 2, 2]), 3, 1)
        assert isinstance(verdict, Extend)
        assert verdict.truncates
        assert (verdict.append.prev_index, verdict.append.prev_term, verdict.append.commit) == (1, 1, 3)
        assert [entry.index for entry in verdict.append.entries] == [2, 3]

    def test_append_below_the_base_is_compared_only_above_it(self) -> None:
        verdict = screen_append(append(1, [1] * 6, 0, 6, 6), log_of([1] * 5, base=3), 1, 4)
        assert isinstance(verdict, Extend)
        assert not verdict.truncates
        assert [entry.index for entry in verdict.append.entries] == [6]

    def test_append_that_contradicts_a_committed_entry_stops_the_node(self) -> None:
        with pytest.raises(NodeFailed, match="differs from this node's at index 2"):
            screen_append(append(3, [1, 3], 0, 2, 2), log_of([1, 2]), 3, 2)
        with pytest.raises(NodeFailed, match="differs"):
            screen_append(append(3, [3, 3], 1, 1, 2), log_of([1, 2]), 3, 2)


class TestReplies:
    """`match` None is unknown and cannot be mistaken for an index."""

    @staticmethod
    def screened(reply: AppendReply, match: int | None = None) -> object:
        return screen_reply(reply, term=5, match=match, last_index=10)

    def test_reply_of_a_later_term_ends_the_leadership(self) -> None:
        assert self.screened(AppendReply(6, 0, False)) == StepDown(6)

    def test_reply_of_an_earlier_term_does_not_count(self) -> None:
        assert isinstance(self.screened(AppendReply(4, 9, True)), DropReply)
        assert isinstance(self.screened(AppendReply(4, 1, False)), DropReply)

    def test_acknowledgement_beyond_the_log_does_not_count(self) -> None:
        assert isinstance(self.screened(AppendReply(5, 12, True)), DropReply)

    def test_acknowledgement_confirms_everything_below_the_requested_index(self) -> None:
        assert self.screened(AppendReply(5, 11, True)) == Acknowledge(10)
        assert self.screened(AppendReply(5, 9, True)) == Acknowledge(8)

    @pytest.mark.parametrize(
        ("asked", "match", "sent"), [(3, None, 3), (0, None, 1), (3, 6, 7), (99, 6, 11), (-5, 0, 1)]
    )
    def test_requested_index_is_limited_to_match_and_the_end(self, asked: int, match: int | None, sent: int) -> None:
        assert self.screened(AppendReply(5, asked, False), match) == Resend(sent)

    @given(
        st.builds(AppendReply, st.integers(0, 9), st.integers(-3, 20), st.booleans()),
        st.none() | st.integers(0, 10),
    )
    def test_next_index_stays_above_match_and_within_the_log(self, reply: AppendReply, match: int | None) -> None:
        verdict = screen_reply(reply, term=5, match=match, last_index=10)
        if isinstance(verdict, Resend):
            assert (match or 0) < verdict.next_index <= 11
        if isinstance(verdict, Acknowledge):
            assert verdict.match <= 10
            assert reply.term == 5


@dataclass
class History:
    """Leaders in order of their terms; each has all earlier committed entries (leader completeness).

    `logs[term]` is the whole log of that leader, as terms; `committed[term]` how much of it is committed in its term.
    """

    logs: dict[int, list[int]] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History()
    log: list[int] = []
    commit = 0
    for term in range(1, draw(st.integers(1, 5)) + 1):
        kept = draw(st.integers(commit, len(log)))
        log = log[:kept] + [term] * draw(st.integers(1, 4))
        commit = draw(st.one_of(st.just(commit), st.integers(kept + 1, len(log))))
        history.logs[term] = log
        history.committed[term] = commit
    return history


@st.composite
def runs(draw: st.DrawFn) -> tuple[History, list[Append]]:
    """Messages of all leaders; those of one term in any order, repeated, late; terms mostly in order."""
    history = draw(histories())
    messages = []
    for term, log in history.logs.items():
        for _ in range(draw(st.integers(0, 6))):
            prev = draw(st.integers(0, len(log)))
            count = draw(st.integers(0, len(log) - prev))
            messages.append(append(term, log, prev, count, draw(st.integers(0, history.committed[term]))))
    repeated = draw(st.lists(st.sampled_from(messages), max_size=5)) if messages else []
    late = draw(st.permutations(messages + repeated))
    in_order = draw(st.booleans())
    return history, sorted(late, key=lambda message: message.term) if in_order else list(late)


class Follower:
    """Executes decisions as the library does: it removes everything after prev_index, and appends."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.log = log_of([])
        self.term = 0
        self.commit = 0
        self.acknowledged: dict[int, int] = {}

    def take(self, message: Append) -> None:
        verdict = self.screen(message, self.log, self.term, self.commit)
        if isinstance(verdict, StaleTerm):
            return
        self.term = max(self.term, message.term)
        if isinstance(verdict, Missing):
            assert self.commit < verdict.next_index <= self.log.last.index + 1
            return
        if isinstance(verdict, Extend):
            self.log.truncate_from(verdict.append.prev_index + 1)
            for each in verdict.append.entries:
                self.log.append(each)
            covers, commit = verdict.append.covers, verdict.append.commit
        else:
            covers, commit = verdict.covers, verdict.commit
        self.acknowledged[message.term] = max(self.acknowledged.get(message.term, 0), covers)
        self.commit = max(self.commit, commit)


def check(run: tuple[History, list[Append]], screen: Screen) -> None:
    """Nothing acknowledged in its term or committed is ever removed; the log matches as far as it was acknowledged
    (Raft 5.3); the follower's commit index covers only committed entries.
    """
    history, messages = run
    newest = history.logs[max(history.logs)]
    follower = Follower(screen)
    for message in messages:
        committed = terms(follower.log)[: follower.commit]
        follower.take(message)
        log = terms(follower.log)
        acknowledged = follower.acknowledged.get(follower.term, 0)
        assert log[: len(committed)] == committed
        assert log[:acknowledged] == history.logs.get(follower.term, [])[:acknowledged]
        assert follower.commit <= max(history.committed.values())
        assert log[: follower.commit] == newest[: follower.commit]


@settings(max_examples=500, deadline=None)
@given(runs())
def test_delivery_never_removes_acknowledged_or_committed_entries(run: tuple[History, list[Append]]) -> None:
    check(run, screen_append)


def trusting(message: Append, log: MemoryJournal, term: int, commit: int) -> Verdict:
    """As in the library: everything after prev_index is replaced (fault 1)."""
    verdict = screen_append(message, log, term, commit)
    if isinstance(verdict, Matched) and message.entries and message.prev_index >= log.first.index:
        return Extend(message, truncates=True)
    return verdict


def hasty(message: Append, log: MemoryJournal, term: int, commit: int) -> Verdict:
    """The leader's commit index applies to the whole log, as in the library."""
    verdict = screen_append(message, log, term, commit)
    return replace(verdict, commit=min(message.commit, log.last.index)) if isinstance(verdict, Matched) else verdict


def boastful(message: Append, log: MemoryJournal, term: int, commit: int) -> Verdict:
    """Acknowledges its whole log."""
    verdict = screen_append(message, log, term, commit)
    return replace(verdict, covers=log.last.index) if isinstance(verdict, Matched) else verdict


def obedient(message: Append, log: MemoryJournal, term: int, commit: int) -> Verdict:
    """Accepts leaders of earlier terms."""
    return screen_append(message, log, min(term, message.term), commit)


@pytest.mark.parametrize("planted", [trusting, hasty, boastful, obedient])
def test_model_detects_planted_faults(planted: Screen) -> None:
    def breaks(run: tuple[History, list[Append]]) -> bool:
        try:
            check(run, planted)
        except (AssertionError, NodeFailed):
            return True
        return False

    find(runs(), breaks, settings=settings(max_examples=20_000, deadline=None, phases=[Phase.generate]))
