"""Vault and metadata store hash the same bytes; otherwise their digests could not be compared (M7, R11)."""

from __future__ import annotations

import palisade.base.digest
import palisade.metastore.record
import palisade.vault.change
from palisade.metastore.results import KeyValue


def test_body_is_the_content_of_a_row() -> None:
    row = palisade.metastore.record.pack_row(
        palisade.metastore.record.StoredRow(1, 2, 3, 4, 5, 6, 7, 8, b"key", b"value")
    )
    item = palisade.vault.change.item_of(row[palisade.metastore.record.LINK_BYTES :])
    assert item == (b"key", b"value", 6, 5, 7, 8)


def test_digests_are_stable_in_files_and_on_the_wire() -> None:
    leaf = palisade.base.digest.leaf_of(b"body")
    assert leaf == 0x177AEFCCFFA6F74ACBF1C497EAC76E10
    assert palisade.base.digest.next_chain(leaf, 7) == 0xD7B9B28D9B2322A892BDAF0E0E164957
    assert palisade.base.digest.bucket_of(b"key") == 2985
    assert palisade.base.digest.fingerprint_of(b"key").hex() == "bbea0d63"
    assert len(palisade.base.digest.pack_sums([leaf] * palisade.base.digest.BUCKETS)) == 65536


def test_leaf_of_a_version_is_that_of_its_body() -> None:
    body = palisade.vault.change.HEADER.pack(5, 6, 7, 8, 3, 5) + b"keyvalue"
    assert palisade.metastore.record.content_leaf(
        KeyValue(b"key", b"value", 6, 5, 7, 8)
    ) == palisade.base.digest.leaf_of(body)
