"""Findings about members, segments and journals; each has its planted fault (issue 18)."""

from __future__ import annotations

import pytest

from palisade.base.digest import BUCKETS, DIGEST_BYTES
from palisade.catalog.activation import ActivationRecord, ClaimState, LocalSequence
from palisade.pipeline.audit.cluster_findings import (
    CopyRow,
    MemberDigest,
    SegmentRow,
    compared,
    divergence,
    misaligned,
    segment_rows,
    unannounced,
)

SAME = bytes(BUCKETS * DIGEST_BYTES)
RECORD = ActivationRecord("orders", 5, ClaimState.COMMITTED, "a", 5, 1)
CLAIMED = ActivationRecord("orders", 6, ClaimState.CLAIMED, "a", 5, 1)


def member(name: str, revision: int, chain: bytes = b"c", changed: int | None = None) -> MemberDigest:
    buckets = bytearray(SAME)
    if changed is not None:
        buckets[changed * DIGEST_BYTES] ^= 1
    return MemberDigest(name, revision, chain, bytes(buckets))


def test_members_that_are_equal_or_at_other_revisions_do_not_diverge() -> None:
    digests = [member("n1", 5), member("n2", 5), member("n3", 6, b"d", 1), MemberDigest("n4", problem="down")]
    assert not list(divergence(digests))
    assert compared(digests) == 2
    assert compared([]) == 0


def test_divergence_names_members_revision_and_buckets() -> None:
    (found,) = divergence([member("n1", 5), member("n2", 5, changed=77), member("n3", 5)])
    assert (found.kind, found.subject, found.revision) == ("divergence", b"n2", 5)
    assert "n1 and n2" in found.text
    assert "[77], 1 in all" in found.text
    (chain,) = divergence([member("n1", 5), member("n2", 5, b"other")])
    assert "chain only" in chain.text


def test_used_segments_without_a_node_are_found() -> None:
    listed = [
        {"segment": state, "state": state, "nodes": ["d1"] if state == "served" else []}
        for state in ("pending", "loading", "served", "missing", "unserved", "overshadowed", "unused")
    ]
    found = list(unannounced(segment_rows({"segments": listed}), 9))
    assert [(each.kind, each.subject) for each in found] == [
        ("unannounced-segment", b"loading"), ("unannounced-segment", b"missing"),
    ]  # fmt: skip
    assert segment_rows({"segments": listed})[2] == SegmentRow("served", "served", ("d1",))


def copy(sequence: int | None, *, epoch: int = 1, active: bool = False, place: str = "h:1") -> CopyRow:
    return CopyRow("orders", place, None if sequence is None else LocalSequence(sequence, epoch), active)


ALIGNED: dict[str, tuple[ActivationRecord | None, list[CopyRow]]] = {
    "active and replica": (RECORD, [copy(5, active=True), copy(5, place="h:2")]),
    "an older copy follows": (RECORD, [copy(5, active=True), copy(3, place="h:2"), copy(None, place="h:3")]),
    "a claim under way": (CLAIMED, [copy(5, active=True), copy(5, place="h:2")]),
    "never active": (None, [copy(None), copy(None, place="h:2")]),
    "unreadable": (RECORD, [CopyRow("orders", "h:1", problem="no answer")]),
}


@pytest.mark.parametrize("name", ALIGNED)
def test_aligned_journals_are_accepted(name: str) -> None:
    record, copies = ALIGNED[name]
    assert not list(misaligned("orders", record, 1, copies))


MISALIGNED: dict[str, tuple[ActivationRecord | None, int, list[CopyRow], str]] = {
    "ahead of the record": (RECORD, 1, [copy(7)], "higher than the agreed one"),
    "no record": (None, 1, [copy(4)], "no record of the role"),
    "restored store": (RECORD, 2, [copy(5)], "it was restored"),
    "active and older": (RECORD, 1, [copy(4, active=True)], "active with sequence 4"),
    "active without a sequence": (RECORD, 1, [copy(None, active=True)], "active with no sequence"),
    "two active": (RECORD, 1, [copy(5, active=True), copy(5, active=True, place="h:2")], "several copies are active"),
}


@pytest.mark.parametrize("name", MISALIGNED)
def test_misaligned_journal_is_found(name: str) -> None:
    record, epoch, copies, text = MISALIGNED[name]
    (found,) = misaligned("orders", record, epoch, copies)
    assert (found.kind, found.subject) == ("misaligned-journal", b"orders")
    assert text in found.text
