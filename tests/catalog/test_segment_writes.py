"""Which rows clients may write below palisade/segments/ (issue 17, "Bad input")."""

from __future__ import annotations

import pytest

from palisade.catalog.errors import BadField, CatalogError, NotAllowed
from palisade.catalog.publication import Manifest
from palisade.catalog.segment import ASSIGNED, SegmentRecord
from palisade.catalog.segment_writes import check_writes
from palisade.metastore.requests import DeleteRange, Put, Txn
from tests.support.segment_names import segment

DAY = segment(1)
RECORD = SegmentRecord(DAY, 1, 2, 10, "sha256:" + "ab" * 32, 1)
MANIFEST = Manifest("flights", 1)
ASSIGNMENT = b'{"digest":"%s","size_bytes":1}' % RECORD.digest.encode()
GOOD = [
    Put(DAY.key, RECORD.to_bytes()), Put(MANIFEST.key, MANIFEST.to_bytes()), DeleteRange(DAY.key),
    Put(ASSIGNED + b"n1/" + str(DAY).encode(), ASSIGNMENT), Put(ASSIGNED[:-1], b"{}"),
    Put(DAY.announcement_key("n1"), b"", lease=7),
]  # fmt: skip


def test_rows_of_segments_are_accepted() -> None:
    check_writes(Txn((), tuple(GOOD)))


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (Put(DAY.key, b"{}"), BadField),
        (Put(DAY.key + b"0", RECORD.to_bytes()), BadField),
        (Put(MANIFEST.key, b"x"), BadField),
        (Put(ASSIGNED + b"n1/x", b"{}"), BadField),
        (Put(ASSIGNED + b"n1/x", b'{"digest": 1}'), BadField),
        (Put(DAY.announcement_key("n1") + b"x", b"", lease=7), BadField),
        (Put(DAY.announcement_key("n1"), b""), NotAllowed),
        (Put(DAY.key, RECORD.to_bytes(), lease=7), NotAllowed),
        (Put(b"palisade/segments/else", b""), NotAllowed),
        (Put(b"palisade/catalog/databases/d", b""), NotAllowed),
        (Put(b"/k", b""), NotAllowed),
        (DeleteRange(b"palisade/regions/x"), NotAllowed),
        (DeleteRange(b"palisade/segments/", b"palisade/segments0"), NotAllowed),
        (Txn(), NotAllowed),
    ],
)
def test_other_rows_are_refused(row: Put | DeleteRange | Txn, error: type[CatalogError]) -> None:
    with pytest.raises(error):
        check_writes(Txn((), (GOOD[0], row)))


def test_failure_branch_is_refused() -> None:
    with pytest.raises(NotAllowed):
        check_writes(Txn((), (), (GOOD[0],)))
