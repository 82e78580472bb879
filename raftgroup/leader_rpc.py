"""Calls to the leader: a number, a name and arguments; the answer is a value or an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from palisade.raftgroup.errors import MembershipRefused, NotLeader, OutcomeUnknown, RaftError, Unavailable
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Random
from palisade.raftgroup.request_ids import first_number

_ERRORS: dict[str, type[RaftError]] = {
    "refused": MembershipRefused,
    "unavailable": Unavailable,
    "unknown": OutcomeUnknown,
}


def error_kind(error: RaftError) -> str:
    """The encoding of an error: a name from which the other side creates the same error."""
    return next((kind for kind, type_ in _ERRORS.items() if isinstance(error, type_)), "unknown")


class LeaderCalls:
    """The caller's side. `send` is that of the transport."""

    def __init__(self, send: Callable[[str, int, Any], bool], random: Random) -> None:
        self._send = send
        self._number = first_number(random)
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._repeatable: set[int] = set()

    async def call(self, leader: str | None, name: str, arguments: list[Any], *, repeatable: bool = False) -> Any:
        """Raises NotLeader if there is no leader to ask, and any error that the leader returned.

        A `repeatable` call also raises it as soon as another member leads: the asked leader may be stalled.
        """
        self._number += 1
        number = self._number
        if leader is None or not self._send(leader, MessageKind.REQUEST, [number, name, arguments]):
            raise NotLeader(leader)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (leader, future)
        if repeatable:
            self._repeatable.add(number)
        try:
            return await future
        finally:
            self._waiting.pop(number, None)
            self._repeatable.discard(number)

    def answered(self, member: str, number: int, kind: str | None, value: Any) -> None:
        leader, future = self._waiting.get(number, (None, None))
        if future is None or leader != member or future.done():
            return
        if kind is None:
            future.set_result(value)
        else:
            future.set_exception(_ERRORS.get(kind, OutcomeUnknown)(str(value)))

    def led_by(self, leader: str | None) -> None:
        """The leader that the group follows now."""
        for number in self._repeatable:
            asked, future = self._waiting[number]
            if asked != leader and not future.done():
                future.set_exception(NotLeader(leader))

    def lost(self, member: str) -> None:
        """The connection to `member` broke: calls to it may be executed or not."""
        for leader, future in self._waiting.values():
            if leader == member and not future.done():
                future.set_exception(
                    OutcomeUnknown(
                        f"the connection to the leader {member} broke before it answered; the request may have been "
                        "executed: check the members and the leader before you retry"
                    )
                )
