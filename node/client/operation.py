"""A request on its way: what it is, until when it matters, and whether it may be sent again."""

from __future__ import annotations

import asyncio
from typing import Any

from node.stream.protocol import Kind


class Operation:
    """`repeatable`: sending it twice does no harm (a read, or a write with a request id).

    `sent`: it has left this process at least once, so that a write may be applied. `content` is what its frame has
    beside the number.
    """

    __slots__ = ("content", "deadline", "future", "kind", "number", "repeatable", "sent", "writes")

    def __init__(
        self,
        kind: Kind,
        number: int,
        content: Any,
        deadline: float,
        future: asyncio.Future[Any],
        *,
        repeatable: bool,
        writes: bool,
    ) -> None:
        self.kind = kind
        self.number = number
        self.content = content
        self.deadline = deadline
        self.future = future
        self.repeatable = repeatable
        self.writes = writes
        self.sent = False

    def succeed(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
