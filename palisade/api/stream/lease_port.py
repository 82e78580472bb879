"""The interface between the stream port and the lease server, which handles the FENCE frames of a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class LeaseConnection(Protocol):
    """The connection of one lease holder."""

    def receive(self, body: Any) -> None:
        """Raises BadMessage."""
        ...

    def lost(self) -> None: ...


class LeasePort(Protocol):
    """`open` is called for each connection on which a holder sends its first FENCE frame."""

    def open(
        self,
        write: Callable[[bytes], None],
        unsent: Callable[[], int],
        close: Callable[[], None],
        abort: Callable[[], None],
    ) -> LeaseConnection: ...
