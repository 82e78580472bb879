"""Vault and meta storage hash the same bytes in the same way, or no digest of theirs could be compared (M7, R11)."""

from __future__ import annotations

import random

import metastore.block
import metastore.digest
import metastore.record
import vault.change
import vault.digest
from metastore.results import KeyValue


def test_a_body_is_the_content_of_a_row() -> None:
    row = metastore.record.pack_row(metastore.record.Row(1, 2, 3, 4, 5, 6, 7, 8, b"key", b"value"))
    item = vault.change.item_of(row[metastore.record.LINK_BYTES :])
    assert item == (b"key", b"value", 6, 5, 7, 8)


def test_hashes_are_the_same() -> None:
    rng = random.Random(5)
    assert vault.digest.BUCKETS == metastore.digest.BUCKETS
    assert vault.digest.DIGEST_BYTES == metastore.record.DIGEST_BYTES
    for _ in range(200):
        body, chain = rng.randbytes(rng.randrange(300)), rng.getrandbits(128)
        leaf = metastore.record.leaf_of(body)
        assert vault.digest.leaf_of(body) == leaf
        assert vault.digest.next_chain(chain, leaf) == metastore.block.next_chain(chain, leaf)
        assert vault.digest.bucket_of(body) == metastore.digest.bucket_of(body)


def test_the_leaf_of_a_version_is_that_of_its_body() -> None:
    body = vault.change.HEADER.pack(5, 6, 7, 8, 3, 5) + b"keyvalue"
    assert metastore.record.content_leaf(KeyValue(b"key", b"value", 6, 5, 7, 8)) == vault.digest.leaf_of(body)
