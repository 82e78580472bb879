"""The rows of a slice of a vault as columns, without a Python loop over them. Pure.

The vault stores each row separately, so no page is parsed: the sum of the sizes of earlier rows is the beginning of a
row. Without values, the rows are not even joined.
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
    """Keys in order, and their rows in the form of a `VaultSlice`: each a body and its checksum."""

    keys: Sequence[bytes]
    rows: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.keys)

    def columns(self, *, values: bool) -> RowColumns:
        """`values` False: all values are null."""
        if not values:
            return RowsWithoutValues(self.keys, self.rows)
        sizes = np.fromiter(map(len, self.rows), np.int64, len(self))
        return rows_at(b"".join(self.rows), np.cumsum(sizes) - sizes, tails=True)


class RowsWithoutValues(RowColumns):
    def __init__(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> None:
        self._keys, self._rows = keys, rows

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
        return np.frombuffer(b"".join([row[_HEADER] for row in self._rows]), HEADERS)
