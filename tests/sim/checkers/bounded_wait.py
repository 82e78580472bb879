"""A change waits at most T_proceed for its release: from its commit, or from the beginning of the leader's term (F5).

Whatever happens to holders: dead, isolated, or able to send without receiving. T_proceed is computed here by an
independent rule (T_fence * (1 + 2 rho) + margin), with the longest leases of any node of the run, by the clock of the
leader. The leader needs no quorum for it: it may release what it has committed as long as it leads. While it is stopped
(SIGSTOP) it can do nothing, so a wait counts from when it resumes; time in which it is suspended by its disk does not
count (restores 400083).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from palisade.node.config import FenceTimes
from tests.sim.backups import Base
from tests.sim.node import Host
from tests.sim.world import FENCES, Checker, World

SLACK_S = 0.05
"""Timers are set a millisecond late, and messages take a turn."""


@dataclass(slots=True)
class Leading:
    """One term of one start of a leader. `waiting`: (revision, since when, and how long its process had been suspended
    by then), all rising, and all times by its clock."""

    began: tuple[int, int]
    known: int = 0
    waiting: deque[tuple[int, float, float]] = field(default_factory=deque)


class BoundedWait(Checker):
    name = "bounded wait"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        times = FENCES if world.settings.fences_differ else (world.settings.fences,)
        self._proceed_s = max(map(proceed_s, times))
        self._leading: dict[str, Leading] = {}

    def restored(self, base: Base) -> None:
        """The first leader waits for leases unknown to the backup, as if they were of the usual length."""
        self._proceed_s = max(self._proceed_s, proceed_s(FenceTimes()))

    def turned(self, host: Host) -> None:
        if host.follows:
            return
        core = host.node.fencing.lease_server.core
        began = (host.starts, core.term) if core.leads else None
        leading = self._leading.get(host.id)
        if leading is not None and leading.began[0] == host.starts:
            self._look(host, leading)
        if began is None:
            self._leading.pop(host.id, None)
            return
        if leading is None or leading.began != began:
            leading = self._leading[host.id] = Leading(began)
        self._note(host, leading, core.lm, core.rr)

    def _note(self, host: Host, leading: Leading, committed: int, released: int | None) -> None:
        if committed > leading.known:
            leading.known = committed
            leading.waiting.append((committed, now_s(host), stood_s(host)))
        while leading.waiting and released is not None and leading.waiting[0][0] <= released:
            leading.waiting.popleft()

    def _look(self, host: Host, leading: Leading) -> None:
        """Revisions that have waited until now, whether they are released in this turn or not."""
        if not leading.waiting or host.process is None:
            return
        revision, since, stood = leading.waiting[0]
        waited = now_s(host) - max(since, host.process.resumed_at) - (stood_s(host) - stood)
        if waited > self._proceed_s + SLACK_S:
            self.fail(
                f"revision {revision} has waited {waited:.3f} s for its release by {host.id} in term "
                f"{leading.began[1]}, and T_proceed is {self._proceed_s:.3f} s"
            )


def now_s(host: Host) -> float:
    return 0.0 if host.process is None else host.process.now()


def stood_s(host: Host) -> float:
    return 0.0 if host.process is None else host.process.stood_s


def proceed_s(times: FenceTimes) -> float:
    return times.lease_s * (1 + 2 * times.drift) + times.margin_s
