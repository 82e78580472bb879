"""The rows of a slice of a vault as columns, without a Python loop over them. Pure.

The vault stores each row separately, so no page is parsed: the sum of the sizes of earlier rows is the beginning of a
row.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from palisade.pipeline.page_columns import RowColumns, rows_at


@dataclass(frozen=True, slots=True)
class VaultRows:
    """Rows in key order and the bytes of each, in the form of a `VaultSlice`: each row is a body and its checksum."""

    page: bytes
    sizes: array[int]

    def __len__(self) -> int:
        return len(self.sizes)

    def columns(self) -> RowColumns:
        ends = np.cumsum(self.sizes, dtype=np.int64)
        return rows_at(self.page, ends - self.sizes, tails=True)
