"""Which answers wait for their release, where what is strict changes while a write is on its way (issue 4, F3, F5)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from metastore.codec import encode_command
from metastore.errors import ResultEvicted
from metastore.limits import Limits
from metastore.machine import MetaStore
from metastore.memory_map import MemoryMap
from metastore.requests import Put
from metastore.result_codec import EACH, PUT, refusal
from node.fencing.region_book import regions_of
from node.stream.checks import Checked, checked
from node.stream.strict import when_released
from raftgroup.proposals import Applied
from service.fencing_errors import ReleasePending
from service.ports import Done, Outcome
from service.release_waiters import Released
from service.strict_changes import StrictLog
from service.strict_responses import StrictAnswers
from tests.support.waiting import until
from vault.regions import Mode, Policy, Region, pack_region, region_key

MAKES_STRICT = Put(region_key("s"), pack_region(Region("s", b"s/", Mode.STRICT, Policy.FAIL_CLOSED)))
BEFORE, REGION, WRITE = 2, 3, 4
"""Revisions: of a write before, of the change of the region, of the write that overlaps with it."""


@dataclass
class Member:
    """A member with its store, which applies what it is told to; nothing is released but what is."""

    leased: bool = True
    staged: tuple[bytes, ...] = ()
    told: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MetaStore(MemoryMap())
        self.log = StrictLog(self.store.bodies, lambda: regions_of(self.store), self.store.revision)
        self.released = Released(self.log, asyncio.get_running_loop().time)
        self.store.on_applied = self._applied
        self.answers = StrictAnswers(
            self.released, str, lambda: True, staged=lambda: self.staged, holds_lease=lambda: self.leased
        )
        self.release(1)
        self.apply(Put(b"e", b""))
        self.release(BEFORE)

    def _applied(self, changed: Sequence[bytes], before: int) -> None:
        self.log.applied(changed, before, self.store.revision)
        self.released.wake()

    def apply(self, *requests: Put) -> None:
        index, term = self.store.applied
        self.store.apply(index + 1, term or 1, [0, 0], [encode_command(each, None) for each in requests])

    def release(self, revision: int) -> None:
        self.log.release(revision)
        self.released.wake()

    def propose(self, key: bytes, timeout_s: float = 60.0) -> None:
        """Kept in `outcome` until it is called with what the leader said."""
        self.outcome = self.answers.held(Put(key, b"new"), self.told.append, timeout_s)

    def propose_frame(self, *keys: bytes) -> None:
        """Over the stream."""
        found: list[Checked] = []
        for number, key in enumerate(keys):
            found += checked(number, encode_command(Put(key, b"new"), None), Limits(), self.answers)
        self.outcome = when_released(self.answers, found, 60.0, lambda items: lambda outcome: self.told.append(outcome))


def put_at(*revisions: int) -> Applied:
    return Applied(9, 1, [(PUT, revision) for revision in revisions])


async def test_a_write_whose_prefix_becomes_strict_in_front_of_it_waits_for_its_release() -> None:
    """It was eventual when it was proposed: answered at its commit, its client would hear of a change that others
    do not show yet."""
    member = Member()
    member.propose(b"s/k")
    member.apply(MAKES_STRICT, Put(b"s/k", b"new"))
    member.outcome(put_at(WRITE))
    assert member.told == []
    member.release(REGION)
    assert member.told == []
    member.release(WRITE)
    assert member.told == [put_at(WRITE)]


async def test_over_the_stream_too_and_what_is_eventual_still_does_not_wait() -> None:
    member = Member()
    member.propose_frame(b"s/k", b"other")
    member.apply(MAKES_STRICT, Put(b"s/k", b"new"), Put(b"other", b"new"))
    member.outcome(put_at(WRITE, WRITE + 1))
    assert member.told == [put_at(WRITE + 1)]
    member.release(WRITE)
    assert member.told == [put_at(WRITE + 1), put_at(WRITE)]


async def test_a_node_that_forwards_looks_at_what_its_vault_was_staged() -> None:
    """The leader's answer comes before the node has applied the change of the region."""
    member = Member()
    member.propose(b"s/k")
    member.staged = (b"s/",)
    member.outcome(put_at(WRITE))
    member.apply(MAKES_STRICT, Put(b"s/k", b"new"))
    assert member.told == []
    member.release(WRITE)
    assert member.told == [put_at(WRITE)]


