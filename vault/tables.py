"""The storage interface of a vault: a few tables of sorted bytes that change together. LMDB, or memory in a simulation.

Both pass tests/contracts/test_vault_backends.py. A backend guarantees:

- `commit` makes all of its changes, in all tables, or none of them, also if the process dies midway.
- Commits survive the process. They survive the machine in order, as a prefix, or the next open detects the loss.
- A read returns what was committed, or raises VaultDamaged.
- Keys have 1 to `KEY_BYTES_MAX` bytes; longer ones are stored by `palisade/base/long_keys.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Protocol

KEY_BYTES_MAX = 511


class VaultTable(enum.IntEnum):
    """The numbers and names are part of the file format: they are only ever extended."""

    META = 0
    """LV and its records; the lineage; the mark of an unfinished snapshot; the plan of an eviction."""
    ENTRY = 1
    """stored key -> entry (`change.py`): the projection of the cluster's state."""
    BUCKET = 2
    """page number -> the sums of 64 buckets."""
    CONFIG = 3
    """The node's own configuration, by name."""
    DIFFERENCE = 4
    """stored key -> the entry before a difference (empty: there was none), until the listeners have received it."""
    PENDING = 5
    """stored key -> a change that is staged and not applied (`staging.py`)."""


Changes = Mapping[VaultTable, Mapping[bytes, bytes | None]]
"""None removes the key."""


Pause = Callable[[], Awaitable[None]]


class Backend(Protocol):
    def get(self, table: VaultTable, key: bytes) -> bytes | None: ...

    def get_many(self, table: VaultTable, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The existing ones of the keys."""
        ...

    def scan(self, table: VaultTable, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) with start <= key < end, in key order, of one moment."""
        ...

    def key_pages(self, table: VaultTable, start: bytes, end: bytes | None, size: int) -> Iterator[list[bytes]]:
        """As `scan`, faster, without values, so nothing is verified; up to `size` keys at a time."""
        ...

    def commit(self, changes: Changes, cleared: Sequence[VaultTable] = ()) -> None:
        """Empty the tables of `cleared`, then make the changes. Raises VaultUnusable, with nothing changed."""
        ...

    async def commit_in_slices(self, slices: Callable[[], Iterator[Changes]], pause: Pause) -> None:
        """As one `commit`; `pause` is awaited after each slice. Nothing else may be committed meanwhile.

        `slices` may be called more than once, if the commit has to start again.
        """
        ...

    def close(self) -> None:
        """Everything is on the disk on return."""
        ...
