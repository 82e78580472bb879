"""The messages between lease holder and leader as msgpack values: the bodies of FENCE frames. Pure.

    [code, field, ...]: the fields of `fencing.messages`, in their order

This module checks the shape of received messages; the messages check their own meaning. The connection is ordered. The
receiver of an invalid message closes it, because a lost message cannot be recognized otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgpack

from palisade.base.frames import Encoder
from palisade.fencing.messages import (
    Behind,
    Elsewhere,
    FencedMessage,
    GrantMessage,
    Hello,
    HolderId,
    HolderPhase,
    JoinMessage,
    RefusedMessage,
    Release,
    Renew,
    Row,
    StagedMessage,
    StageMessage,
    WelcomeMessage,
)

HELLO, JOIN, RENEW, STAGED, FENCED = range(1, 6)
WELCOME, ELSEWHERE, REFUSED, STAGE, BEHIND, GRANT, RELEASE = range(11, 18)

FromHolder = Hello | JoinMessage | Renew | StagedMessage | FencedMessage
FromLeader = WelcomeMessage | Elsewhere | RefusedMessage | StageMessage | Behind | GrantMessage | Release
Message = FromHolder | FromLeader
FROM_HOLDER = (Hello, JoinMessage, Renew, StagedMessage, FencedMessage)
FROM_LEADER = (WelcomeMessage, Elsewhere, RefusedMessage, StageMessage, Behind, GrantMessage, Release)


class BadMessage(ValueError):
    """The received value is not a valid fencing message."""


def _hello(message: Hello) -> list[Any]:
    holder = message.holder
    return [
        HELLO, holder.node, holder.vault, holder.incarnation, message.fences, message.lease_s, message.state.value,
        message.chain, message.joined, message.staged, message.lv, message.proceed_s, message.generation,
    ]  # fmt: skip


_PACK: dict[type, Callable[[Any], list[Any]]] = {
    Hello: _hello,
    JoinMessage: lambda m: [JOIN, m.chain, m.lv],
    Renew: lambda m: [RENEW, m.t0, m.staged, m.state.value, m.asks, m.lease_s, m.proceed_s],
    StagedMessage: lambda m: [STAGED, m.upto],
    FencedMessage: lambda m: [FENCED, m.term, m.at],
    WelcomeMessage: lambda m: [WELCOME, m.term, m.lm, m.released],
    Elsewhere: lambda m: [ELSEWHERE, m.leader],
    RefusedMessage: lambda m: [REFUSED, m.reason],
    StageMessage: lambda m: [STAGE, m.term, m.chain, m.after, m.upto, pack_rows(m.rows)],
    Behind: lambda m: [BEHIND, m.term, m.chain, m.lm],
    GrantMessage: lambda m: [GRANT, m.term, m.incarnation, m.t0, m.required],
    Release: lambda m: [RELEASE, m.term, m.released],
}


class SameRows:
    """Rows compared by identity: comparing their content would cost more than encoding it again."""

    __slots__ = ("rows",)

    def __init__(self, rows: tuple[Row, ...]) -> None:
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameRows) and other.rows is self.rows

    def __hash__(self) -> int:
        return id(self.rows)


@lru_cache(maxsize=1)
def _packed(same: SameRows) -> bytes:
    packed: bytes = msgpack.packb(same.rows)
    return packed


def pack_rows(rows: tuple[Row, ...]) -> bytes:
    """Rows as one msgpack value within another: rows sent to many holders, each in its own chain, are encoded once."""
    return _packed(SameRows(rows))


def pack(message: Message) -> list[Any]:
    return _PACK[type(message)](message)


def _rows(packed: bytes) -> tuple[Row, ...]:
    try:
        rows = msgpack.unpackb(packed, use_list=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BadMessage(f"the rows of a stage are not msgpack: {error}") from None
    if type(rows) is not tuple or not _are_rows(rows):
        raise BadMessage("the rows of a stage are a list of a revision, a key and a body or nil each")
    return rows


def _are_rows(rows: tuple[Any, ...]) -> bool:
    if not {*map(type, rows)} <= {tuple} or not {*map(len, rows)} <= {3}:
        return False
    kinds = [{*map(type, column)} for column in zip(*rows, strict=True)]
    return not rows or (kinds[0] == {int} and kinds[1] == {bytes} and kinds[2] <= {bytes, type(None)})


_TEXT, _INT, _FLOAT, _FLAG, _BYTES = (str,), (int,), (float, int), (bool,), (bytes,)
_MAYBE_INT, _MAYBE_TEXT = (int, type(None)), (str, type(None))

_SHAPES: dict[int, tuple[tuple[Any, ...], Callable[..., Message]]] = {
    HELLO: (
        (_TEXT, _TEXT, _INT, _FLAG, _FLOAT, _TEXT, _INT, _FLAG, _INT, _INT, _FLOAT, _INT),
        lambda node, vault, incarnation, fences, lease_s, state, *rest: Hello(
            HolderId(node, vault, incarnation), fences, lease_s, HolderPhase(state), *rest
        ),
    ),
    JOIN: ((_INT, _INT), JoinMessage),
    RENEW: (
        (_FLOAT, _INT, _TEXT, _FLAG, _FLOAT, _FLOAT),
        lambda t0, staged, state, asks, lease_s, proceed_s: Renew(
            t0, staged, HolderPhase(state), asks, lease_s, proceed_s
        ),
    ),
    STAGED: ((_INT,), StagedMessage),
    FENCED: ((_INT, _FLOAT), FencedMessage),
    WELCOME: ((_INT, _INT, _MAYBE_INT), WelcomeMessage),
    ELSEWHERE: ((_MAYBE_TEXT,), Elsewhere),
    REFUSED: ((_TEXT,), RefusedMessage),
    STAGE: (
        (_INT, _INT, _INT, _INT, _BYTES),
        lambda term, chain, after, upto, rows: StageMessage(term, chain, after, upto, _rows(rows)),
    ),
    BEHIND: ((_INT, _INT, _INT), Behind),
    GRANT: ((_INT, _INT, _FLOAT, _INT), GrantMessage),
    RELEASE: ((_INT, _INT), Release),
}


def unpack(body: Any) -> Message:
    """Raises BadMessage."""
    if not isinstance(body, list) or not body or type(body[0]) is not int or body[0] not in _SHAPES:
        raise BadMessage("the body of a FENCE frame is a list that begins with the code of a message")
    shapes, make = _SHAPES[body[0]]
    fields = body[1:]
    if len(fields) != len(shapes) or not all(type(each) in shape for each, shape in zip(fields, shapes, strict=True)):
        raise BadMessage(f"message {body[0]} of fencing has the wrong fields")
    try:
        return make(*fields)
    except (ValueError, TypeError) as error:
        raise BadMessage(f"message {body[0]} of fencing is invalid: {error}") from None


class FenceFrames:
    """Messages as frames of one kind. A message sent to several receivers in succession is encoded once."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._encode = Encoder().encode
        self._last: Message | None = None
        self._frame = b""

    def of(self, message: Message) -> bytes:
        if message is not self._last:
            self._last, self._frame = message, self._encode(self._kind, pack(message))
        return self._frame
