"""The possible contents of a disk after a power failure during an LMDB commit.

LMDB writes the new pages, syncs, writes one meta page, syncs. Thus before the first sync any part of the new pages may
have arrived, in any order, with the old meta page; after it all of them have. The meta page is one sector: it is the
old one or the new one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

PAGE_BYTES = 4096
META_PAGES = 2


def during_commit(before: bytes, after: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    """Files that may be found after a loss of power in the commit that turned `before` into `after`."""
    changed = [
        page
        for page in range(META_PAGES, len(after) // PAGE_BYTES)
        if before[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] != after[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
    ]
    for number in range(count):
        arrived = changed if number == 0 else rng.sample(changed, rng.randrange(len(changed) + 1))
        length = max(len(before), (max(arrived, default=0) + 1) * PAGE_BYTES)
        file = bytearray(before.ljust(length, b"\x00"))
        for page in arrived:
            start = page * PAGE_BYTES
            stop = start + (PAGE_BYTES if number % 2 else rng.choice((512, 2048, PAGE_BYTES)))
            file[start:stop] = after[start:stop]
        yield bytes(file)
