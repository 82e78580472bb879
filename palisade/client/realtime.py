"""Appends rows to realtime segments: they are counted as soon as they are acknowledged (docs/segments.md).

    async with client.realtime("sales", "2013-03-01", "2013-03-02", {"id": "int"}, node="n1", writer="w1") as writer:
        await writer.append([[1], [2]])

Rows go to one data node over HTTP. Each batch is sent with its position, and again until it is acknowledged, so it is
stored once. A segment that is full is closed, and the next one is opened. A program that starts again with the name of
its writer continues the segment; `rows` is the number of its stored rows. Without a name no program could continue it,
so it is closed at the end of the block, unless an error ended that: then a note at the error names the segment.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from palisade.base.counted import counted
from palisade.base.errors import PalisadeError
from palisade.base.http_request import HttpRequests, NoAnswer, import_http_client
from palisade.base.interval import check_seconds
from palisade.client.node_addresses import addresses_in
from palisade.raftgroup.errors import OutcomeUnknown, Unavailable
from palisade.wire.credentials import Credentials, header_of
from palisade.wire.error_codes import error_of
from palisade.wire.segment_errors import NoSuchSegment, NotIngesting, RealtimeFull, RealtimeNotStored, SegmentError

OPEN = "/v1/segments/realtime"
PAUSE_S = 0.1
CHECK_PART = 0.5
"""Part of the time limit in which a writer learns whether its node exists; the rest is for the request to that node,
whose error has the reason."""
REQUEST_S, CONNECT_S = 5.0, 2.0
LIVE = "/livez"
LIVE_S, LIVE_S_MAX = 1.0, 4.0
"""How long a node may take to answer LIVE before it is asked to open a segment: at first, and the maximum of later
rounds."""
OTHERS_S = 0.25
"""Time that remains for the other nodes after the first one has answered."""
OUTCOME_UNKNOWN = 504
AGAIN = {429, 503, OUTCOME_UNKNOWN}
NAME_BYTES = 12
Topology = Callable[[], Awaitable[Mapping[str, Any]]]
Members = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]


@dataclass(frozen=True, slots=True)
class RealtimeTarget:
    """`node`: the data node; without one, the first that opens the segment. `writer`: the name under which another
    program continues the segment. `replicas`: of the published segment."""

    data_source: str
    start: str
    end: str
    columns: Mapping[str, str]
    node: str = ""
    writer: str = ""
    replicas: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.writer and not self.node:
            raise ValueError("writer: give node, too: the segment is continued at the node that has it")

    def body(self) -> dict[str, Any]:
        wanted = {"data_source": self.data_source, "from": self.start, "to": self.end, "columns": dict(self.columns)}
        return {**wanted, "replicas": self.replicas}


class RealtimeWriter:
    """One open realtime segment at a time. `segment`, `rows`: its name and number of rows, after `open`. `grows`: it is
    open, as far as this writer knows. `name`: of this writer. `node`: the data node that may have its segment, or "".

    `closes`: `close` was called. `full_rows`: rows in full segments, which this writer has closed.

    `timeout_s`: of each call, which is repeated until then.
    """

    def __init__(
        self,
        topology: Topology,
        target: RealtimeTarget,
        timeout_s: float,
        credentials: Credentials | None,
        waits: Callable[[str], None] = lambda _: None,
        trouble: Callable[[], str | None] = lambda: None,
        members: Members | None = None,
    ) -> None:
        """`waits` gets what the writer waits for at a data node, or "" for nothing. `trouble`: the reason that nodes
        have given for not returning the topology, or None. `members`: of the Raft group; if given, a node that is
        unknown to the cluster is refused at once."""
        check_seconds("timeout_s", timeout_s)
        self.segment, self.rows, self.node = "", 0, target.node
        self.grows = self.closes = False
        self.full_rows = 0
        self._topology, self._target, self._timeout_s = topology, target, timeout_s
        self.name = target.writer or secrets.token_hex(NAME_BYTES)
        """Random if the caller gave none: by it, a node finds the segment again when a request is repeated."""
        self._addresses: dict[str, str] = {}
        self._waits, self._trouble, self._members = waits, trouble, members
        request_s = min(REQUEST_S, max(timeout_s, PAUSE_S))
        self._request_s = request_s
        self._requests = HttpRequests(header_of(credentials), timeout_s=request_s, connect_s=CONNECT_S)

    async def __aenter__(self) -> RealtimeWriter:
        try:
            await self.open()
        except BaseException:
            await self._requests.close()
            raise
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        """The segment of a named writer stays open, for a program that continues it. Raises as `close`."""
        try:
            if self.grows and not self._target.writer:
                await self._end(error)
        finally:
            await self.release()

    async def _end(self, error: BaseException | None) -> None:
        """After an error the segment stays open: only the program can decide whether the rows are wanted."""
        if error is None:
            await self.close()
        else:
            error.add_note(
                f"realtime segment {self.segment} stays open at node {self.node} with {counted(self.rows, 'row')}: "
                f"'palisade segments realtime close {self.segment}' publishes them"
            )

    async def release(self) -> None:
        """Close the connections."""
        await self._requests.close()

    async def open(self) -> str:
        """Returns the name of the segment. Each call of a writer continues its open segment, so a repetition opens no
        second one.

        Raises the errors of the node, and SegmentError if the cluster has no node of the name. At the deadline:
        NotIngesting if no data node has opened it, Unavailable if the named node has not, OutcomeUnknown if one may
        have: repeat it.
        """
        import_http_client()
        now = self._now()
        until = now + self._timeout_s
        if self._target.node and not self.segment:
            await self._check_exists(self._target.node, now + CHECK_PART * self._timeout_s)
        body = {**self._target.body(), "writer": self.name}
        found = await (self._ask(OPEN, body, until) if self.node else self._open_anywhere(body, until))
        self.node, self.segment, self.rows = found["node"], found["segment"], found["rows"]
        self.grows, self.closes = True, False
        return self.segment

    async def _check_exists(self, node: str, until: float) -> None:
        """The cluster knows every member, even one that is down, and any other node for a minute after it went down.
        Raises SegmentError."""
        if self._members is None:
            return
        try:
            async with asyncio.timeout_at(until):
                topology = await self._topology()
                self._addresses = addresses_in(topology)
                known = self._addresses.keys() | {row["id"] for row in topology["physical"]}
                if node in known:
                    return
                known |= {row["id"] for row in await self._members()}
        except (TimeoutError, Unavailable):
            return  # the request is repeated until the deadline, and its error has the reason
        if node not in known:
            names = ", ".join(sorted(known))
            raise SegmentError(f"there is no node {node}; the nodes are {names}; correct the name, or start the node")

    async def _open_anywhere(self, body: Mapping[str, Any], until: float) -> dict[str, Any]:
        """At the first node that answers and does not refuse it.

        A node that may have opened it remains the writer's node, also if the caller is cancelled. Opening it at another
        node would leave an empty second segment, without which no query is complete. Therefore each node is first asked
        LIVE, which changes nothing, so that frozen nodes are skipped.
        """
        reasons, live_s = "", LIVE_S
        while True:
            refusals: list[str] = []
            names = await self._known_nodes(refusals, until)
            answering = await self._answering(names, refusals, min(live_s, (until - self._now()) / 2), reasons)
            live_s = min(2 * live_s, LIVE_S_MAX)
            for name in answering:
                self.node = name
                try:
                    return await self._ask_once(OPEN, body, until, reasons)
                except NotAnsweredYet as error:
                    if not error.nothing_done:
                        seen = "; ".join([*refusals, str(error)])
                        return await self._ask(
                            OPEN, body, until, after=reasons if reasons and not error.by_node else seen
                        )
                    refusals.append(str(error))
                except (NoSuchSegment, RealtimeNotStored) as error:
                    refusals.append(f"{name}: {error}")
            self.node = ""
            if answering or not reasons:
                reasons = f"no data node has opened a realtime segment: {'; '.join(refusals)}"
            self._waits(reasons)
            if not await self._may_repeat(until):
                self._waits("")
                raise NotIngesting(self._with_trouble(reasons))

    async def _known_nodes(self, refusals: list[str], until: float) -> list[str]:
        """Their names in the topology. If the cluster does not answer: none, and `refusals` gets the reason."""
        try:
            return list(await self._look_up(until))
        except NotAnsweredYet as error:
            refusals.append(str(error))
            return []

    async def _answering(self, names: Sequence[str], refusals: list[str], limit_s: float, reasons: str) -> list[str]:
        """The nodes that answer within `limit_s`, and within `OTHERS_S` after the first answer, in their order.
        `refusals` gets the reasons of the others; `reasons`: those of the round before."""

        async def ask(name: str) -> str:
            """Why it does not answer; empty if it does."""
            try:
                await self._requests.json(addresses[name], LIVE)
            except NoAnswer as error:
                return f"{name}: {error}"
            finally:
                silent.remove(name)
                self._waits(reasons or waits_for())
            return ""

        def waits_for() -> str:
            """Names none: this round ends before a node that does not answer can be told from a slow one."""
            return f"no answer yet from {counted(len(silent), 'data node')}" if silent else ""

        addresses, silent = dict(self._addresses), list(names)
        self._waits(reasons or waits_for())
        asking = {name: asyncio.ensure_future(ask(name)) for name in names}
        try:
            await wait_for_answers(set(asking.values()), limit_s)
        finally:
            late = [name for name, answer in asking.items() if not answer.done()]
            for name in late:
                asking[name].cancel()
            await asyncio.gather(*asking.values(), return_exceptions=True)
            self._waits("")
        found = {name: f"{name}: no answer in time" if name in late else asking[name].result() for name in names}
        refusals += filter(None, found.values())
        return [name for name, why in found.items() if not why]

    async def append(self, rows: Sequence[Sequence[Any] | Mapping[str, Any]]) -> int:
        """Returns the number of rows of the segment. They are stored on the disk of the node, and counted from now on.

        Raises BadRows (nothing was stored) and RealtimeRefused. At the deadline: Unavailable if nothing was stored,
        else OutcomeUnknown: repeat it.
        """
        body = {"rows": [plain_row(row) for row in rows], "position": self.rows}
        try:
            found = await self._ask(f"/v1/segments/{self.segment}/rows", body)
        except RealtimeFull:
            self.full_rows += await self.close()
            await self.open()
            found = await self._ask(f"/v1/segments/{self.segment}/rows", {**body, "position": self.rows})
        self.rows = found["rows"]
        return self.rows

    async def close_of(self, segment: str, node: str) -> int:
        """Close a segment that another writer left open."""
        self.segment, self.node = segment, node
        return await self.close()

    async def close(self) -> int:
        """No more rows: the segment is published and handed off. Returns its number of rows."""
        self.closes = True
        found = await self._ask(f"/v1/segments/{self.segment}/close", {})
        self.grows = False
        return int(found["rows"])

    async def _ask(
        self, path: str, body: Mapping[str, Any], until: float | None = None, *, after: str = ""
    ) -> dict[str, Any]:
        """At the node of this writer. `after`: the error of an earlier attempt that may have been executed.

        Raises the errors of the node. At the deadline: Unavailable if no attempt was executed, else OutcomeUnknown;
        both with the latest reason that a node gave, even if the last attempt got no answer.
        """
        try:
            return await self._ask_until(path, body, self._now() + self._timeout_s if until is None else until, after)
        finally:
            self._waits("")

    async def _ask_until(self, path: str, body: Mapping[str, Any], until: float, after: str) -> dict[str, Any]:
        reason, nothing_done, given = after, not after, after
        while True:
            try:
                return await self._ask_once(path, body, until, reason)
            except NotAnsweredYet as error:
                reason = str(error)
                self._waits(reason)
                given = reason if error.by_node or not given else given
                nothing_done = nothing_done and error.nothing_done
                if not await self._may_repeat(until):
                    text = self._with_trouble(given if reason in given else f"{reason}; before: {given}")
                    if nothing_done:
                        raise Unavailable(f"{text}; nothing was done") from None
                    raise OutcomeUnknown(
                        f"{text}; the request may have been executed; the call can be repeated"
                    ) from None

    def _with_trouble(self, reasons: str) -> str:
        """`reasons`, and the parts of the cluster's trouble that they do not contain yet."""
        why = (self._trouble() or "").split("; ")
        return "; ".join([reasons, *(part for part in why if part not in reasons)])

    async def _may_repeat(self, until: float) -> bool:
        """After a pause. False at the deadline: a request that is sent then would be executed without an answer."""
        if self._now() + PAUSE_S >= until:
            return False
        await asyncio.sleep(PAUSE_S)
        return self._now() < until

    async def _ask_once(self, path: str, body: Mapping[str, Any], until: float, reason: str = "") -> dict[str, Any]:
        """`reason`: why the attempts before failed. Raises NotAnsweredYet, and the errors of the node."""
        node, is_known = self.node, self.node in self._addresses
        if not is_known and node not in await self._look_up(until):
            raise NotAnsweredYet(
                f"node {node} is not in the topology, or does not answer (palisade topology)", nothing_done=True
            )
        self._waits(reason or f"no answer yet from {node} at {self._addresses[node]}")
        try:
            async with asyncio.timeout_at(until):
                left_s = min(self._request_s, until - self._now())
                answer = await self._requests.json(
                    self._addresses[node], path, "POST", body, announced_timeout_s=left_s
                )
        except TimeoutError:
            raise NotAnsweredYet(f"{node}: no answer in time", nothing_done=False) from None
        except NoAnswer as error:
            self._addresses = {}
            raise NotAnsweredYet(f"{node}: {error}", nothing_done=error.unsent) from error
        finally:
            self._waits("")
        if answer.status < 400:
            found: dict[str, Any] = answer.content
            return found
        content = answer.content if isinstance(answer.content, dict) else {}
        refusal = error_of(str(content.get("code", "")), str(content.get("detail", answer.detail)))
        if is_known and path != OPEN and isinstance(refusal, NoSuchSegment):
            self._addresses = {}  # another node may have this address now
            raise NotAnsweredYet(f"{node}: {refusal}", nothing_done=True, by_node=True)
        if answer.status in AGAIN:
            stored = path != OPEN and isinstance(refusal, NotIngesting)  # perhaps: its rows are repeated
            nothing_done = answer.status != OUTCOME_UNKNOWN and not stored
            raise NotAnsweredYet(f"{node}: {refusal}", nothing_done=nothing_done, by_node=True)
        raise refusal

    async def _look_up(self, until: float) -> Mapping[str, str]:
        """The addresses of the nodes, which are used until one does not answer. Raises NotAnsweredYet."""
        try:
            async with asyncio.timeout_at(until):
                self._addresses = addresses_in(await self._topology())
        except TimeoutError:
            why = self._trouble() or "no answer in time"
            raise NotAnsweredYet(f"the topology is not known: {why}", nothing_done=True) from None
        except Unavailable as error:
            raise NotAnsweredYet(f"the topology is not known: {error}", nothing_done=True) from error
        return self._addresses

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


async def wait_for_answers(asking: set[asyncio.Future[str]], limit_s: float) -> None:
    """Waits up to `limit_s`, but at most `OTHERS_S` after the first node has answered. The result of a future is the
    reason why its node does not answer; empty if it does."""
    now = asyncio.get_running_loop().time
    end, left = now() + limit_s, asking
    while left and now() < end:
        done, left = await asyncio.wait(left, timeout=end - now(), return_when=asyncio.FIRST_COMPLETED)
        if any(not each.result() for each in done):
            end = min(end, now() + OTHERS_S)


def plain_row(row: Sequence[Any] | Mapping[str, Any]) -> Any:
    """As JSON has it: times as texts, bytes as hex digits."""
    if isinstance(row, Mapping):
        return {name: plain(value) for name, value in row.items()}
    return [plain(value) for value in row]


def plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else value


class NotAnsweredYet(PalisadeError):
    """The node did not answer, or may not answer now. `nothing_done`: a request that opens a segment opened none.
    `by_node`: the reason is that of the node."""

    code = "no-answer"
    retry = True

    def __init__(self, message: str, *, nothing_done: bool, by_node: bool = False) -> None:
        super().__init__(message)
        self.nothing_done = nothing_done
        self.by_node = by_node
