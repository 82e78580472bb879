"""The shapes of frames: what a client sends is checked before it is looked at, what went wrong is told to it."""

from __future__ import annotations

import logging
from typing import Any

from palisade.base.errors import PalisadeError
from palisade.wire.error_codes import INTERNAL, named_revision, refusal_of
from palisade.wire.stream_frames import ITEMS_MAX

log = logging.getLogger(__name__)

NUMBER_MAX = (1 << 63) - 1
TOLD_CHARACTERS_MAX = 1500
NOT_A_NUMBER = "the number of a request is a whole number of 63 bits"


class ProtocolError(PalisadeError):
    """The client does not speak this protocol; the text goes to it, and the connection ends."""

    code = "protocol-error"


def told(error: Exception) -> tuple[str, str, int]:
    """(code, text, revision that it names) of an error, as it travels; what nobody foresaw is logged, and not told."""
    row = refusal_of(error)
    if row is INTERNAL:
        log.error("a request of the stream failed", exc_info=error)
        return row.code, "internal error; see the log of the node", 0
    return row.code, in_short(str(error)), named_revision(error)


def in_short(text: str) -> str:
    """It may quote what was asked for, at any length."""
    return text if len(text) <= TOLD_CHARACTERS_MAX else text[:TOLD_CHARACTERS_MAX] + "..."


def pairs_of(body: Any) -> list[tuple[int, Any]]:
    """[number, content, ...] as pairs. Raises ProtocolError."""
    if type(body) is not list or len(body) % 2 or len(body) > 2 * ITEMS_MAX:
        raise ProtocolError(f"the frame needs to be a list of up to {ITEMS_MAX} numbers, each with its content")
    numbers = body[::2]
    if numbers and (set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) > NUMBER_MAX):
        raise ProtocolError(NOT_A_NUMBER)
    return list(zip(numbers, body[1::2], strict=True))


def a_number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise ProtocolError(NOT_A_NUMBER)
    number: int = value
    return number
