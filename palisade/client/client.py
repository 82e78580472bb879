"""The asyncio client of a cluster, over the pipelined stream."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palisade.base.content import Content, as_bytes
from palisade.base.interval import check_interval
from palisade.client.bulk_puts import Many
from palisade.client.call_kinds import CALL_KINDS
from palisade.client.endpoints import Endpoints, EndpointsLike
from palisade.client.recording_files import Recording, open_recorder
from palisade.client.request_check import check_arguments
from palisade.client.session import StreamSession
from palisade.client.store_api import StoreApi
from palisade.client.watch import Watch
from palisade.metastore.command_codec import decode_result, encode_command, operation_fields
from palisade.metastore.requests import Command, Range, RequestId, WatchRequest
from palisade.metastore.results import PutResult, RangeResult
from palisade.metastore.validation import is_read_only
from palisade.wire.credentials import Credentials
from palisade.wire.stream_frames import FrameKind

CLIENT_ID_BYTES = 8


class Client(StoreApi):
    """Use it with `async with`. Any number of requests may be in flight. Each is retried safely until its deadline,
    across reconnections and changes of leader.

    `endpoints`: 'host:port' of the streams of one or more nodes: a text with commas, or an iterable of texts or
    (host, port) pairs. Raises ValueError if one is not an address.
    `timeout_s`: the deadline of requests without one of their own.
    `client_id`: identifies this client in request ids; must never be used twice. Random by default.
    `exactly_once` False omits request ids; then a write whose connection breaks ends as OutcomeUnknown.
    `follow_leader` False stays with the given endpoints instead of moving to the leader.
    `wait_for_nodes` False: requests fail at once, not at their deadline, when all addresses refuse connections.
    `credentials`: `Password(user, password)` or `Token(text)`, for nodes with authorization.
    `record`: a folder, or a `Recording`, for a history of the operations that `palisade pipeline run audit` checks.
    """

    def __init__(
        self,
        endpoints: EndpointsLike,
        *,
        timeout_s: float = 5.0,
        client_id: str | None = None,
        exactly_once: bool = True,
        follow_leader: bool = True,
        credentials: Credentials | None = None,
        wait_for_nodes: bool = True,
        record: str | Path | Recording | None = None,
    ) -> None:
        check_interval("timeout_s", timeout_s)
        self._route = Endpoints(endpoints, follow_leader=follow_leader)
        self._session = StreamSession(self._route, timeout_s, credentials, wait_for_nodes=wait_for_nodes)
        self._credentials = credentials
        self._deadline_s = timeout_s
        self._id = client_id or ""
        self._exactly_once = exactly_once
        self._sequence = 0
        self._recording = Recording(record) if isinstance(record, str | Path) else record

    async def __aenter__(self) -> Client:
        """The id is chosen here, so that a client created before a fork has different ids in parent and child."""
        self._id = self._id or secrets.token_hex(CLIENT_ID_BYTES)
        recorder = None if self._recording is None else open_recorder(self._recording, self._id)
        if recorder is not None:
            recorder.begin(asyncio.get_running_loop().call_later)
        self._session.open(recorder)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the pending requests and the connection."""
        await self._session.close()

    @property
    def trouble(self) -> str | None:
        """Why no answer can arrive at the moment (no connection, no leader, a lookup that is refused and repeated);
        None otherwise."""
        return self._connection_trouble or self._refused_now

    @property
    def has_uncertain_write(self) -> bool:
        """Whether a pending write has been sent, so that it may be applied even if its outcome is not received."""
        return self._session.has_uncertain_write

    @property
    def _connection_trouble(self) -> str | None:
        return self._session.trouble

    @property
    def connected_to(self) -> str:
        """The node that the requests are sent to, with its address, for messages."""
        return self._session.connected_to

    @property
    def receiving_bytes(self) -> int:
        """Bytes received so far of an answer that is not complete yet; 0 if there is none."""
        return 0 if self._session.link is None else self._session.link.kept_bytes

    def _other_nodes(self) -> list[Client]:
        """A client for each known address except the connected one: the given addresses and, if this client follows
        the leader, those that nodes have announced."""
        return [
            Client(address, timeout_s=self._deadline_s, follow_leader=False, credentials=self._credentials)
            for address in self._route.others(self._session.address)
        ]

    def add_unreached(self, reasons: Mapping[str, str]) -> None:
        """Adds addresses that were found unreachable elsewhere, with their reasons, to the messages of this client."""
        self._session.refused_at.reasons.add(reasons)

    def why_unconnected(self, address: str) -> str | None:
        """Why the latest attempt to connect to this address failed; None if it did not."""
        return self._session.refused_at.reasons.at(address)

    async def _write(self, request: Command, timeout_s: float | None = None) -> Any:
        if self._session.is_full():
            await self._session.admit()
        rid = self._next_request_id()
        command = encode_command(request, rid and RequestId(*rid))
        return decode_result(await self._propose(command, timeout_s, writes=not is_read_only(request)))

    async def _put(self, key: bytes, value: bytes, timeout_s: float | None) -> PutResult:
        if self._session.is_full():
            await self._session.admit()
        once = self._exactly_once
        content = (self._next_request_id(), key, value)
        answer = self._session.send(
            FrameKind.WRITES, content, len(key) + len(value), timeout_s, repeatable=once, writes=True
        )
        result: PutResult = decode_result(await answer)
        return result

    def _next_request_id(self) -> tuple[str, int] | None:
        """(client, sequence). Must be sent without awaiting anything first: a node remembers only the newest ones."""
        if not self._exactly_once:
            return None
        self._sequence += 1
        return self._id, self._sequence

    def _propose(self, command: bytes, timeout_s: float | None, *, writes: bool) -> asyncio.Future[Any]:
        """`writes` False: of a transaction that only reads."""
        once = self._exactly_once or not writes
        return self._session.send(FrameKind.WRITES, command, len(command), timeout_s, repeatable=once, writes=writes)

    async def _read(self, request: Range, timeout_s: float | None = None) -> RangeResult:
        await self._session.admit()
        fields = operation_fields(request)
        size = len(request.key) + len(request.range_end) + 64
        answer = self._session.send(FrameKind.READS, fields, size, timeout_s, repeatable=True, writes=False)
        result: RangeResult = decode_result(await answer)
        return result

    async def _call(self, name: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        check_arguments(name, arguments)
        await self._session.admit()
        kind, content = CALL_KINDS[name], (name, list(arguments))
        return await self._session.send(
            FrameKind.CALL, content, 0, timeout_s, repeatable=kind.repeatable, writes=kind.writes
        )

    async def _call_once(self, name: str, request: Command) -> Any:
        await self._session.admit()
        rid = self._next_request_id()
        command = encode_command(request, rid and RequestId(*rid))
        return await self._session.send(
            FrameKind.CALL, (name, [command]), len(command), None, repeatable=self._exactly_once, writes=True
        )

    def _watch(self, request: WatchRequest, progress_s: float | None) -> Watch:
        return self._session.watch(request, progress_s)

    def _put_one_of(self, many: Many, key: Content, value: Content) -> bool:
        session, once = self._session, self._exactly_once
        content = (self._next_request_id(), as_bytes(key), as_bytes(value))
        size = len(content[1]) + len(content[2])
        session.send_for(many, FrameKind.WRITES, content, size, None, repeatable=once, writes=True)
        return many.begin() and not session.is_full()

    async def _room_for(self, many: Many) -> None:
        await many.room()
        if self._session.is_full():
            await self._session.admit()
