"""A write from its proposal to its response, as one object: proposed, applied, released, answered.

A write or read that touches no strict region costs one check of its key. Any other response waits for the release:
after it, no node serves a value that the write has replaced.

Whether a write touches a strict region is decided when it is proposed. A prefix may become strict while the write is
under way, and the regions at the revision of the write count. Thus it is decided again when the write is applied,
unless nothing has changed; and nothing can have changed unnoticed on a node that has applied that revision, or that
holds a lease: a region takes effect only once every holder has staged it (`StrictResponses.knows`). The change of a
region itself waits for writes that were answered before, or by other nodes (`RegionAdmin`).

A response leaves once this node knows that every strict change up to its revision is released; so each node answers for
itself, under any leader. A write that is not released by its deadline, which counts from the proposal, is answered as
pending: it is committed and stays committed (F8).
"""

from __future__ import annotations

import asyncio
import enum
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Protocol

from palisade.base.key_text import key_text
from palisade.base.metrics import Histogram, Metrics
from palisade.metastore.changes import AppliedEntry, StoreListener
from palisade.metastore.command_codec import decode_result, revision_of
from palisade.metastore.requests import Command, Put, Range, RequestId, prefix_end
from palisade.raftgroup.errors import RaftError
from palisade.raftgroup.proposals import Applied, Proposal
from palisade.service.retry_check import check_answers
from palisade.service.strict_changes import StrictBatch, StrictLog
from palisade.service.strict_commands import OWN, Prefixes, deletes_around_own, is_strict, writes_own
from palisade.wire.fencing_errors import ReadPending, ReleaseError, ReleasePending, ReservedKey

SWEEP_S = 0.05
_REVISION = itemgetter(0)
OWN_KEYS = Range(OWN, prefix_end(OWN), limit=1, keys_only=True)

Outcome = Applied | RaftError | ReleaseError
"""Of a write. ReleaseError: applied, and not released in time."""
OnReached = Callable[[bool], None]
"""Whether it was reached in time."""
Reply = Callable[[Any], None]
"""Called once with the result (`metastore.results`) or an exception."""


class Waiting:
    """Callbacks that wait until a point, which never goes back, reaches a revision. `reached`: where it is now."""

    def __init__(self, now: Callable[[], float], reached: int) -> None:
        self._reached = reached
        self.now = now
        self._waiting: list[tuple[int, float, float, OnReached]] = []
        """By revision; those of one revision in order of arrival."""
        self._sweeper: asyncio.TimerHandle | None = None
        self.waits = Histogram((0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 2.0, 4.0))
        self.late = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def is_reached(self, revision: int) -> bool:
        return revision <= self._reached

    def when(self, revision: int, until: float, on_reached: OnReached) -> None:
        """Call `on_reached` once, at once if `revision` is reached already. `until`: by the clock `now`."""
        if revision <= self._reached:
            on_reached(True)
            return
        waiting = self._waiting
        entry = (revision, until, self.now(), on_reached)
        if not waiting or revision >= waiting[-1][0]:
            waiting.append(entry)
        else:
            waiting.insert(bisect_right(waiting, revision, key=_REVISION), entry)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    async def until(self, revision: int, timeout_s: float) -> bool:
        """Whether it was reached in time."""
        if revision <= self._reached:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def on_reached(in_time: bool) -> None:
            if not future.done():
                future.set_result(in_time)

        self.when(revision, self.now() + timeout_s, on_reached)
        return await future

    def move_to(self, point: int) -> None:
        """Call what has waited for it; nothing if the point is there already, or has gone back."""
        if point > self._reached:
            self._reached = point
        if not self._waiting or self._waiting[0][0] > self._reached:
            return
        reached = bisect_right(self._waiting, self._reached, key=_REVISION)
        now, waited, observe = self.now(), self._waiting[:reached], self.waits.observe
        del self._waiting[:reached]
        for _, _, began, on_reached in waited:
            observe(now - began)
            on_reached(True)

    def _sweep(self) -> None:
        now = self.now()
        late = [each for each in self._waiting if each[1] <= now]
        if late:
            self._waiting = [each for each in self._waiting if each[1] > now]
            self.late += len(late)
            for _, _, _, on_reached in late:
                on_reached(False)
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep) if self._waiting else None


