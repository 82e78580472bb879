"""Checks the shapes of frames from clients, and encodes errors for them."""

from __future__ import annotations

import logging
from typing import Any

from palisade.base.errors import PalisadeError
from palisade.wire.error_codes import INTERNAL, named_revision, refusal_of
from palisade.wire.stream_frames import ITEMS_MAX, PROTOCOL, FrameKind

log = logging.getLogger(__name__)

NUMBER_MAX = (1 << 63) - 1
TEXT_CHARACTERS_MAX = 1500
TIMEOUT_SHARE = 0.9
"""The largest part of a client's timeout that the node uses."""
DEADLINE_S_MIN = 0.01
NOT_A_NUMBER = "the number of a request must be a whole number of 63 bits"


class ProtocolError(PalisadeError):
    """The client violates the protocol; the text is sent to it, and the connection is closed."""

    code = "protocol-error"


def deadline_of(client_ms: Any, own_s: float) -> float:
    """The deadline of a client's writes, in seconds. `own_s`: that of the node."""
    known_s = client_ms / 1000 if type(client_ms) is int and client_ms > 0 else own_s
    return max(DEADLINE_S_MIN, min(own_s, TIMEOUT_SHARE * known_s))


def error_fields(error: Exception) -> tuple[str, str, int]:
    """(code, text, revision named by it or 0) of an error as it is sent; details of unexpected errors are logged and
    not sent."""
    row = refusal_of(error)
    if row is INTERNAL:
        log.error("stream request failed", exc_info=error)
        return row.code, "unexpected error; see the log of the node", 0
    return row.code, truncated(str(error)), named_revision(error)


def truncated(text: str) -> str:
    """Truncates: the text may quote a request of any length."""
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "..."


def check_hello(kind: int, body: Any) -> None:
    """The first frame. Raises ProtocolError."""
    if kind != FrameKind.HELLO or type(body) is not dict:
        raise ProtocolError("the first frame must be HELLO: this is a palisade stream port")
    if body.get("protocol") != PROTOCOL:
        raise ProtocolError(
            f"protocol {str(body.get('protocol'))[:32]} is not supported, this node speaks {PROTOCOL}: use a client of "
            "this version"
        )


def call_in(body: Any) -> tuple[int, Any, Any]:
    """(number, name, arguments) of a CALL frame. Raises ProtocolError."""
    if type(body) is not list or len(body) != 3:
        raise ProtocolError("a CALL frame must have a number, a name and arguments")
    return a_number(body[0]), body[1], body[2]


def more_in(body: Any) -> tuple[int, int]:
    """(number of a watch, batches) of a MORE frame. Raises ProtocolError."""
    if type(body) is not list or len(body) != 2 or not 0 < a_number(body[1]) < NUMBER_MAX:
        raise ProtocolError("a MORE frame must have the number of a watch and a number of batches")
    return a_number(body[0]), body[1]


def unwatch_in(body: Any) -> int:
    """The number of a watch in an UNWATCH frame. Raises ProtocolError."""
    if type(body) is not list or len(body) != 1:
        raise ProtocolError("an UNWATCH frame must have the number of a watch")
    return a_number(body[0])


def pairs_of(body: Any) -> list[tuple[int, Any]]:
    """[number, content, ...] as pairs. Raises ProtocolError."""
    if type(body) is not list or len(body) % 2 or len(body) > 2 * ITEMS_MAX:
        raise ProtocolError(f"the frame must be a list of up to {ITEMS_MAX} numbers, each with its content")
    numbers = body[::2]
    if numbers and (set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) > NUMBER_MAX):
        raise ProtocolError(NOT_A_NUMBER)
    return list(zip(numbers, body[1::2], strict=True))


def a_number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise ProtocolError(NOT_A_NUMBER)
    number: int = value
    return number
