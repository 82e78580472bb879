"""One HTTP request to a node: timeouts, headers, error texts that are never empty, and the order of addresses.

Every failure of a node to answer raises `NoAnswer`: refused, timed out, broken off, unreadable. The caller judges the
answer itself, whatever its status.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import aiohttp

from palisade.base.errors import PalisadeError
from palisade.base.network_reason import reason_of

TIMEOUT_S = 5.0
TIMEOUT_HEADER = "Palisade-Timeout-Ms"
"""The time that the client waits for the response, so that a node which cannot answer refuses the request in time."""
NEVER_ROUNDED_S = 1e9
"""aiohttp rounds timeouts above a threshold up to a whole second: with its own one, 5.0 s lasted up to 6 s."""


class NoAnswer(PalisadeError):
    """No usable HTTP response from a node. `reason`: the cause, without the address. `unreachable`: no connection, or
    no response in time. `unsent`: no connection, so the request was not executed. `silent_s`: how long an open
    connection got no response (its node may be frozen or busy); None without a connection."""

    code = "no-answer"
    retry = True

    def __init__(
        self,
        address: str,
        reason: str,
        *,
        unreachable: bool = False,
        unsent: bool = False,
        silent_s: float | None = None,
    ) -> None:
        text = f"no node answers at {address}: {reason}"
        if silent_s is not None:
            text = f"{address} accepts connections, but has not answered within {round(silent_s, 1):g} s"
        super().__init__(text)
        self.reason = reason
        self.unreachable = unreachable
        self.unsent = unsent
        self.silent_s = silent_s


def import_http_client() -> None:
    """Imports aiohttp now. The import takes part of a second, which otherwise counts against the first request's
    timeout."""
    import aiohttp  # noqa: F401


@dataclass(frozen=True, slots=True)
class Answer:
    """`content`: its JSON."""

    status: int
    content: Any
    headers: Mapping[str, str]

    @property
    def detail(self) -> str:
        """The detail of a problem (RFC 9457); otherwise the status."""
        return problem_text(self.status, self.content)


class HttpRequests:
    """Shares connections between its requests. The first request opens the session; `close` it, or use `async with`.

    `headers`: sent with every request, such as the token that identifies nodes. `timeout_s`: of a whole request; None
    if only `connect_s` and `silent_s` (time without a byte) limit it.
    """

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = TIMEOUT_S,
        connect_s: float | None = None,
        silent_s: float | None = None,
        decompress: bool = True,
    ) -> None:
        self._headers = headers
        self._timeouts = (timeout_s, connect_s, silent_s)
        self._decompress = decompress
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> HttpRequests:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def json(
        self,
        address: str,
        path: str,
        method: str = "GET",
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        announced_timeout_s: float | None = None,
    ) -> Answer:
        """`announced_timeout_s`: sent as TIMEOUT_HEADER (in ms), if the caller waits for less than the timeout of a
        request. It does not limit the request itself.

        Raises NoAnswer, also if the content is not JSON."""
        given = {} if body is None else {"json": body}
        if announced_timeout_s is not None:
            given["headers"] = {TIMEOUT_HEADER: str(max(1, int(announced_timeout_s * 1000)))}
        async with self.open(address, path, method, params=params, **given) as response:
            try:
                content = await response.json(content_type=None)
            except ValueError:
                raise NoAnswer(address, f"HTTP {response.status}, not in JSON") from None
            return Answer(response.status, content, response.headers)

    @contextlib.asynccontextmanager
    async def open(
        self, address: str, path: str, method: str = "GET", **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response as a context manager. `options`: those of aiohttp. Raises NoAnswer, also inside the context."""
        import aiohttp

        attempt = Attempt()
        session, began = self._opened(), time.monotonic()
        try:
            url = f"http://{address}{path}"
            async with session.request(method, url, trace_request_ctx=attempt, **options) as response:
                attempt.responded = True
                yield response
        except (aiohttp.ClientError, OSError) as error:
            late = isinstance(error, TimeoutError)
            unreachable = late or isinstance(error, aiohttp.ClientConnectionError)
            unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
            unsent = unsent or (late and not attempt.connected)
            silent_s = time.monotonic() - began if late and attempt.connected and not attempt.responded else None
            reason = self._text_of(error)
            raise NoAnswer(address, reason, unreachable=unreachable, unsent=unsent, silent_s=silent_s) from error

    def _text_of(self, error: Exception) -> str:
        import aiohttp

        if isinstance(error, aiohttp.SocketTimeoutError):
            return f"nothing received for {self._timeouts[2]:g} s"
        return "no answer in time" if isinstance(error, aiohttp.ServerTimeoutError) else error_text(error)

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            total, connect, silent = self._timeouts
            timeout = aiohttp.ClientTimeout(
                total=total, sock_connect=connect, sock_read=silent, ceil_threshold=NEVER_ROUNDED_S
            )
            known = {} if total is None else {TIMEOUT_HEADER: str(int(total * 1000))}
            self._session = aiohttp.ClientSession(
                headers={**known, **(self._headers or {})},
                timeout=timeout,
                auto_decompress=self._decompress,
                trace_configs=[connecting()],
            )
        return self._session


@dataclass(slots=True)
class Attempt:
    """The progress of one request."""

    connected: bool = False
    responded: bool = False


def connecting() -> aiohttp.TraceConfig:
    """Sets `connected` in the `Attempt` of each request that gets a connection."""
    import aiohttp

    async def note(_session: object, context: Any, _event: object) -> None:
        context.trace_request_ctx.connected = True

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_end.append(note)
    tracing.on_connection_reuseconn.append(note)
    return tracing


class Addresses:
    """The order in which to ask nodes: the last one that answered first, the others in the order of `known`."""

    def __init__(self, known: Callable[[], Sequence[str]]) -> None:
        self._known = known
        self._answered = ""

    def in_order(self) -> list[str]:
        return sorted(self._known(), key=lambda each: each != self._answered)

    def answered(self, address: str) -> None:
        self._answered = address


def error_text(error: BaseException) -> str:
    """The reason, never empty: many network errors have no text."""
    return reason_of(error)


def problem_text(status: int, content: Any) -> str:
    """The text of a problem (RFC 9457), or the status if it has none."""
    if not isinstance(content, dict):
        return f"HTTP {status}"
    return str(content.get("detail") or content.get("title") or content or f"HTTP {status}")
