"""Reads of the cluster by a fenced node, for requests that its vault must not answer (policies refetch and deny, F7).

The result is linearizable and waits for changes that are not released yet. A member reads as for any client. A node
that is no member asks a member and authenticates by the join token.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

from palisade.metastore.requests import FROM_KEY, Range
from palisade.metastore.results import RangeResult
from palisade.raftgroup.errors import Unavailable
from palisade.service.fenced_reads import Ask
from palisade.vault.change import Item
from palisade.vault.snapshot_reads import Rows

AskMember = Callable[[str, str, Any], Awaitable[Any]]
"""(method, path, body) -> the response of a member."""


def asks_own_cluster(read: Callable[[Range], Awaitable[RangeResult]]) -> Ask:
    """`read`: of a member's service."""

    async def ask(start: bytes, end: bytes | None, limit: int) -> Rows:
        found = await read(range_of(start, end, limit))
        return Rows(found.revision, tuple(Item(*kv) for kv in found.kvs), found.more)

    return ask


def range_of(start: bytes, end: bytes | None, limit: int) -> Range:
    if end == start + b"\0":
        return Range(start)
    return Range(start or FROM_KEY, FROM_KEY if end is None else end, limit=limit)


def asks_a_member(ask_member: AskMember) -> Ask:
    """Raises Unavailable for an unexpected response."""

    async def ask(start: bytes, end: bytes | None, limit: int) -> Rows:
        wanted = range_of(start, end, limit)
        body: dict[str, Any] = {"key_base64": in_base64(wanted.key), "limit": limit}
        if wanted.range_end:
            body["range_end_base64"] = in_base64(wanted.range_end)
        return rows_of(await ask_member("POST", "/v1/range", body))

    return ask


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def rows_of(answer: Any) -> Rows:
    """Raises Unavailable."""
    try:
        revision, more = answer["revision"], answer["more"]
        if type(revision) is not int or type(more) is not bool:
            raise TypeError("no revision")
        return Rows(revision, tuple(map(item_in, answer["kvs"])), more)
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable(f"unexpected response of a member ({error}): it may run another version") from None


def item_in(kv: Any) -> Item:
    create, mod, version = (kv[name] for name in ("create_revision", "mod_revision", "version"))
    if not type(create) is type(mod) is type(version) is int:
        raise TypeError("a revision is not a number")
    return Item(content_in(kv, "key"), content_in(kv, "value"), create, mod, version, int(kv.get("lease", 0)))


def content_in(kv: Any, name: str) -> bytes:
    """Text, or base64. Raises KeyError, TypeError, ValueError."""
    if name in kv:
        if type(kv[name]) is not str:
            raise TypeError(f"{name} is not a string")
        text: str = kv[name]
        return text.encode()
    return base64.b64decode(kv[f"{name}_base64"], validate=True)
