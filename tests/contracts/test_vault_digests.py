"""Vault and meta storage hash the same bytes in the same way, or no digest of theirs could be compared (M7, R11)."""

from __future__ import annotations

import random

import metastore.digest
import metastore.record
import vault.change
import vault.digest


def test_layouts_are_the_same() -> None:
    assert vault.change.POINTER.format == metastore.record.POINTER.format
    assert vault.change.HEADER.format == metastore.record.HEADER.format
    assert vault.change.TIMES.format == metastore.digest.TIMES.format
    assert (vault.change.PUT, vault.change.DELETE) == (metastore.record.PUT, metastore.record.DELETE)
    assert (vault.digest.BUCKETS, vault.digest.DIGEST_BYTES) == (
        metastore.digest.BUCKETS,
        metastore.record.DIGEST_BYTES,
    )


def test_hashes_are_the_same() -> None:
    rng = random.Random(5)
    for _ in range(200):
        pointer, body, chain, times = (rng.randbytes(size) for size in (12, rng.randrange(300), 16, 28))
        leaf = metastore.record.leaf_of(pointer, body)
        assert vault.digest.leaf_of(pointer, body) == leaf
        assert vault.digest.next_chain(chain, times, leaf) == metastore.digest.next_chain(chain, times, leaf)
        assert vault.digest.bucket_of(body) == metastore.digest.bucket_of(body)
