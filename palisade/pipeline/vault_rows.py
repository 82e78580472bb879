"""The rows of a slice of a vault as columns, without a Python loop over them. Pure.

The vault has each row by itself, so no page is parsed: the sizes of keys and bodies are where the parts of a row begin.
Only what is accessed is made. Without values, the rows are never joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from palisade.pipeline.page_columns import HEADERS, ROW_PARTS, Numbers, RowColumns, every, parts_of
from palisade.vault.change import HEADER_BYTES

_HEADER = slice(HEADER_BYTES)


class VaultRows(RowColumns):
    """`keys` in order, and their bodies (`vault.change`)."""

    def __init__(self, keys: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        self._keys, self._bodies = keys, bodies

    def __len__(self) -> int:
        return len(self._keys)

    def __bytes__(self) -> bytes:
        """The rows as `wire.scan_pages` packs them."""
        return b"".join(self._bodies)

    @property
    def keys(self) -> pa.Array:
        return pa.array(self._keys, pa.binary())

    @property
    def values(self) -> pa.Array:
        sizes = np.fromiter(map(len, self._bodies), np.int64, len(self))
        starts = np.cumsum(sizes) - sizes
        keys_at = starts + HEADER_BYTES
        ends = keys_at + np.fromiter(map(len, self._keys), np.int64, len(self))
        return every(parts_of(bytes(self), [starts, keys_at, ends]), ROW_PARTS, "value")

    @cached_property
    def headers(self) -> Numbers:
        return np.frombuffer(b"".join([body[_HEADER] for body in self._bodies]), HEADERS)
