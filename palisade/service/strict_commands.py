"""Which requests touch strict regions, and which touch the cluster's own keys. Pure.

Whether a write has to wait for its release is decided from its request, before it is proposed: so a node that only
forwards it knows it, too. A lease revoke counts as strict if it may delete a strict key, since the request does not
name its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from palisade.metastore.put_series import is_series
from palisade.metastore.requests import FROM_KEY, CopyChunk, DeleteRange, LeaseExpire, LeaseRevoke, Put, Range, Txn

Prefixes = tuple[bytes, ...]
OWN = b"palisade/"
"""The prefix of the cluster's own keys."""


def touches(start: bytes, range_end: bytes, prefixes: Prefixes) -> bool:
    """Whether [start, range_end), or the key `start` where `range_end` is empty, has keys under one of the prefixes."""
    if start.startswith(prefixes):
        return True
    if not range_end:
        return False
    return any(start <= prefix and (range_end == FROM_KEY or prefix < range_end) for prefix in prefixes)


def is_strict(request: Any, prefixes: Prefixes) -> bool:
    """Whether its response has to wait until the changes that it made or saw are released."""
    if isinstance(request, Put):
        return request.key.startswith(prefixes)
    if isinstance(request, DeleteRange | Range):
        return touches(request.key, request.range_end, prefixes)
    if isinstance(request, Txn):
        compared = any(touches(each.key, each.range_end, prefixes) for each in request.compare)
        return compared or any(is_strict(each, prefixes) for each in (*request.success, *request.failure))
    if isinstance(request, CopyChunk):
        return touches(request.key, request.range_end, prefixes) or request.chunk.startswith(prefixes)
    return isinstance(request, LeaseRevoke | LeaseExpire)


def any_strict(keys: Iterable[bytes], prefixes: Prefixes) -> bool:
    return any(key.startswith(prefixes) for key in keys)


def fields_are_strict(fields: Any, prefixes: Prefixes, decode: Callable[[Any], Any]) -> bool:
    """As `is_strict`, for the msgpack value of a checked command: a series, or what `decode` reads."""
    if is_series(fields):
        return any_strict(fields[2][::2], prefixes)
    return is_strict(decode(fields), prefixes)


def deletes_around_own(request: Any) -> bool:
    """Whether it deletes a range that begins before the cluster's own keys and includes them."""
    if isinstance(request, DeleteRange):
        return request.key < OWN and touches(request.key, request.range_end, (OWN,))
    return isinstance(request, Txn) and any(map(deletes_around_own, (*request.success, *request.failure)))


def writes_own(request: Any, has_own: Callable[[], bool]) -> bytes | None:
    """The first key of the cluster's own that it would write. `has_own`: whether there are any.

    A wide delete of a range without such keys is permitted: a client that empties the store need not exclude them.
    """
    if isinstance(request, Put):
        return request.key if request.key.startswith(OWN) else None
    if isinstance(request, DeleteRange):
        if request.key.startswith(OWN):
            return request.key
        return OWN if touches(request.key, request.range_end, (OWN,)) and has_own() else None
    if isinstance(request, Txn):
        found: Sequence[bytes | None] = [writes_own(each, has_own) for each in (*request.success, *request.failure)]
        return next((key for key in found if key is not None), None)
    if isinstance(request, CopyChunk):
        if touches(request.key, request.range_end, (OWN,)):
            return OWN
        return request.chunk if request.chunk.startswith(OWN) else None
    return None
