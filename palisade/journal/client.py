"""A client of a replicated journal: finds the active copy, and follows a change of roles.

    async with palisade.JournalClient("orders", ["127.0.0.1:7901", "127.0.0.1:7902"]) as journal:
        number = await journal.append(b"an entry")

A request that certainly changed nothing is sent again until its deadline. If the connection breaks before the response,
an append raises AppendUnknown: to send it again could append the entries twice, which only the program can decide.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import count
from typing import Any

from palisade.base.clock import SystemClock
from palisade.base.interval import check_seconds
from palisade.base.network_reason import reason_of
from palisade.base.wrong_port import COPY_ADDRESS
from palisade.journal.channel import Channel, Network, TcpNetwork
from palisade.journal.errors import AppendUnknown, JournalError, NotActive, NotJournalPort, WrongRole
from palisade.journal.messages import FORMAT, AppendRefusal, JournalMessageKind, read_refusal

RETRY_S = 0.05
HELLO_S = 1.0
LAST_PART = 0.05
"""No attempt begins in this last part of the timeout. An append sent too late for an answer has an unknown outcome,
whereas after refusals only, it is certain that nothing was appended."""
PATIENCE_S = 0.5
READ_BYTES = 1 << 20
NO_STATUS = UNREACHABLE, WRONG_ROLE, WRONG_PORT = "unreachable", "wrong role", "wrong port"
_system_clock = SystemClock()


class JournalClient:
    """Use it with `async with`. Appends may be in flight at the same time; one after the other keeps their order.

    `addresses`: 'host:port' of the copies. `timeout_s`: the deadline of each call."""

    def __init__(
        self,
        role: str,
        addresses: Sequence[str],
        *,
        timeout_s: float = 10.0,
        network: Network | None = None,
        clock: Callable[[], float] = _system_clock.now,
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        self._role = role
        self._addresses = list(addresses)
        if not self._addresses:
            raise ValueError("no address of a copy is given")
        self._timeout_s = timeout_s
        self._network = network or TcpNetwork()
        self._clock = clock
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()
        self._next_address = 0
        self._hint = self._tried = ""
        self._failed: dict[str, str] = {}
        """Address -> why its latest attempt failed; empty after an answer."""
        self._wrong: dict[str, str] = {}
        """Address -> reason, where a copy of another role, a node or another server listens."""
        self._asked_at: dict[object, float] = {}
        """The requests without a response, oldest first."""

    async def __aenter__(self) -> JournalClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def trouble(self) -> str | None:
        """Why a request has waited for `PATIENCE_S`; None if none has."""
        oldest = next(iter(self._asked_at.values()), None)
        if oldest is None or self._clock() - oldest < PATIENCE_S:
            return None
        return self._reasons if self._failed else f"no answer yet from {self._tried or ', '.join(self._addresses)}"

    @property
    def _reasons(self) -> str:
        """Each copy with the reason why it did not answer."""
        addresses = dict.fromkeys([*self._addresses, *self._failed])
        return "; ".join(f"{address}: {self._failed.get(address, 'not asked yet')}" for address in addresses)

    async def append(self, content: bytes) -> int:
        """The entry's number. It is on the disk of every copy that may become active. Raises AppendUnknown,
        EntryRefused, NotActive (nothing was appended)."""
        return (await self.append_many([content]))[1]

    async def append_many(self, contents: Sequence[bytes]) -> tuple[int, int]:
        """The numbers of the first and the last entry; all or none are appended. Raises as `append`."""
        _, first, last = await self._ask(JournalMessageKind.APPEND, list(contents))
        return first, last

    async def read(self, first: int = 1, size: int = READ_BYTES) -> tuple[list[tuple[int, bytes]], int]:
        """Acknowledged entries from number `first` on, about `size` bytes, and the last acknowledged number."""
        _, found, last = await self._ask(JournalMessageKind.READ, first, size)
        return [(number, content) for number, content in found], last

    async def entries(self, first: int = 1) -> AsyncIterator[tuple[int, bytes]]:
        """All acknowledged entries from number `first` on."""
        while True:
            found, _ = await self.read(first)
            if not found:
                return
            for each in found:
                yield each
            first = found[-1][0] + 1

    async def status(self, silent: set[str] | None = None) -> list[dict[str, Any]]:
        """The status of each copy, in the order of the addresses. An address without a copy of the role has only
        `address`, `state` (one of NO_STATUS) and `reason`. `silent` has the addresses that have not answered yet.

        Raises WrongRole if the copies that answer are all of other roles."""
        silent = set() if silent is None else silent
        silent.update(self._addresses)

        async def ask(address: str) -> dict[str, Any]:
            try:
                return await self._status_of(address)
            finally:
                silent.discard(address)

        found = await asyncio.gather(*map(ask, self._addresses))
        wrong = {row["address"]: row["reason"] for row in found if row["state"] == WRONG_ROLE}
        if wrong and all(row["state"] in NO_STATUS for row in found):
            raise _wrong_copies(WrongRole, wrong)
        return found

    async def _status_of(self, address: str) -> dict[str, Any]:
        try:
            connection = await self._connect(address)
        except (OSError, TimeoutError, JournalError) as error:
            state = UNREACHABLE
            if isinstance(error, WrongRole):
                state = WRONG_ROLE
            elif isinstance(error, NotJournalPort):
                state = WRONG_PORT
            return {"address": address, "state": state, "reason": _reason(error)}
        try:
            async with asyncio.timeout(HELLO_S):
                _, state = await connection.ask(JournalMessageKind.STATUS)
            return {"address": address, **state}
        except (TimeoutError, JournalError) as error:
            return {"address": address, "state": UNREACHABLE, "reason": _reason(error)}
        finally:
            connection.close()

    # One request.

    async def _ask(self, kind: JournalMessageKind, *fields: Any) -> Any:
        request = object()
        self._asked_at[request] = self._clock()
        try:
            answer = await self._ask_until(self._clock() + self._timeout_s, kind, *fields)
            self._failed.clear()
            return answer
        finally:
            del self._asked_at[request]

    async def _ask_until(self, until: float, kind: JournalMessageKind, *fields: Any) -> Any:
        while True:
            connection = self._connection
            try:
                if connection is None or connection.ended:
                    connection = None
                    connection = await self._connected()
                left_s = until - self._clock()
                if kind == JournalMessageKind.READ:
                    left_s = min(left_s, self._timeout_s / len(self._addresses))
                async with asyncio.timeout(max(0.0, left_s)):
                    return await connection.ask(kind, *fields)
            except NotActive as error:
                self._move(connection, error.active, str(error))
            except AppendUnknown as error:
                if kind == JournalMessageKind.APPEND:
                    raise AppendUnknown(f"{self._tried}: {error}; the entries may have been appended") from None
                self._move(connection, "", "the connection ended")
            except (NotJournalPort, WrongRole) as error:
                self._wrong[self._tried] = str(error)
                if self._wrong.keys() >= set(self._addresses):
                    raise _wrong_copies(type(error), self._wrong) from None
                self._move(connection, "", str(error))
            except (OSError, TimeoutError) as error:
                self._move(connection, "", reason_of(error))
                if connection is not None and kind == JournalMessageKind.APPEND:
                    raise AppendUnknown(
                        f"{self._tried}: no answer within {self._timeout_s:g} s; the entries may have been appended"
                    ) from None
            if self._clock() + RETRY_S + LAST_PART * self._timeout_s >= until:
                self._failed = dict.fromkeys(self._addresses, "not asked in time") | self._failed
                done = "appended" if kind == JournalMessageKind.APPEND else "read"
                raise NotActive(
                    f"no active copy of role {self._role} within {self._timeout_s:g} s ({self._reasons}); nothing was "
                    f"{done}. 'palisade journal status' shows the copies"
                )
            await asyncio.sleep(RETRY_S)

    def _move(self, failed: _Connection | None, hint: str, reason: str) -> None:
        """Try the copy that `hint` names, else the next one, unless another request has already switched. `reason`: why
        the latest copy gave no answer."""
        self._failed[self._tried] = reason
        if failed is not self._connection:
            return
        if failed is not None:
            failed.retire()
            self._connection = None
        if hint and hint != self._tried and not self._hint:
            self._hint = hint
        else:
            self._next_address, self._hint = self._next_address + 1, ""

    async def _connected(self) -> _Connection:
        async with self._connecting:
            if self._connection is None or self._connection.ended:
                self._connection = None
                address = self._hint or self._addresses[self._next_address % len(self._addresses)]
                self._tried = address
                self._connection = await self._connect(address)
            return self._connection

    async def _connect(self, address: str) -> _Connection:
        channel = await self._network.dial(address)
        try:
            channel.send(JournalMessageKind.HELLO, [FORMAT, self._role])
            async with asyncio.timeout(min(HELLO_S, self._timeout_s / len(self._addresses))):
                message = await channel.receive()
            if message is None:
                raise ConnectionError("closed the connection: is it a journal?")
            if message[0] == JournalMessageKind.REFUSED:
                raise read_refusal(message[1]).error()
            if message[0] != JournalMessageKind.WELCOME:
                raise NotJournalPort(f"this is not the port of a journal copy: {COPY_ADDRESS}")
        except BaseException:
            channel.close()
            raise
        return _Connection(channel)


class _Connection:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.ended = False
        self._receiving = asyncio.ensure_future(self._receive())

    async def ask(self, kind: JournalMessageKind, *fields: Any) -> Any:
        """The body of the answer. Raises the error of a refusal; AppendUnknown if the connection ended."""
        if self.ended:
            raise NotActive("the connection has ended; nothing was sent")
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._channel.send(kind, [number, *fields])
        try:
            await self._channel.drain()
            return await answer
        finally:
            self._waiting.pop(number, None)
            self._close_if_retired()

    def close(self) -> None:
        self._end()
        self._receiving.cancel()

    def retire(self) -> None:
        """Accept no new requests; return once those in flight have ended."""
        self.ended = True
        self._close_if_retired()

    def _close_if_retired(self) -> None:
        if self.ended and not self._waiting:
            self.close()

    async def _receive(self) -> None:
        with contextlib.suppress(TypeError, ValueError, LookupError):
            await self._channel.receive(self._take)
        self._end()

    def _take(self, kind: int, body: Any) -> bool:
        answer = self._waiting.get(body[0])
        if answer is not None and not answer.done():
            if kind == JournalMessageKind.REFUSED:
                answer.set_exception(_with_hint(read_refusal(body)))
            else:
                answer.set_result(body)
        return True

    def _end(self) -> None:
        self.ended = True
        self._channel.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(AppendUnknown("the connection ended before the answer"))


def _with_hint(refusal: AppendRefusal) -> JournalError:
    error = refusal.error()
    if isinstance(error, NotActive):
        error.active = refusal.active
    return error


def _wrong_copies(kind: type[JournalError], reasons: Mapping[str, str]) -> JournalError:
    """Each reason once, with its addresses."""
    texts = [
        f"{', '.join(address for address, its in reasons.items() if its == reason)}: {reason}"
        for reason in dict.fromkeys(reasons.values())
    ]
    if kind is WrongRole:
        texts.append("'palisade activation list' lists the roles")
    return kind("; ".join(texts))


def _reason(error: BaseException) -> str:
    return reason_of(error) if isinstance(error, OSError | TimeoutError) else str(error)
