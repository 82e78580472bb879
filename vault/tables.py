"""What a vault is built on: a few tables of sorted bytes that change together. LMDB, or memory in a simulation.

Both pass tests/contracts/test_vault_backends.py. A backend promises:

- `commit` makes all of its changes, in all tables, or none of them, also when the process dies in the middle.
- Commits survive the process. They survive the machine in order, as a prefix, or the loss is noticed at the next open.
- What is read is what was committed, or VaultDamaged.
- Keys have 1 to `KEY_BYTES_MAX` bytes; whoever has longer ones stores them otherwise (`palisade/base/long_keys.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Protocol

KEY_BYTES_MAX = 511


class VaultTable(enum.IntEnum):
    """The numbers and names are part of the file format: only ever extended."""

    META = 0
    """LV and what belongs to it; the lineage; the mark of a snapshot in the works; the plan of an eviction."""
    ENTRY = 1
    """stored key -> entry (`change.py`): the projection of the cluster's state."""
    BUCKET = 2
    """page number -> the sums of 64 buckets."""
    CONFIG = 3
    """The node's own configuration, by name."""
    DIFFERENCE = 4
    """stored key -> the entry before a difference (empty: there was none), until the listeners have been told."""
    PENDING = 5
    """stored key -> a change that is staged and not applied (`pending.py`)."""


Changes = Mapping[VaultTable, Mapping[bytes, bytes | None]]
"""None removes the key."""


Pause = Callable[[], Awaitable[None]]


class Backend(Protocol):
    def get(self, table: VaultTable, key: bytes) -> bytes | None: ...

    def get_many(self, table: VaultTable, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Those of the keys that are there."""
        ...

    def scan(self, table: VaultTable, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) with start <= key < end, in the order of the keys, of one moment."""
        ...

    def key_pages(self, table: VaultTable, start: bytes, end: bytes | None, size: int) -> Iterator[list[bytes]]:
        """As `scan`, quicker, without the values, so nothing of it is verified; up to `size` of them at a time."""
        ...

    def commit(self, changes: Changes, cleared: Sequence[VaultTable] = ()) -> None:
        """Empty the tables of `cleared`, then make the changes. Raises VaultUnusable, with nothing changed."""
        ...

    async def commit_in_slices(self, slices: Callable[[], Iterator[Changes]], pause: Pause) -> None:
        """As one `commit`; `pause` is awaited behind each slice. Nothing else may be committed meanwhile.

        `slices` may be called more than once, should it have to begin anew.
        """
        ...

    def close(self) -> None:
        """Everything is on the disk afterwards."""
        ...
