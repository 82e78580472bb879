"""The rows of a slice of a vault one by one."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate

from palisade.base.checksums import CHECKSUM_BYTES
from palisade.vault.slices import NO_CHECKSUM


def bodies_of(page: bytes, sizes: array[int]) -> list[bytes]:
    ends = list(accumulate(sizes))
    assert ends[-1:] in ([], [len(page)])
    return [page[end - size : end - CHECKSUM_BYTES] for end, size in zip(ends, sizes, strict=True)]


def page_of(bodies: Iterable[bytes]) -> tuple[bytes, array[int]]:
    """The page, and the sizes of its rows."""
    rows = [body + NO_CHECKSUM for body in bodies]
    return b"".join(rows), array("I", map(len, rows))