class ReleaseWaiters(Waiting, StoreListener):
    """The responses that wait for the releases of `log`; one of the store's listeners. `to_apply`: those that wait
    until this node has applied an entry."""

    def __init__(self, log: StrictLog, now: Callable[[], float]) -> None:
        super().__init__(now, log.point)
        self.log = log
        self.to_apply = Waiting(now, log.latest)
        self._committed: Callable[[StrictBatch], None] | None = None

    def pass_on(self, committed: Callable[[StrictBatch], None]) -> None:
        """Calls `committed` with the strict changes of each entry, before anything that depends on it leaves this node.
        Once."""
        if self._committed is not None:
            raise RuntimeError("strict changes are passed on already")
        self._committed = committed

    def applied(self, changes: AppliedEntry) -> None:
        batch = self.log.applied(changes.keys, changes.before, changes.revision)
        if batch.keys and self._committed is not None:
            self._committed(batch)
        self.wake()

    def reloaded(self) -> None:
        self.log.reset()
        self.wake()

    def wake(self) -> None:
        """Call it whenever `log` has changed."""
        self.to_apply.move_to(self.log.latest)
        self.move_to(self.log.point)

    def release(self, revision: int) -> None:
        """RR is at least `revision`."""
        if self.log.release(revision):
            self.wake()


class LeaseHolder(Protocol):
    @property
    def prefixes(self) -> Prefixes:
        """The strict prefixes that the vault of this node knows."""
        ...

    @property
    def serves(self) -> bool:
        """Whether a lease is held."""
        ...


class OwnLease:
    """The lease of this node, which is read for every write. `holder`: None until the vault of this node is open."""

    __slots__ = ("holder",)

    def __init__(self, holder: LeaseHolder | None = None) -> None:
        self.holder = holder

    def opened(self, holder: LeaseHolder) -> None:
        """The vault of this node is open."""
        self.holder = holder


class StrictResponses:
    """`waits_for`: for which nodes the oldest change waits, as text. `has_own`: whether the cluster has keys of its
    own. `lease`: of this node, whose vault may have staged more than this node has applied."""

    def __init__(
        self,
        released: ReleaseWaiters,
        waits_for: Callable[[], str],
        has_own: Callable[[], bool],
        lease: OwnLease,
    ) -> None:
        self.released = released
        self._waits_for = waits_for
        self._has_own = has_own
        self.lease = lease
        self._sources: tuple[Prefixes, Prefixes] = ((), ())
        self._prefixes: Prefixes = (OWN,)

    @property
    def prefixes(self) -> Prefixes:
        """Every strict key begins with one of them, and so does every key of the cluster's own. The same object while
        nothing has changed."""
        applied, holder = self.released.log.prefixes, self.lease.holder
        staged = holder.prefixes if holder is not None else ()
        if applied is not self._sources[0] or staged is not self._sources[1]:
            self._sources = applied, staged
            union = tuple(dict.fromkeys((OWN, *applied, *staged)))
            self._prefixes = self._prefixes if union == self._prefixes else union
        return self._prefixes

    # Writes

    def classify(self, request: Any, *, own: bool) -> bool:
        """Whether the request touches a strict region. `own`: it may write the cluster's own keys, which are strict.

        Raises ReservedKey."""
        if type(request) is Put:
            touched = request.key.startswith(self.prefixes)
            reserved = request.key if touched and not own and request.key.startswith(OWN) else None
        else:
            touched = is_strict(request, self.prefixes)
            reserved = writes_own(request, self._has_own) if touched and not own else None
        if reserved is not None:
            around = "; delete the keys before and after them" if deletes_around_own(request) else ""
            raise ReservedKey(
                f"{key_text(reserved)}: keys under {OWN.decode()} are the cluster's own. Use /v1/regions and "
                f"/v1/catalog, or 'palisade region' and 'palisade catalog'{around}"
            )
        return touched

    def knows(self, prefixes: Prefixes, applied: Applied) -> bool:
        """Whether exactly these were strict at the revisions of `applied`."""
        if self.prefixes is not prefixes:
            return False
        return applied.here or ((holder := self.lease.holder) is not None and holder.serves)

    def when_applied(self, applied: Applied, until: float, on_reached: OnReached) -> None:
        self.released.to_apply.when(last_revision(applied), until, on_reached)

    def when_released(self, applied: Applied, until: float, on_reached: OnReached) -> None:
        self.released.when(last_revision(applied), until, on_reached)

    def outcome_at_deadline(self, applied: Applied) -> Applied | ReleasePending:
        """The outcome of one write at its deadline: pending unless it is released or was refused."""
        return applied if self.released.is_reached(last_revision(applied)) else self.late(applied)

    def late(self, applied: Applied) -> ReleasePending:
        return self.pending(last_revision(applied))

    def pending(self, revision: int) -> ReleasePending:
        return ReleasePending.of(revision, self._waits_for())

    # Reads

    def is_pending(self, request: Any) -> bool:
        """Whether what it reads has a strict change that is not released. Call it in the turn that reads."""
        log = self.released.log
        if log.settled:
            return False
        if isinstance(request, Range):
            return log.is_pending(request.key, request.range_end)
        return is_strict(request, self.prefixes)

    async def seen(self, revision: int, timeout_s: float) -> None:
        """Wait until everything up to `revision` is released. Raises ReadPending."""
        if not await self.released.until(revision, timeout_s):
            raise ReadPending(
                f"the result has a strict change up to revision {revision} that is not released yet"
                f"{self._waits_for()}: read again in a moment"
            )


