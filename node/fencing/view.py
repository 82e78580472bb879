"""The fencing state of a node: its own lease, and, on the leader, every holder and every pending change. Pure.

Times are durations in milliseconds: a point in time would be one of this node's own clock.
"""

from __future__ import annotations

from typing import Any

from palisade.fencing.registry import Holding
from palisade.fencing.release import Releases, ReleaseWait
from palisade.node.fencing.fencing_component import FencingComponent
from palisade.node.fencing.leader_connection import LeaderLink
from palisade.node.fencing.lease_client import LeaseClient
from palisade.node.fencing.member_fencing import MemberFencing


def fencing_view(part: FencingComponent, now: float, member: MemberFencing | None = None) -> dict[str, Any]:
    """Shape `Fencing` of the API. `leader`: null on a node that does not lead, which knows nothing of other holders."""
    holder, leader = part.holder, member.lease_server.core if member is not None else None
    return {
        "node": part.node,
        "lease": lease_view(holder, now) if holder is not None else None,
        "link": link_view(part.link),
        "timing": {
            "fence_ms": millis(part.timing.fence_s),
            "renew_ms": millis(part.timing.renew_every_s),
            "proceed_ms": millis(part.timing.proceed_s()),
        },
        "member": member_view(member) if member is not None else None,
        "leader": leader_view(leader, now) if leader is not None and leader.leads else None,
    }


def lease_view(holder: LeaseClient, now: float) -> dict[str, Any]:
    """Its own lease. `why_not`: why it does not serve, as text."""
    core, vault = holder.core, holder.vault
    age, serves = core.lease_age(now), core.serves(now)
    state = core.state.value
    return {
        "state": "fenced" if state == "active" and not serves else state,
        "serves": serves,
        "why_not": None if serves else holder.why or "its lease has run out",
        "incarnation": holder.incarnation,
        "term": core.term,
        "lease_age_ms": None if age is None else millis(age),
        "lease_left_ms": millis(max(0.0, core.deadline - now)) if serves else 0,
        "released": core.released,
        "staged": core.staged,
        "applied": vault.revision,
        "pending": len(vault.staging.pending),
        "listener_failure": core.last_failure,
        "fenced_s": round(holder.fenced_s, 3),
    }


def link_view(link: LeaderLink | None) -> dict[str, Any]:
    """`to`: the stream address of the leader; empty where it is this node; null while there is none."""
    at = link.at if link is not None else None
    return {"to": at, "trouble": None if at is not None or link is None else link.trouble}


def member_view(member: MemberFencing) -> dict[str, Any]:
    """`released`: the revision up to which this member serves; `waiting`: responses that wait for a release here."""
    return {
        "latest": member.log.latest,
        "released": member.log.point,
        "waiting": len(member.released),
        "strict_prefixes": [prefix.decode(errors="replace") for prefix in member.log.prefixes],
    }


def leader_view(core: Releases, now: float) -> dict[str, Any]:
    return {
        "term": core.term,
        "latest": core.lm,
        "released": core.rr,
        "holders": [holder_view(held, core.strict_latest, now) for held in core.registry],
        "waits": [wait_view(wait, now) for wait in core.waits(now)],
        "waiting": core.waiting,
    }


def holder_view(held: Holding, strict_latest: int, now: float) -> dict[str, Any]:
    """`proceed_ms`: how long after a grant a strict change waits for it at most. `until_ms`: how long it may still
    serve by its granted leases; null if unknown. `said`: old name of `reported_state` (docs/vocabulary.md)."""
    safe_at = held.safe_at(now)
    reported = held.reported_state.value if held.reported_state is not None else None
    return {
        "node": held.registration.node,
        "incarnation": held.incarnation,
        "vault": held.registration.vault,
        "fences": held.registration.fences,
        "lease_ms": millis(held.registration.lease_s),
        "proceed_ms": millis(held.proceed_s),
        "leaving": held.leaving,
        "staged": held.staged,
        "behind": max(0, strict_latest - held.staged),
        "heard_ms": since(held.heard_at, now),
        "granted_ms": since(held.granted_at, now),
        "promised": held.fenced_at is not None,
        "reported_state": reported,
        "said": reported,
        "until_ms": left(safe_at, now),
    }


def wait_view(wait: ReleaseWait, now: float) -> dict[str, Any]:
    verdict = wait.verdict
    return {
        "first": wait.first,
        "last": wait.last,
        "waited_ms": millis(now - wait.since),
        "verdict": verdict.outcome.value,
        "until_ms": left(verdict.until, now),
        "waits_for": [
            {"node": each.node, "reason": each.reason, "until_ms": left(each.until, now)} for each in verdict.waits_for
        ],
    }


def millis(seconds: float) -> int:
    return int(seconds * 1000)


def since(at: float | None, now: float) -> int | None:
    return None if at is None else millis(now - at)


def left(until: float | None, now: float) -> int | None:
    return None if until is None else millis(max(0.0, until - now))
