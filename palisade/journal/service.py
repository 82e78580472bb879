"""Serves one connection of a copy: appends, reads and status of clients, and the attachment of the replica."""

from __future__ import annotations

from typing import Any

from palisade.journal.active import Appended
from palisade.journal.channel import AtOnce, Channel
from palisade.journal.errors import JournalError, ReplicaRefused
from palisade.journal.messages import FORMAT, JournalMessageKind, check_hello, refusal_of
from palisade.journal.role import RoleRunner

READ_BYTES_MAX = 4 << 20


class JournalService:
    def __init__(self, runner: RoleRunner) -> None:
        self._runner = runner

    async def serve(self, channel: Channel) -> None:
        """Runs until the connection ends. The first message must be HELLO, with the format and the role."""
        kind = 0
        appends = self._appends(channel)
        try:
            message = await channel.receive()
            if message is not None and message[0] != JournalMessageKind.HELLO:
                raise ReplicaRefused(f"message {message[0]} before HELLO: begin with HELLO")
            while message is not None:
                kind, body = message
                try:
                    await self._answer(channel, kind, body)
                except JournalError as error:
                    self._refuse(channel, error, request_in(body))
                    if kind in (JournalMessageKind.HELLO, JournalMessageKind.ATTACH):
                        await channel.drain()
                        return
                message = await channel.receive(appends)
        except JournalError as error:
            self._refuse(channel, error)
            await channel.drain()
        except (TypeError, ValueError, IndexError) as error:
            self._refuse(channel, ReplicaRefused(f"a message is invalid (the last one of kind {kind}): {error}"))
        finally:
            channel.close()

    async def _answer(self, channel: Channel, kind: int, body: list[Any]) -> None:
        runner = self._runner
        if kind == JournalMessageKind.HELLO:
            check_hello(body, runner.copy.options.role)
            channel.send(JournalMessageKind.WELCOME, [FORMAT, runner.copy.options.role, runner.copy.options.own.name])
        elif kind == JournalMessageKind.READ:
            number, first, size = body
            found, last = await runner.serving().read(first, min(size, READ_BYTES_MAX))
            channel.send(JournalMessageKind.ENTRIES, [number, found, last])
            await channel.drain()
        elif kind == JournalMessageKind.STATUS:
            channel.send(JournalMessageKind.STATE, [body[0], runner.status()])
        elif kind == JournalMessageKind.ATTACH:
            await runner.serving().replicate(channel, body)
        else:
            raise ReplicaRefused(f"message {kind} is not expected here")

    def _appends(self, channel: Channel) -> AtOnce:
        """Handles appends in the turn in which they arrive."""

        def append(kind: int, body: Any) -> bool:
            if kind != JournalMessageKind.APPEND:
                return False
            number, contents = body

            def answer(result: Appended | JournalError) -> None:
                if isinstance(result, JournalError):
                    self._refuse(channel, result, number)
                else:
                    channel.send(JournalMessageKind.APPENDED, [number, *result])

            try:
                self._runner.serving().append(contents, answer)
            except JournalError as error:
                self._refuse(channel, error, number)
            return True

        return append

    def _refuse(self, channel: Channel, error: JournalError, request: int = 0) -> None:
        holder = self._runner.holder
        self._runner.copy.tally.refused[error.code] += 1
        channel.send(JournalMessageKind.REFUSED, refusal_of(error, request, holder.address if holder else "").body())


def request_in(body: Any) -> int:
    """The id of a request; 0 if it has none."""
    return body[0] if isinstance(body, list) and body and type(body[0]) is int else 0
