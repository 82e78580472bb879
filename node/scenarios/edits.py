"""What changes in the demo catalog from day to day. Pure, and the same each time.

Rows that arrive late give a partition more rows and another digest; planes are retired.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import islice

from catalog.demo.entries import ROOT, CatalogEntry

PARTITIONS = f"{ROOT}partitions/".encode()
FLIGHTS = f"{ROOT}partitions/flights/".encode()
PLANES = f"{ROOT}planes/".encode()


def below(entries: Sequence[CatalogEntry], prefix: bytes) -> list[CatalogEntry]:
    return [entry for entry in entries if entry.key.startswith(prefix)]


def late_rows(partitions: Sequence[CatalogEntry], count: int, wave: int = 1) -> list[CatalogEntry]:
    """`count` changes of these partitions, one after the other, round and round."""
    return [late_row(partitions[number % len(partitions)], wave + number // len(partitions)) for number in range(count)]


def late_row(partition: CatalogEntry, wave: int) -> CatalogEntry:
    record = json.loads(partition.value)
    digest = hashlib.sha256(f"{record['digest']}/{wave}".encode()).hexdigest()
    record |= {"rows": record["rows"] + wave, "size_bytes": record["size_bytes"] + 97 * wave}
    record["digest"] = f"sha256:{digest}"
    return CatalogEntry(partition.key, json.dumps(record, sort_keys=True, separators=(",", ":")).encode())


def retired(entries: Sequence[CatalogEntry], prefix: bytes, count: int) -> list[bytes]:
    """The last keys below the prefix."""
    return [entry.key for entry in islice(reversed(below(entries, prefix)), count)]