async def test_a_node_that_holds_no_lease_waits_until_it_has_applied_the_write() -> None:
    """Nobody waits for it to be staged a change of a region, so its vault may know of none."""
    member = Member(leased=False)
    member.propose(b"s/k")
    member.outcome(put_at(WRITE))
    assert member.told == []
    member.apply(MAKES_STRICT, Put(b"s/k", b"new"))
    assert member.told == []
    member.release(WRITE)
    assert member.told == [put_at(WRITE)]


async def test_where_nothing_has_changed_an_eventual_write_is_answered_at_once() -> None:
    member = Member()
    member.propose(b"k")
    member.outcome(put_at(WRITE))
    assert member.told == [put_at(WRITE)], "though the node has not applied it"
    fenced = Member(leased=False)
    fenced.propose(b"k")
    fenced.apply(Put(b"k", b"new"))
    fenced.outcome(put_at(REGION))
    assert fenced.told == [put_at(REGION)]


async def test_a_write_that_is_not_applied_in_time_is_said_to_be_pending() -> None:
    """It is committed: never a failure (F8)."""
    member = Member(leased=False)
    told = asyncio.Event()
    outcome = member.answers.held(
        Put(b"k", b"new"), lambda outcome: (member.told.append(outcome), told.set()), timeout_s=0.0
    )
    outcome(put_at(WRITE))
    await asyncio.wait_for(told.wait(), 10)
    assert isinstance(member.told[0], ReleasePending)


async def test_of_a_frame_that_is_late_each_write_is_told_its_own_revision_and_a_refusal_as_it_is() -> None:
    """The second put of the series was refused (M3); what was released in time is no longer pending."""
    member = Member()
    member.apply(MAKES_STRICT)
    member.release(REGION)
    series = Checked(5, 3, b"", None, strict=True)
    single = Checked(8, 1, encode_command(Put(b"s/k", b"new"), None), None, strict=True)
    told: dict[int, Outcome] = {}

    def done(items: Sequence[Checked]) -> Done:
        def tell(outcome: Outcome) -> None:
            for item in items:
                assert item.number not in told
                told[item.number] = outcome

        return tell

    first, third, last = (PUT, WRITE), (PUT, WRITE + 1), (PUT, WRITE + 2)
    refused = refusal(ResultEvicted("forgotten"))
    tell = when_released(member.answers, [series, single], 0.0, done)
    tell(Applied(9, 1, [(EACH, [first, refused, third]), last]))
    assert told == {}
    member.apply(Put(b"s/1", b""), Put(b"s/2", b""), Put(b"s/k", b""))
    member.release(WRITE)
    await until(lambda: len(told) == 4)
    assert [told[number].results for number in (5, 6) if isinstance(told[number], Applied)] == [[first], [refused]]
    pending = [told[number] for number in (7, 8)]
    assert [each.revision for each in pending if isinstance(each, ReleasePending)] == [WRITE + 1, WRITE + 2]


@pytest.mark.parametrize("staged", [(), (b"s/",), (b"palisade/",)])
async def test_the_prefixes_are_the_same_object_as_long_as_nothing_has_changed(staged: tuple[bytes, ...]) -> None:
    member = Member(staged=staged)
    prefixes = member.answers.prefixes
    assert set(prefixes) == {*member.log.prefixes, *staged}
    member.apply(Put(b"k", b""))
    assert member.answers.prefixes is prefixes
    member.apply(MAKES_STRICT)
    assert set(member.answers.prefixes) == {*prefixes, b"s/"}
    assert (member.answers.prefixes is prefixes) == (b"s/" in prefixes), "nobody looks again for nothing"
