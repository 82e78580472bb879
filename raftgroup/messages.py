"""Messages between members: a kind and a list, in the order of the fields below.

`incarnation` is the sender's, so that an answer of a wiped member is not mistaken for one of the known member.
`sent_at` is the sender's clock in seconds; an answer echoes it, and only the sender reads it.
"""

from __future__ import annotations

import enum
import math
from typing import Any


class MessageKind(enum.IntEnum):
    """The first 15 kinds belong to the transport."""

    APPEND = 16
    """[term, commit, prev_index, prev_term, sent_at, [[command, term], ...]]"""
    HEARTBEAT = 17
    """[term, sent_at]: to a follower whose log is unknown or being replaced by a snapshot."""
    APPEND_REPLY = 18
    """[term, next_index, success, sent_at, incarnation]"""
    HEARTBEAT_REPLY = 19
    """[term, sent_at, incarnation]"""
    PRE_VOTE = 20
    """[term, last_index, last_term]: a pre-vote request for `term`"""
    PRE_VOTE_REPLY = 21
    """[term, granted, own_term, incarnation]"""
    REQUEST_VOTE = 22
    """[term, last_index, last_term, handover]"""
    VOTE = 23
    """[term, granted, incarnation]"""
    CAMPAIGN_NOW = 24
    """[term]: the leader hands over (TimeoutNow)."""
    FORWARD = 25
    """[[number, [command, ...], weight], ...]: proposals for the leader; each counts as `weight` commands."""
    FORWARD_REPLY = 26
    """[[number, outcome, index, term, [result, ...]], ...]"""
    REQUEST = 27
    """[number, name, arguments]: a request that only the leader can execute (read index, membership, hand-over)."""
    RESPONSE = 28
    """[number, error kind or None, value or error text]"""
    FOUNDING = 30
    """[pins]: the storages of the founding members, as seen and durably pinned by the sender."""
    SNAPSHOT = 29
    """A message of `snapshot_transfer`."""


TO_TAKE_IN = frozenset({MessageKind.APPEND, MessageKind.SNAPSHOT})
"""Messages of a leader to its followers. SNAPSHOT is answered by the same kind."""
NUMBER_MAX = 1 << 62
"""Maximum of terms, indexes and request numbers: none is negative, and each has room for its successors."""


class _Shape(enum.Enum):
    NUMBER = enum.auto()
    """An integer, 0 to NUMBER_MAX."""
    TIME = enum.auto()
    """Seconds, finite."""
    COMMANDS = enum.auto()
    """A list of bytes."""


_N, _T = _Shape.NUMBER, _Shape.TIME
_Wanted = _Shape | type | tuple[type, ...]

_SHAPES: dict[int, tuple[_Wanted, ...]] = {
    MessageKind.APPEND: (_N, _N, _N, _N, _T, list),
    MessageKind.HEARTBEAT: (_N, _T),
    MessageKind.APPEND_REPLY: (_N, _N, bool, _T, str),
    MessageKind.HEARTBEAT_REPLY: (_N, _T, str),
    MessageKind.PRE_VOTE: (_N, _N, _N),
    MessageKind.PRE_VOTE_REPLY: (_N, bool, _N, str),
    MessageKind.REQUEST_VOTE: (_N, _N, _N, bool),
    MessageKind.VOTE: (_N, bool, str),
    MessageKind.CAMPAIGN_NOW: (_N,),
    MessageKind.REQUEST: (_N, str, list),
    MessageKind.RESPONSE: (_N, (str, type(None)), object),
    MessageKind.FOUNDING: (dict,),
}
_ITEMS: dict[int, tuple[_Wanted, ...]] = {
    MessageKind.APPEND: (bytes, _N),
    MessageKind.FORWARD: (_N, _Shape.COMMANDS, _N),
    MessageKind.FORWARD_REPLY: (_N, _N, _N, _N, list),
}


def is_well_formed(kind: int, body: Any) -> bool:
    """Whether a body has the shape of its kind, so that its handler cannot fail midway because of its shape.

    Unknown kinds are well-formed: their handlers judge them.
    """
    shape = _SHAPES.get(kind)
    if shape is not None and not _matches(body, shape):
        return False
    items = _ITEMS.get(kind)
    if items is None:
        return True
    parts = body[-1] if kind == MessageKind.APPEND else body
    return isinstance(parts, list) and all(_matches(part, items) for part in parts)


def _matches(body: Any, shape: tuple[_Wanted, ...]) -> bool:
    return isinstance(body, list) and len(body) == len(shape) and all(map(_fits, body, shape))


def _fits(value: Any, wanted: _Wanted) -> bool:
    if wanted is _N:
        return type(value) is int and 0 <= value <= NUMBER_MAX
    if wanted is _T:
        return type(value) in (int, float) and -math.inf < value < math.inf
    if isinstance(wanted, _Shape):
        return type(value) is list and set(map(type, value)) <= {bytes}
    return isinstance(value, wanted)
