"""What `/metrics` shows of fencing (F10). Pure."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from palisade.base.metric_families import counter, counters, gauge, gauges, histogram, histograms
from palisade.fencing.messages import HolderPhase
from palisade.node.fencing.fencing_component import FencingComponent
from palisade.node.fencing.member_fencing import MemberFencing
from palisade.node.fencing.view import lease_view


def fencing_families(part: FencingComponent, now: float, member: MemberFencing | None = None) -> Iterator[Metric]:
    holder = part.holder
    if holder is not None:
        lease = lease_view(holder, now)
        states = ((state.value, state.value == lease["state"]) for state in HolderPhase)
        yield gauges("palisade_fence_state", "1 for the state of the fence.", "state", states)
        age_ms = lease["lease_age_ms"]
        yield gauge("palisade_lease_age_seconds", "Time since the lease was requested; -1: no lease.", age_of(age_ms))
        yield gauge("palisade_lease_left_seconds", "Remaining time of the lease.", lease["lease_left_ms"] / 1000)
        yield counter("palisade_fenced_seconds", "Time in which the node did not serve its vault.", holder.fenced_s)
        yield gauge("palisade_released_revision", "RR as known to this node.", lease["released"])
        yield gauge("palisade_staged_revision", "Revision up to which every strict change is staged.", lease["staged"])
        yield gauge("palisade_pending_keys", "Keys with a staged change in the vault.", lease["pending"])
        grants = sorted(holder.verdicts.items())
        yield counters("palisade_grants", "Offered leases by verdict.", "verdict", grants)
    ended = sorted(part.reads.ended.items())
    yield counters("palisade_fenced_reads", "Fenced reads over HTTP that were not answered immediately.", "end", ended)
    if member is not None:
        yield from member_families(member)


def member_families(member: MemberFencing) -> Iterator[Metric]:
    lease_server, released = member.lease_server, member.released
    yield gauge("palisade_answers_waiting", "Responses that wait for a release.", len(released))
    yield counter("palisade_answers_late", "Responses whose release came too late.", released.late)
    yield histogram("palisade_answer_wait_seconds", "Time for which responses waited for a release.", released.waits)
    waits = sorted(lease_server.waits.items())
    yield histograms("palisade_release_wait_seconds", "Time from commit to release, at the leader.", "verdict", waits)
    yield gauge(
        "palisade_changes_waiting", "Strict entries that are not released, at the leader.", lease_server.core.waiting
    )
    yield gauge("palisade_holders", "Registered holders, at the leader.", len(lease_server.core.registry))
    yield counter("palisade_leases_granted", "Leases granted, at the leader.", lease_server.granted)
    refused = sorted(lease_server.not_granted.items())
    yield counters("palisade_leases_not_granted", "Lease requests without a grant, at the leader.", "reason", refused)


def age_of(age_ms: int | None) -> float:
    return -1.0 if age_ms is None else age_ms / 1000
