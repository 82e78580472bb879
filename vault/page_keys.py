"""The keys at which LMDB divides a table into pages: they divide a range without reading it. Pure.

LMDB finds a page by the branch pages above it, which contain the first key of each page below; its API does not show
them. Stepping through all keys of a range instead touches every page, and takes 30 times as long.

The format is that of LMDB 0.9 on a 64-bit machine, which `lmdb.verify` describes. A page names its number and its kind,
so pages of any other format raise UnknownPages. The keys are not verified: they are for dividing a range, not for
reading it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from palisade.vault.errors import UnknownPages

_TREE = Struct("=IHHQQQQQ")
_PAGE = Struct("=QHHHH")
"""Number, padding, flags, end of the offsets of the nodes, begin of the nodes."""
_NODE = Struct("=HHHH")
"""Three parts of the number of a page, the lowest first, and the size of the key, which follows."""
_BRANCH = 0x01

ReadPage = Callable[[int], bytes]
"""The page of a number."""


class TableTree(NamedTuple):
    """The record of a table in LMDB. `depth` 1: the root is the only page."""

    depth: int
    leaf_pages: int
    entries: int
    root: int


def tree_of(record: bytes) -> TableTree:
    """Raises UnknownPages."""
    if len(record) != _TREE.size:
        raise UnknownPages(f"the record of a table has {len(record)} bytes")
    _, _, depth, _, leaf_pages, _, entries, root = _TREE.unpack(record)
    return TableTree(depth, leaf_pages, entries, root)


def page_keys(read: ReadPage, tree: TableTree, start: bytes, end: bytes | None, stride: int) -> Iterator[bytes]:
    """Of the pages with keys after `start` and before `end`, about one of `stride`: their first keys, in order. Raises
    UnknownPages."""
    if tree.depth > 1:
        yield from _below(read, tree.root, tree.depth, start, end, stride)


def _below(read: ReadPage, number: int, depth: int, start: bytes, end: bytes | None, stride: int) -> Iterator[bytes]:
    """Of the pages below this one, the first excepted: its first key is in a page above."""
    keys, pages = _nodes(read(number), number)
    first = max(bisect_right(keys, start) - 1, 0)
    last = len(keys) if end is None else bisect_left(keys, end)
    for at in range(first, last, stride if depth == 2 else 1):
        if at and keys[at] > start:
            yield keys[at]
        if depth > 2:
            yield from _below(read, pages[at], depth - 1, start, end, stride)


def _nodes(page: bytes, number: int) -> tuple[list[bytes], list[int]]:
    """Keys and numbers of the pages below. The key of the first one is empty."""
    keys, pages = list[bytes](), list[int]()
    try:
        own, _, flags, ends, _ = _PAGE.unpack_from(page)
        if own != number or not flags & _BRANCH:
            raise UnknownPages(f"page {number} is not the branch page of this number")
        for (offset,) in Struct("=H").iter_unpack(page[_PAGE.size : ends]):
            low, middle, high, size = _NODE.unpack_from(page, offset)
            keys.append(page[offset + _NODE.size : offset + _NODE.size + size])
            pages.append(low | middle << 16 | high << 32)
    except StructError as error:
        raise UnknownPages(f"page {number}: {error}") from error
    return keys, pages
