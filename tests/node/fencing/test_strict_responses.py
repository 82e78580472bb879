"""Which responses wait for their release, if the strict prefixes change while a write is in progress (issue 4, F3,
F5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from palisade.base.metrics import Metrics
from palisade.metastore.command_codec import EACH, PUT_RESULT, encode_command, refusal
from palisade.metastore.errors import ResultEvicted
from palisade.metastore.limits import Limits
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.requests import Put
from palisade.metastore.state_machine import MetaStore
from palisade.raftgroup.proposals import Applied
from palisade.service.callers import UNRESTRICTED
from palisade.service.pending_frame import PendingFrame
from palisade.service.pending_write import Outcome, OwnLease, PendingWrite, ReleaseWaiters, StrictResponses
from palisade.service.regions import regions_of
from palisade.service.strict_changes import StrictLog
from palisade.service.write_checks import CheckedWrite, WriteChecks
from palisade.vault.regions import Mode, Policy, Region, pack_region, region_key
from palisade.wire.fencing_errors import ReleasePending
from tests.support.waiting import until

MAKES_STRICT = Put(region_key("s"), pack_region(Region("s", b"s/", Mode.STRICT, Policy.FAIL_CLOSED)))
BEFORE, REGION, WRITE = 2, 3, 4
"""# Revisions: of an earlier write, of the change of the region, of the write that overlaps with it."""


@dataclass
class Member:
    """A member with its store, which applies entries on request; a revision is released on request only."""

    leased: bool = True
    staged: tuple[bytes, ...] = ()
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MetaStore(MemoryMap())
        self.log = StrictLog(self.store.bodies, lambda: regions_of(self.store), lambda: self.store.revision)
        self.released = ReleaseWaiters(self.log, asyncio.get_running_loop().time)
        self.store.listen(self.released)
        self.answers = StrictResponses(self.released, str, lambda: True, OwnLease(self))
        self.release(1)
        self.apply(Put(b"e", b""))
        self.release(BEFORE)

    @property
    def prefixes(self) -> tuple[bytes, ...]:
        return self.staged

    @property
    def serves(self) -> bool:
        return self.leased

    def apply(self, *requests: Put) -> None:
        index, term = self.store.applied
        self.store.apply(index + 1, term or 1, [0, 0], [encode_command(each, None) for each in requests])

    def release(self, revision: int) -> None:
        self.released.release(revision)

    def propose(self, key: bytes, timeout_s: float = 60.0) -> None:
        """`outcome` is called with the leader's response."""
        self.outcome = self.write(key, self.outcomes.append, timeout_s).end

    def write(self, key: bytes, on_outcome: Callable[[Outcome], object], timeout_s: float) -> PendingWrite:
        request = Put(key, b"new")
        touches_strict = self.answers.classify(request, own=False)
        return RecordedWrite(b"", request, None, on_outcome, timeout_s, self.answers, touches_strict, Metrics())

    def propose_frame(self, *keys: bytes) -> None:
        """Over the stream."""
        numbered = [(number, encode_command(Put(key, b"new"), None)) for number, key in enumerate(keys)]
        found, _ = WriteChecks(Limits(), self.answers).frame(numbered, UNRESTRICTED, len(keys))
        self.outcome = PendingFrame(
            found, Replies(lambda _, outcome: self.outcomes.append(outcome)), 60.0, self.answers, Metrics()
        ).end


class RecordedWrite(PendingWrite):
    """Reports the outcome unchanged."""

    def answer(self, outcome: Outcome) -> None:
        self._reply(outcome)


class Replies:
    def __init__(self, on_outcome: Callable[[Sequence[CheckedWrite], Any], object]) -> None:
        self._on_outcome = on_outcome

    def on_refusal(self, writes: Sequence[CheckedWrite], error: Exception) -> None:
        raise AssertionError(error)

    def on_results(self, writes: Sequence[CheckedWrite], results: Sequence[Any]) -> None:
        self._on_outcome(writes, Applied(9, 1, results))

    def on_failure(self, writes: Sequence[CheckedWrite], error: Exception) -> None:
        self._on_outcome(writes, error)


def put_at(*revisions: int) -> Applied:
    return Applied(9, 1, [(PUT_RESULT, revision) for revision in revisions])


async def test_write_after_its_prefix_became_strict_waits_for_release() -> None:
    """It was eventual when it was proposed: acknowledged at its commit, its client would know a change that other nodes
    do not serve yet."""
    member = Member()
    member.propose(b"s/k")
    member.apply(MAKES_STRICT, Put(b"s/k", b"new"))
    member.outcome(put_at(WRITE))
    assert member.outcomes == []
    member.release(REGION)
    assert member.outcomes == []
    member.release(WRITE)
    assert member.outcomes == [put_at(WRITE)]


async def test_write_that_this_node_has_applied_is_answered_without_a_lease() -> None:
    member = Member(leased=False)
    member.propose(b"other")
    member.apply(Put(b"other", b"new"))
    member.outcome(put_at(WRITE)._replace(here=True))
    assert member.outcomes == [put_at(WRITE)._replace(here=True)]


