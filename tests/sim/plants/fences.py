"""Faults of fencing: grants, releases, what may be read, and procedures that count on them."""

from __future__ import annotations

from fencing.registry import Registry
from fencing.release import Releases
from node.catalog.store import NodeStore
from node.fencing.grantor import Grantor
from node.fencing.holder import VaultHolder
from node.fencing.released import Released
from node.fencing.strict_answers import StrictAnswers
from tests.sim.faults import Fault, Kind
from tests.sim.plants.plant import LEADERS_CUT_OFF, Patch, Stage, caught_by, with_faults

FOLLOWER_CUT_OFF = with_faults(*(Fault(2.0 + 5.0 * number, Kind.ISOLATE, "f1", "n1", 3.5) for number in range(4)))
FOLLOWER_STOPS = with_faults(*(Fault(2.0 + 4.0 * number, Kind.STOP, "f1", "n1", 1.0) for number in range(5)))


@caught_by("fenced reads", on=FOLLOWER_CUT_OFF)
def strict_writes_answered_at_commit(patch: Patch) -> None:
    async def at_once(self: Released, revision: int, timeout_s: float) -> bool:
        return True

    patch.setattr(Released, "when", lambda self, revision, until, told: told(True))
    patch.setattr(Released, "until", at_once)


@caught_by("lease safety", "fenced reads", on=FOLLOWER_CUT_OFF)
def releases_without_a_verdict(patch: Patch) -> None:
    """No holder is waited for."""
    patch.setattr(Registry, "safe_up_to", lambda self, now, latest: latest)
    patch.setattr(Registry, "blocks", lambda self, revision, now, latest: False)


@caught_by("lease safety", on=FOLLOWER_STOPS)
def pages_that_stay_active(patch: Patch) -> None:
    patch.setattr(VaultHolder, "_refuse", lambda self, why, state=None: None)


@caught_by("lease safety", on=LEADERS_CUT_OFF)
def grants_without_the_quorum_lease(patch: Patch) -> None:
    grant_all = Grantor._grant_all

    def granted(self: Grantor, now: float) -> None:
        self._lease_holds = lambda: True
        grant_all(self, now)

    patch.setattr(Grantor, "_grant_all", granted)
    patch.setattr(Grantor, "end_term", lambda self: None)


@caught_by("fenced reads", on=Stage("many", 7))
def reads_of_what_is_not_released(patch: Patch) -> None:
    patch.setattr(StrictAnswers, "is_pending", lambda self, request: False)


@caught_by("procedures", on=FOLLOWER_CUT_OFF)
def procedures_that_do_not_wait(patch: Patch) -> None:
    """They go on from PREPARED as soon as that is committed (F8)."""

    async def at_once(self: NodeStore, revision: int) -> None:
        return

    patch.setattr(NodeStore, "released", at_once)


@caught_by("liveness")
def releases_that_never_come(patch: Patch) -> None:
    advance = Releases.advance

    def stuck(self: Releases, now: float) -> int | None:
        return None if self.rr is not None and self.lm > 20 else advance(self, now)

    patch.setattr(Releases, "advance", stuck)
