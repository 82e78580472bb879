"""Contradictions between members, segments and journals of a running cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from palisade.base.digest import BUCKETS, DIGEST_BYTES
from palisade.catalog.activation import ActivationRecord, LocalSequence, Stop, decide
from palisade.pipeline.audit.findings import Finding, FindingKind

SHOWN = 8
NOT_ANNOUNCED = {
    "missing": "it is used and was loaded, and no node announces it: queries of its interval are UNAVAILABLE",
    "loading": "it is used, and no node has announced it since it was published: queries do not count on it yet",
}
"""By the state of the segment."""


class MemberDigest(NamedTuple):
    """Of one member; `problem`: why there is none."""

    member: str
    revision: int = 0
    chain: bytes = b""
    buckets: bytes = b""
    problem: str = ""


class SegmentRow(NamedTuple):
    segment: str
    state: str
    nodes: tuple[str, ...]


class CopyRow(NamedTuple):
    """A copy of a role; `problem`: why it could not be read."""

    role: str
    place: str
    local: LocalSequence | None = None
    active: bool = False
    filling: bool = False
    problem: str = ""


def divergence(digests: Iterable[MemberDigest]) -> Iterator[Finding]:
    """Members whose chain or bucket digests differ at the same revision. Other revisions can't be compared."""
    at: dict[int, list[MemberDigest]] = {}
    for each in digests:
        if not each.problem:
            at.setdefault(each.revision, []).append(each)
    for revision, (first, *others) in sorted(at.items()):
        for other in others:
            if other.chain == first.chain and other.buckets == first.buckets:
                continue
            differ = different_buckets(first.buckets, other.buckets)
            where = f"buckets {differ[:SHOWN]}, {len(differ)} in all" if differ else "the digest chain only"
            text = f"{first.member} and {other.member} differ at revision {revision}: {where}"
            yield Finding(FindingKind.DIVERGENCE.value, other.member.encode(), revision, "", 0, text)


def different_buckets(one: bytes, other: bytes) -> list[int]:
    size = DIGEST_BYTES
    return [n for n in range(BUCKETS) if one[n * size : (n + 1) * size] != other[n * size : (n + 1) * size]]


def compared(digests: Sequence[MemberDigest]) -> int:
    """The number of members at the most frequent revision."""
    revisions = [each.revision for each in digests if not each.problem]
    return max((revisions.count(revision) for revision in revisions), default=0)


def unannounced(segments: Iterable[SegmentRow], revision: int) -> Iterator[Finding]:
    for each in segments:
        if each.state in NOT_ANNOUNCED:
            yield Finding(
                FindingKind.UNANNOUNCED.value, each.segment.encode(), revision, "", 0, NOT_ANNOUNCED[each.state]
            )  # fmt: skip


def misaligned(role: str, record: ActivationRecord | None, epoch: int, copies: Sequence[CopyRow]) -> Iterator[Finding]:
    """`copies`: of this role. Copies that are older than the record are normal: they follow and are filled."""
    active = [copy for copy in copies if copy.active]
    for copy in copies:
        reason = "" if copy.problem else _contradiction(record, epoch, copy)
        if reason:
            yield _of_role(role, record, f"copy {copy.place}: {reason}")
    if len(active) > 1:
        yield _of_role(role, record, f"several copies are active: {', '.join(copy.place for copy in active)}")


def _contradiction(record: ActivationRecord | None, epoch: int, copy: CopyRow) -> str:
    decision = decide(record, copy.local, configured_primary=False, epoch=epoch)
    if isinstance(decision, Stop):
        return decision.reason
    if not copy.active or record is None:
        return ""
    if copy.local is None or copy.local.sequence < record.served:
        has = "no sequence" if copy.local is None else f"sequence {copy.local.sequence}"
        return f"it is active with {has}, and a copy has served with {record.served}"
    return ""


def _of_role(role: str, record: ActivationRecord | None, text: str) -> Finding:
    return Finding(FindingKind.MISALIGNED.value, role.encode(), 0, "", 0, text)


def segment_rows(listed: dict[str, Any]) -> list[SegmentRow]:
    """Of `segments_list` of one data source."""
    return [SegmentRow(each["segment"], each["state"], tuple(each["nodes"])) for each in listed["segments"]]
