"""`python -m tests.support.planted_fence FAULT MODULE ...`: runs MODULE (a node, or a copy of a journal) with a
fault planted in its fencing, in its watches, or in the lease of its role.

They prove that the checkers over the results of clients find the faults that they are for. `stages_lost` and
`deaf_leader` are faults of the environment and not of the product, and must do no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import palisade.client.lease
import palisade.fencing.registry
import palisade.journal.active
import palisade.raftgroup.library
from palisade.api.stream.watches import StreamWatch
from palisade.fencing.lease import FenceLease, GrantVerdict
from palisade.fencing.messages import GrantMessage, StageMessage
from palisade.fencing.release import Releases
from palisade.node.fencing.lease_client import LeaseClient
from palisade.service.pending_write import StrictResponses
from palisade.vault.regions import Regions
from tests.support.planting import data_dir, named, run_planted


def release_without_stage() -> None:
    """The leader waits for no holder."""
    registry: Any = palisade.fencing.registry.Registry
    registry.safe_up_to = lambda self, now, latest: latest
    registry.blocks = lambda self, revision, now, latest: False


def answer_at_commit() -> None:
    """A strict write is acknowledged like any other, at its commit."""
    answers: Any = StrictResponses
    answers.knows = lambda self, prefixes: True
    answers.when_released = lambda self, applied, until, on_reached: on_reached(True)


def stages_lost() -> None:
    """The holder receives everything but stages, once it has joined: its heartbeats continue (F11)."""
    holder: Any = LeaseClient
    deliver = holder.deliver

    def lossy(self: Any, message: Any) -> None:
        if not (isinstance(message, StageMessage) and message.rows and self.core.joined):
            deliver(self, message)

    holder.deliver = lossy


def stages_lost_later() -> None:
    """As `stages_lost`, while the file of `is_broken` exists."""
    _lossy_holder(lambda message: isinstance(message, StageMessage) and bool(message.rows))


def grants_lost_later() -> None:
    """The reverse: stages arrive and renewals reach the leader; the leader's grants are lost."""
    _lossy_holder(lambda message: isinstance(message, GrantMessage))


def _lossy_holder(is_lost: Callable[[Any], bool]) -> None:
    holder: Any = LeaseClient
    deliver = holder.deliver

    def lossy(self: Any, message: Any) -> None:
        if not (is_lost(message) and is_broken().exists()):
            deliver(self, message)

    holder.deliver = lossy


def is_broken() -> Path:
    """Beside the data folder of this node: exists while messages are lost."""
    return broken_file(data_dir())


def broken_file(data_dir: str) -> Path:
    return Path(f"{data_dir}.broken")


def lease_from_receipt() -> None:
    """A lease runs from the arrival of its grant, not from the request."""
    lease: Any = FenceLease
    offer = lease.offer

    def from_now(self: Any, grant: GrantMessage, now: float, staged: int) -> GrantVerdict:
        asked, not_before = self._asked, self._not_before
        if grant.t0 <= not_before or grant.t0 > asked:
            return offer(self, grant, now, staged)
        self._asked = max(asked, now)
        verdict = offer(self, replace(grant, t0=now), now, staged)
        self._asked = asked
        return verdict

    lease.offer = from_now


def deaf_leader() -> None:
    """A leader does not step down by itself without a majority: only its quorum lease expires."""
    engine: Any = palisade.raftgroup.library
    made = engine._configuration

    def patient(timing: Any) -> Any:
        found = made(timing)
        found.leaderFallbackTimeout = 3600.0
        return found

    engine._configuration = patient


def grant_without_quorum() -> None:
    """A leader grants as long as it counts as leader by its own state. It steps down so soon that this alone would not
    show."""
    deaf_leader()
    releases: Any = Releases
    renew = releases.renew
    releases.renew = lambda self, holder, asked, now, *, quorum_lease: renew(
        self, holder, asked, now, quorum_lease=True
    )


def ignore_required() -> None:
    """A holder takes grants that require more than it has staged."""
    lease: Any = FenceLease
    judge = lease._judge
    lease._judge = lambda self, grant, now, staged: judge(self, grant, now, grant.required)


def long_leases() -> None:
    """The fence page of a node serves 5 s longer than its lease."""
    lease: Any = FenceLease
    deadline = lease.deadline
    lease.deadline = property(lambda self: deadline.fget(self) + 5.0)
    client: Any = LeaseClient
    client.recovering = lambda self, begins: setattr(self, "caught_up", True)


def ranges_of_two_revisions() -> None:
    """Strict keys as of RR beside others as of LV, as of one revision: what a removed member answered (issue 16)."""
    regions: Any = Regions
    regions.all_strict = regions.has_strict


def silent_watches() -> None:
    """A watch of the stream sends one batch, and then nothing, no progress either. n1 is sound: one correct member must
    not hide the fault."""
    if "--id=n1" in sys.argv:
        return
    pump: Any = StreamWatch
    room = pump._room

    async def once(self: Any, writable: asyncio.Event) -> None:
        if hasattr(self, "has_run"):
            await asyncio.Event().wait()
        self.has_run = True
        await room(self, writable)

    pump._room = once


def journal_past_its_lease() -> None:
    """The active copy of a journal answers as long as it is connected, whatever became of its lease."""
    active: Any = palisade.journal.active.Active
    active.in_time = property(lambda self: True)
    lease: Any = palisade.client.lease.Lease
    lease.guarded = lambda self: contextlib.nullcontext()


FAULTS = named(
    release_without_stage,
    answer_at_commit,
    stages_lost,
    stages_lost_later,
    grants_lost_later,
    deaf_leader,
    lease_from_receipt,
    grant_without_quorum,
    ignore_required,
    silent_watches,
    long_leases,
    ranges_of_two_revisions,
    journal_past_its_lease,
)


if __name__ == "__main__":
    run_planted(FAULTS)
