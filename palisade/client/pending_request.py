"""A request on its way: what it is, until when it matters, and whether it may be sent again."""

from __future__ import annotations

from typing import Any, Protocol

from palisade.wire.stream_frames import FrameKind


class Slot(Protocol):
    """Where an answer goes: a future, or what stands in for many (`bulk_puts.py`)."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class Operation:
    """`repeatable`: sending it twice does no harm (a read, or a write with a request id).

    `sent`: it is under way, or ended without a certain answer. `unsure`: so did a try before this one, and what this
    one comes to says nothing of that: only a result of the store does. `content` is what its frame has beside the
    number; of a plain put (request id, key, value).
    """

    __slots__ = ("content", "deadline", "kind", "number", "repeatable", "sent", "slot", "unsure", "writes")

    def __init__(
        self,
        kind: FrameKind,
        number: int,
        content: Any,
        deadline: float,
        slot: Slot,
        *,
        repeatable: bool,
        writes: bool,
    ) -> None:
        self.kind = kind
        self.number = number
        self.content = content
        self.deadline = deadline
        self.slot = slot
        self.repeatable = repeatable
        self.writes = writes
        self.sent = self.unsure = False

    @property
    def may_be_applied(self) -> bool:
        return self.writes and (self.sent or self.unsure)

    def leaves(self) -> None:
        self.sent, self.unsure = True, self.unsure or self.sent

    def succeed(self, value: Any) -> None:
        if not self.slot.done():
            self.slot.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self.slot.done():
            self.slot.set_exception(error)
