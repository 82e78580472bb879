"""Stored credentials are sent only to the cluster that issued them.

`palisade login` stores a token together with the ID of its cluster. Before a command sends such a token, it asks every
address for its cluster ID, without credentials. An address with another ID ends the command; an address that does not
answer is not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from palisade.base.errors import PalisadeError
from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.base.network_reason import NO_ANSWER, reason_of
from palisade.wire.credentials import StoredToken

ASK_S = 2.0
OTHERS_S = 0.5
"""Time limit for the other addresses, once one has answered."""
READ_BYTES = 64 * 1024


class OtherCluster(PalisadeError):
    """An address belongs to another cluster than the stored token. Nothing was sent to it."""

    code = "other-cluster"


async def check_streams(
    endpoints: Sequence[str],
    token: StoredToken,
    timeout_s: float = ASK_S,
    unreached: dict[str, str] | None = None,
) -> tuple[str, ...]:
    """The endpoints that belong to the cluster of the token. `unreached`: the reason of each that has not answered.

    Raises OtherCluster, and OSError or NotInitialized if none answers."""
    reasons = unreached if unreached is not None else {}
    reasons.update(dict.fromkeys(endpoints, NO_ANSWER))

    async def cluster_at(endpoint: str) -> str:
        found = await asyncio.wait_for(cluster_at_stream(endpoint), timeout_s)
        reasons.pop(endpoint, None)
        return found

    answers = await answers_of([cluster_at(each) for each in endpoints])
    sure, failures = [], []
    for endpoint, answer in zip(endpoints, answers, strict=True):
        if isinstance(answer, BaseException):
            failures.append(answer)
            abandoned = isinstance(answer, asyncio.CancelledError)
            reasons[endpoint] = reason_of(TimeoutError() if abandoned else answer)
            continue
        require_same(endpoint, answer, token)
        sure.append(endpoint)
    if not sure:
        raise next((each for each in failures if isinstance(each, OSError)), failures[0])
    return tuple(sure)


async def answers_of(asking: Sequence[Coroutine[Any, Any, str]]) -> list[str | BaseException]:
    """The answer of each address, or its error. A frozen node delays the result by at most `OTHERS_S`."""
    tasks = [asyncio.ensure_future(each) for each in asking]
    await asyncio.wait(tasks, timeout=OTHERS_S)
    if any(each.done() and each.exception() is None for each in tasks):
        for each in tasks:
            each.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def check_http(address: str, token: StoredToken, timeout_s: float = ASK_S) -> None:
    """Raises OtherCluster, WrongPort, NoAnswer."""
    from palisade.wire.error_codes import WrongPort

    async with HttpRequests(timeout_s=timeout_s) as requests:
        answer = await requests.json(address, "/v1/login")
    found = answer.content
    if isinstance(found, dict) and found.get("code") == WrongPort.code:
        raise WrongPort(f"{address}: {found.get('detail')}")
    if answer.status != 200 or not isinstance(found, dict):
        raise NoAnswer(address, f"HTTP {answer.status} instead of the cluster ID; the token was not sent")
    require_same(address, str(found.get("cluster_id", "")), token)


def require_same(address: str, cluster_id: str, token: StoredToken) -> None:
    """Raises OtherCluster, also for a node without a cluster ID, which may become another cluster."""
    if cluster_id == token.cluster_id:
        return
    what = f"belongs to cluster {cluster_id}" if cluster_id else "does not name its cluster"
    raise OtherCluster(
        f"{address} {what}, and the token in {token.file} is for cluster {token.cluster_id}; the token was not sent. "
        "Give the --endpoints of that cluster, or sign in here with 'palisade login'"
    )


async def cluster_at_stream(endpoint: str) -> str:
    """The cluster ID of the node; empty if it has none. Raises OSError, WrongPort, NotInitialized."""
    from palisade.base.frames import FrameError, FrameParser, encode, is_http
    from palisade.base.version import VERSION
    from palisade.client.connection import SPEAKS_HTTP, refusal_in
    from palisade.wire.error_codes import NotInitialized, WrongPort
    from palisade.wire.stream_frames import PROTOCOL, FrameKind

    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    hello = {"protocol": PROTOCOL, "client": f"palisade-cli/{VERSION}", "identify": True}
    parser = FrameParser()
    try:
        writer.write(encode(FrameKind.HELLO, hello))
        while data := await reader.read(READ_BYTES):
            for kind, body in parser.feed(data):
                found = body.get("cluster_id") if kind == FrameKind.WELCOME and isinstance(body, dict) else None
                error = refusal_in(body)[1] if kind == FrameKind.REFUSED else None
                if isinstance(error, WrongPort):
                    raise WrongPort(f"{endpoint}: {error}")
                if isinstance(error, NotInitialized):
                    raise NotInitialized(f"{endpoint}: {error}")
                return str(found or "")
    except FrameError as error:
        if is_http(error):
            raise WrongPort(f"{endpoint}: {SPEAKS_HTTP}") from None
        return ""
    finally:
        writer.close()
    return ""
