"""The rows of a slice of a vault as columns, without a Python loop over them. Pure.

The vault has each row by itself, so no page is parsed: rows begin where the sizes of those before them add up. Without
values, the rows are not even joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from palisade.pipeline.page_columns import HEADERS, Numbers, RowColumns, rows_at
from palisade.vault.change import HEADER_BYTES

_HEADER = slice(HEADER_BYTES)


@dataclass(frozen=True, slots=True)
class VaultRows:
    """Keys in order, and their bodies (`vault.change`). As bytes: a page of `wire.scan_pages`."""

    keys: Sequence[bytes]
    bodies: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.keys)

    def __bytes__(self) -> bytes:
        return b"".join(self.bodies)

    def columns(self, *, values: bool) -> RowColumns:
        """`values` False: all values are null."""
        if not values:
            return RowsWithoutValues(self.keys, self.bodies)
        sizes = np.fromiter(map(len, self.bodies), np.int64, len(self))
        return rows_at(bytes(self), np.cumsum(sizes) - sizes)


class RowsWithoutValues(RowColumns):
    def __init__(self, keys: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        self._keys, self._bodies = keys, bodies

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> pa.Array:
        return pa.array(self._keys, pa.binary())

    @property
    def values(self) -> pa.Array:
        return pa.nulls(len(self), pa.binary())

    @cached_property
    def headers(self) -> Numbers:
        return np.frombuffer(b"".join([body[_HEADER] for body in self._bodies]), HEADERS)
