"""What a copy answers on a connection: appends, reads and status of clients, and the attachment of the replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from palisade.journal.active import Appended
from palisade.journal.channel import Channel
from palisade.journal.errors import JournalError, ReplicaRefused
from palisade.journal.messages import FORMAT, Kind, check_hello, refusal_of
from palisade.journal.role import RoleRunner

READ_BYTES_MAX = 4 << 20


class JournalService:
    def __init__(self, runner: RoleRunner) -> None:
        self._runner = runner

    async def serve(self, channel: Channel) -> None:
        """Until the connection ends. The first message must be HELLO: it names the format and the role."""
        greeted = False
        try:
            while (message := await channel.receive()) is not None:
                kind, body = message
                if not greeted and kind != Kind.HELLO:
                    self._refuse(channel, ReplicaRefused(f"message {kind} before HELLO: begin with HELLO"), body)
                    await channel.drain()
                    return
                greeted = True
                try:
                    await self._answer(channel, kind, body)
                except JournalError as error:
                    self._refuse(channel, error, body)
                    if kind in (Kind.HELLO, Kind.ATTACH):
                        await channel.drain()
                        return
                except (TypeError, ValueError, IndexError) as error:
                    self._refuse(channel, ReplicaRefused(f"message {kind} is invalid: {error}"), [0])
                    return
        finally:
            channel.close()

    async def _answer(self, channel: Channel, kind: int, body: list[Any]) -> None:
        runner = self._runner
        if kind == Kind.HELLO:
            check_hello(body, runner.copy.options.role)
            channel.send(Kind.WELCOME, [FORMAT, runner.copy.options.role, runner.copy.options.own.name])
        elif kind == Kind.APPEND:
            number, contents = body
            runner.serving().append(contents).add_done_callback(self._answer_append(channel, number))
        elif kind == Kind.READ:
            number, first, size = body
            found, last = await runner.serving().read(first, min(size, READ_BYTES_MAX))
            channel.send(Kind.ENTRIES, [number, found, last])
            await channel.drain()
        elif kind == Kind.STATUS:
            channel.send(Kind.STATE, [body[0], runner.status()])
        elif kind == Kind.ATTACH:
            await runner.serving().replicate(channel, body)
        else:
            raise ReplicaRefused(f"message {kind} is not expected here")

    def _answer_append(self, channel: Channel, number: int) -> Callable[[asyncio.Future[Appended]], None]:
        def answer(future: asyncio.Future[Appended]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if isinstance(error, JournalError):
                self._refuse(channel, error, [number])
            elif error is None:
                channel.send(Kind.APPENDED, [number, *future.result()])

        return answer

    def _refuse(self, channel: Channel, error: JournalError, body: list[Any]) -> None:
        holder = self._runner.holder
        number = body[0] if isinstance(body, list) and body and type(body[0]) is int else 0
        channel.send(Kind.REFUSED, refusal_of(error, number, holder.address if holder else "").body())
