"""A process that writes a store and prints what it has flushed, until it is killed: `store_writer.py DIRECTORY SEED`.

Step n sets three keys to n, in three tables, and the applied index to n; some steps delete. Every line of its output is
a flushed step.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.ordered_map import APPLIED_KEY, Table, encode_applied

KEYS = 500
TABLES = (Table.REVISION, Table.KEY, Table.LEASE)


def everything(store: LmdbStore) -> list[Any]:
    """All rows, by table."""
    return [list(store.scan(table, b"", None)) for table in Table]


def step(tables: Any, number: int) -> None:
    """Any ordered map, or a model of one."""
    rng = random.Random(number)
    key = b"key %d" % rng.randrange(KEYS)
    for table in TABLES:
        if rng.random() < 0.2:
            tables.delete(table, key)
        else:
            tables.put(table, key, b"%d " % number * rng.randrange(1, 50))
    tables.put(Table.META, APPLIED_KEY, encode_applied(number, 1))


async def write(directory: str, rng: random.Random) -> None:
    store = LmdbStore(directory)
    number = store.applied[0]
    flush: asyncio.Future[None] | None = None
    while True:
        for _ in range(rng.randrange(1, 60)):
            number += 1
            step(store, number)
        if flush is None or flush.done():
            flush = asyncio.ensure_future(store.flush())
        await asyncio.sleep(0)
        if flush.done():
            sys.stdout.write(f"{store.durable[0]}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], random.Random(int(sys.argv[2]))))