def last_revision(applied: Applied) -> int:
    results = applied.results
    return revision_of(results[0]) if len(results) == 1 else max(map(revision_of, results), default=0)


class WriteState(enum.Enum):
    """UNSURE: applied by the leader; whether it is strict is decided once this node has applied it. HELD: waits for its
    release."""

    PROPOSED = enum.auto()
    UNSURE = enum.auto()
    HELD = enum.auto()


class HeldProposal(Proposal):
    """`strict`: None without fencing. `all_strict`: every part of it waits for its release. `prefixes`: the strict ones
    when that was decided. `until`: by the clock of `strict`."""

    __slots__ = ("all_strict", "applied", "prefixes", "state", "strict", "until")

    def __init__(
        self,
        commands: Sequence[bytes],
        timeout_s: float,
        strict: StrictResponses | None,
        all_strict: bool,
        weight: int | None = None,
    ) -> None:
        super().__init__(commands, timeout_s, weight)
        self.state = WriteState.PROPOSED
        self.applied: Applied | None = None
        self.strict, self.all_strict = strict, all_strict
        self.prefixes: Prefixes = ()
        self.until = 0.0
        if strict is not None:
            self.prefixes = strict.prefixes
            self.until = strict.released.now() + timeout_s

    def ended(self, outcome: Applied | RaftError) -> None:
        strict = self.strict
        if not isinstance(outcome, Applied) or strict is None:
            self.answer(outcome)
            return
        self.applied = outcome
        if self.all_strict or strict.knows(self.prefixes, outcome):
            self.release(outcome, strict)
        else:
            self.state = WriteState.UNSURE
            strict.when_applied(outcome, self.until, self.reached)

    def reached(self, in_time: bool) -> None:
        """Applied by this node, or released. Without `in_time` the deadline has passed."""
        applied, strict = self.applied, self.strict
        if applied is None or strict is None:
            return
        if not in_time:
            self.late(applied, strict)
        elif self.state is WriteState.UNSURE:
            self.decide_again(strict.prefixes)
            self.release(applied, strict)
        else:
            self.answer(applied)

    def release(self, applied: Applied, strict: StrictResponses) -> None:
        """Answer the parts that touch no strict region; hold the rest."""
        if self.all_strict:
            self.state = WriteState.HELD
            strict.when_released(applied, self.until, self.reached)
        else:
            self.answer(applied)

    def late(self, applied: Applied, strict: StrictResponses) -> None:
        self.answer(strict.late(applied))

    @abstractmethod
    def decide_again(self, prefixes: Prefixes) -> None:
        """The write is applied by this node."""

    @abstractmethod
    def answer(self, outcome: Outcome) -> None:
        """Called once for each part."""


class PendingWrite(HeldProposal):
    """One request."""

    __slots__ = ("_began", "_metrics", "_reply", "request", "request_id")

    def __init__(
        self,
        command: bytes,
        request: Command,
        request_id: RequestId | None,
        reply: Reply,
        timeout_s: float,
        strict: StrictResponses | None,
        all_strict: bool,
        metrics: Metrics,
    ) -> None:
        super().__init__((command,), timeout_s, strict, all_strict)
        self.request, self.request_id = request, request_id
        self._reply, self._metrics, self._began = reply, metrics, metrics.now()

    def decide_again(self, prefixes: Prefixes) -> None:
        self.all_strict = is_strict(self.request, prefixes)

    def answer(self, outcome: Outcome) -> None:
        metrics = self._metrics
        metrics.write_latency.observe(metrics.now() - self._began)
        if isinstance(outcome, Applied):
            metrics.applied += 1
            try:
                result = decode_result(outcome.results[0])
                if self.request_id is not None:
                    check_answers(result, self.request, self.request_id)
            except Exception as error:
                result = error
            self._reply(result)
            return
        if isinstance(outcome, RaftError):
            metrics.failed(outcome)
        self._reply(outcome)
