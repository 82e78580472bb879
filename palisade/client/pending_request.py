"""A pending request: its content, its deadline, and whether it may be sent again."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

from palisade.wire.stream_frames import FrameKind

if TYPE_CHECKING:
    from palisade.client.connection import ClientConnection

LAST_TRY = 0.25
"""A refused change is not retried if less than this part of the client's default timeout is left: nodes know only this
timeout, so the outcome of the next attempt could be unknown. The outcome of a read is never unknown: for a read, the
shorter one of this timeout and its own counts."""


class Slot(Protocol):
    """Receives the result: a future, or a counter of many requests (`bulk_puts.py`)."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class Operation:
    """`repeatable`: sending it twice is harmless (a read, or a write with a request id).

    `sent`: the latest attempt is in flight, or its connection broke. `unsure`: an earlier attempt ended without a
    definite result; only a result of the store settles it, a refusal of the latest attempt does not. `content` is the
    content of its frame besides the number; of a plain put (request id, key, value). `tried_at`: of the latest attempt
    over the same connection.
    """

    __slots__ = (
        "content", "deadline", "kind", "number", "repeatable", "sent", "slot", "timeout_s", "tried_at", "unsure",
        "writes",
    )  # fmt: skip

    def __init__(
        self,
        kind: FrameKind,
        number: int,
        content: Any,
        slot: Slot,
        now: float,
        timeout_s: float,
        *,
        repeatable: bool,
        writes: bool,
    ) -> None:
        self.kind = kind
        self.number = number
        self.content = content
        self.tried_at, self.timeout_s = now, timeout_s
        self.deadline = now + timeout_s
        self.slot = slot
        self.repeatable = repeatable
        self.writes = writes
        self.sent = self.unsure = False

    @property
    def may_be_applied(self) -> bool:
        return self.writes and (self.sent or self.unsure)

    def leaves(self) -> None:
        """Note an attempt."""
        self.sent, self.unsure = True, self.unsure or self.sent

    def succeed(self, value: Any) -> None:
        if not self.slot.done():
            self.slot.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self.slot.done():
            self.slot.set_exception(error)


def is_last(operation: Operation, link: ClientConnection | None, timeout_s: float, now: float) -> bool:
    """Whether an attempt that `link` refuses now is the last one: the next one could not reach a definite end in time.
    `timeout_s`: of the client."""
    left_s = operation.deadline - now
    if link is not None and link.has_waited_for_leader(operation.tried_at, now) and left_s < timeout_s:
        return True
    return left_s < LAST_TRY * (timeout_s if operation.writes else min(timeout_s, operation.timeout_s))


def longest_wait_s(pending: Collection[Operation], timeout_s: float, now: float) -> float:
    """How long the request that is due first has waited: the part of `timeout_s` that has passed."""
    return max(0.0, timeout_s - (min(each.deadline for each in pending) - now)) if pending else 0.0


def content_bytes(content: Any) -> int:
    """Approximate size in bytes of a request's content in its frame."""
    if isinstance(content, bytes | str):
        return len(content)
    if isinstance(content, list | tuple):
        return sum(map(content_bytes, content))
    if isinstance(content, dict):
        return sum(content_bytes(key) + content_bytes(value) for key, value in content.items())
    return 8