async def test_write_that_another_node_has_applied_waits_for_this_node_without_a_lease() -> None:
    member = Member(leased=False)
    member.propose(b"other")
    member.outcome(put_at(WRITE))
    assert member.outcomes == []
    member.apply(Put(b"x", b""), Put(b"other", b"new"))
    assert member.outcomes == [put_at(WRITE)]


async def test_stream_write_after_its_prefix_became_strict_waits_for_release() -> None:
    member = Member()
    member.propose_frame(b"s/k", b"other")
    member.apply(MAKES_STRICT, Put(b"s/k", b"new"), Put(b"other", b"new"))
    member.outcome(put_at(WRITE, WRITE + 1))
    assert member.outcomes == [put_at(WRITE + 1)]
    member.release(WRITE)
    assert member.outcomes == [put_at(WRITE + 1), put_at(WRITE)]


async def test_forwarding_node_uses_the_prefixes_staged_to_its_vault() -> None:
    """The leader's response arrives before the node has applied the change of the region."""
    member = Member()
    member.propose(b"s/k")
    member.staged = (b"s/",)
    member.outcome(put_at(WRITE))
    member.apply(MAKES_STRICT, Put(b"s/k", b"new"))
    assert member.outcomes == []
    member.release(WRITE)
    assert member.outcomes == [put_at(WRITE)]


async def test_node_without_a_lease_waits_until_it_has_applied_the_write() -> None:
    """Without a lease no change of a region waits to be staged to it, so its vault may lack one."""
    member = Member(leased=False)
    member.propose(b"s/k")
    member.outcome(put_at(WRITE))
    assert member.outcomes == []
    member.apply(MAKES_STRICT, Put(b"s/k", b"new"))
    assert member.outcomes == []
    member.release(WRITE)
    assert member.outcomes == [put_at(WRITE)]


async def test_eventual_write_is_answered_at_once_if_no_prefix_changed() -> None:
    member = Member()
    member.propose(b"k")
    member.outcome(put_at(WRITE))
    assert member.outcomes == [put_at(WRITE)], "though the node has not applied it"
    fenced = Member(leased=False)
    fenced.propose(b"k")
    fenced.apply(Put(b"k", b"new"))
    fenced.outcome(put_at(REGION))
    assert fenced.outcomes == [put_at(REGION)]


async def test_write_not_applied_in_time_is_pending() -> None:
    """It is committed: never a failure (F8)."""
    member = Member(leased=False)
    ended = asyncio.Event()
    member.write(b"k", lambda outcome: (member.outcomes.append(outcome), ended.set()), 0.0).end(put_at(WRITE))
    await asyncio.wait_for(ended.wait(), 10)
    assert isinstance(member.outcomes[0], ReleasePending)


async def test_late_frame_returns_the_own_revision_or_refusal_of_each_write() -> None:
    """The second put of the series was refused (M3); a write that was released in time is no longer pending."""
    member = Member()
    member.apply(MAKES_STRICT)
    member.release(REGION)
    series = CheckedWrite(5, 3, b"", None, strict=True)
    single = CheckedWrite(8, 1, encode_command(Put(b"s/k", b"new"), None), None, strict=True)
    outcomes: dict[int, Outcome] = {}

    def tell(items: Sequence[CheckedWrite], outcome: Outcome) -> None:
        for item in items:
            assert item.number not in outcomes
            outcomes[item.number] = outcome

    first, third, last = (PUT_RESULT, WRITE), (PUT_RESULT, WRITE + 1), (PUT_RESULT, WRITE + 2)
    refused = refusal(ResultEvicted("forgotten"))
    PendingFrame([series, single], Replies(tell), 0.0, member.answers, Metrics()).end(
        Applied(9, 1, [(EACH, [first, refused, third]), last])
    )
    assert outcomes == {}
    member.apply(Put(b"s/1", b""), Put(b"s/2", b""), Put(b"s/k", b""))
    member.release(WRITE)
    await until(lambda: len(outcomes) == 4)
    applied = [outcomes[number] for number in (5, 6)]
    assert [each.results for each in applied if isinstance(each, Applied)] == [[first], [refused]]
    pending = [outcomes[number] for number in (7, 8)]
    assert [each.revision for each in pending if isinstance(each, ReleasePending)] == [WRITE + 1, WRITE + 2]


@pytest.mark.parametrize("staged", [(), (b"s/",), (b"palisade/",)])
async def test_strict_prefixes_are_the_same_object_until_they_change(staged: tuple[bytes, ...]) -> None:
    member = Member(staged=staged)
    prefixes = member.answers.prefixes
    assert set(prefixes) == {*member.log.prefixes, *staged}
    member.apply(Put(b"k", b""))
    assert member.answers.prefixes is prefixes
    member.apply(MAKES_STRICT)
    assert set(member.answers.prefixes) == {*prefixes, b"s/"}
    assert (member.answers.prefixes is prefixes) == (b"s/" in prefixes), (
        "the prefixes are not computed again without a change"
    )
