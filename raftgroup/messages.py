"""What members say to each other: a kind and a list, in the order of the fields below.

`incarnation` is the sender's, so that an answer of a wiped member is not taken for one of the member that the
group knows. `sent_at` is the sender's clock in seconds; an answer echoes it, and only the sender reads it.
"""

from __future__ import annotations

import enum
from typing import Any


class Kind(enum.IntEnum):
    """The first 15 kinds are the transport's own."""

    APPEND = 16
    """[term, commit, prev_index, prev_term, sent_at, [[command, term], ...]]"""
    HEARTBEAT = 17
    """[term, sent_at]: to a follower whose log is not known or being replaced by a snapshot."""
    APPEND_REPLY = 18
    """[term, next_index, success, sent_at, incarnation]"""
    HEARTBEAT_REPLY = 19
    """[term, sent_at, incarnation]"""
    PRE_VOTE = 20
    """[term, last_index, last_term]: would you vote for me in `term`?"""
    PRE_VOTE_REPLY = 21
    """[term, granted, own_term, incarnation]"""
    REQUEST_VOTE = 22
    """[term, last_index, last_term, handover]"""
    VOTE = 23
    """[term, granted, incarnation]"""
    CAMPAIGN_NOW = 24
    """[term]: the leader hands over (TimeoutNow)."""
    FORWARD = 25
    """[[number, [command, ...], weight], ...]: proposals for the leader, and as how many commands each counts."""
    FORWARD_REPLY = 26
    """[[number, outcome, index, term, [result, ...]], ...]"""
    REQUEST = 27
    """[number, name, arguments]: something that only the leader can do (read index, membership, hand-over)."""
    RESPONSE = 28
    """[number, error kind or None, value or error text]"""
    FOUNDING = 30
    """[pins]: the storages of the founding members, as the sender has seen and durably pinned them."""
    SNAPSHOT = 29
    """A message of `snapshot_transfer`."""


_NUMBER = (int, float)
_SHAPES: dict[int, tuple[type | tuple[type, ...], ...]] = {
    Kind.APPEND: (int, int, int, int, _NUMBER, list),
    Kind.HEARTBEAT: (int, _NUMBER),
    Kind.APPEND_REPLY: (int, int, bool, _NUMBER, str),
    Kind.HEARTBEAT_REPLY: (int, _NUMBER, str),
    Kind.PRE_VOTE: (int, int, int),
    Kind.PRE_VOTE_REPLY: (int, bool, int, str),
    Kind.REQUEST_VOTE: (int, int, int, bool),
    Kind.VOTE: (int, bool, str),
    Kind.CAMPAIGN_NOW: (int,),
    Kind.REQUEST: (int, str, list),
    Kind.RESPONSE: (int, (str, type(None)), object),
    Kind.FOUNDING: (dict,),
}
_ITEMS: dict[int, tuple[type | tuple[type, ...], ...]] = {
    Kind.APPEND: (bytes, int),
    Kind.FORWARD: (int, list, int),
    Kind.FORWARD_REPLY: (int, int, int, int, list),
}


def is_well_formed(kind: int, body: Any) -> bool:
    """Whether a body has the shape of its kind, so that handling it can't fail half-way for that reason.

    Kinds that are not known here are well-formed: who handles them judges them.
    """
    shape = _SHAPES.get(kind)
    if shape is not None and not _matches(body, shape):
        return False
    items = _ITEMS.get(kind)
    if items is None:
        return True
    parts = body[-1] if kind == Kind.APPEND else body
    return isinstance(parts, list) and all(_matches(part, items) for part in parts)


def _matches(body: Any, shape: tuple[type | tuple[type, ...], ...]) -> bool:
    return (
        isinstance(body, list)
        and len(body) == len(shape)
        and all(isinstance(value, wanted) for value, wanted in zip(body, shape, strict=True))
    )
