"""One HTTP request to a node, for commands that work with nodes of any kind; only members have a stream."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Coroutine
from typing import Any

from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.base.wrong_port import CODE as WRONG_PORT
from palisade.cli.cluster_check import ASK_S, OtherCluster, check_http
from palisade.cli.credentials import shown
from palisade.cli.output import work_done
from palisade.cli.session import (
    INTERRUPTED,
    REFUSED,
    UNAVAILABLE,
    UNKNOWN,
    CliSession,
    Failure,
    failure_of,
    result_of,
    unauthenticated,
)
from palisade.wire.auth_errors import NoUserYet
from palisade.wire.credentials import Credentials, StoredToken, header_of

TIMEOUT_S = 5.0
AGAIN_S = 0.2
WITHOUT_CLUSTER = "standalone"
"""The code of `wire.error_codes.WithoutCluster`."""
STANDALONE = (
    "the node at {at} runs with --standalone, without its cluster and without a fence, and does not support this "
    "command: give --at of a node of the cluster. GET http://{at}/v1/kv/KEY reads the vault of the standalone node"
)
UNKNOWN_CODES = {"outcome-unknown", "release-pending"}


class RequestRefused(Exception):
    """The node refused the request with a problem of the API."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or problem))
        self.code = str(problem.get("code", "refused"))
        self.status = int(problem.get("status", 0))
        self.retry = bool(problem.get("retry", False))

    def failure(self) -> Failure:
        """The failure with the exit code of the same refusal on the stream."""
        text = unauthenticated(str(self)) if self.status == 401 else str(self)
        if self.code in UNKNOWN_CODES:
            return Failure(UNKNOWN, self.code, text, self.retry)
        return Failure(UNAVAILABLE if self.retry else REFUSED, self.code, text, self.retry)


async def checked_header(at: str, credentials: Credentials | None, timeout_s: float = ASK_S) -> dict[str, str]:
    """The header of requests to `at`. Raises OtherCluster, NoAnswer, RequestRefused (another port of a node)."""
    from palisade.wire.error_codes import WrongPort

    if isinstance(credentials, StoredToken):
        try:
            await check_http(at, credentials, min(ASK_S, timeout_s))
        except WrongPort as error:
            raise RequestRefused({"code": error.code, "detail": str(error)}) from None
    return header_of(credentials)


async def ask(
    at: str, path: str, method: str = "GET", body: Any = None, timeout_s: float = TIMEOUT_S, *, anonymous: bool = False
) -> Any:
    """The JSON of the response. `anonymous`: without credentials. Sent again until `timeout_s` while the cluster has no
    user yet. Raises NoAnswer, RequestRefused, OtherCluster."""
    until = time.monotonic() + timeout_s
    headers = {} if anonymous else await checked_header(at, shown(), timeout_s)
    while True:
        async with HttpRequests(headers, timeout_s=max(until - time.monotonic(), AGAIN_S)) as requests:
            answer = await requests.json(at, path, method, body)
        found = answer.content
        later = isinstance(found, dict) and found.get("code") == NoUserYet.code
        if not later or time.monotonic() + 2 * AGAIN_S > until:
            break
        await asyncio.sleep(AGAIN_S)
    if isinstance(found, dict) and answer.status < 400:
        return found
    if isinstance(found, dict) and "code" in found:
        texts = {WRONG_PORT: f"{at}: {found.get('detail')}", WITHOUT_CLUSTER: STANDALONE.format(at=at)}
        found = {**found, "detail": texts.get(found["code"], found.get("detail"))}
        raise RequestRefused({"status": answer.status, **found})
    raise NoAnswer(at, f"HTTP {answer.status}, not from a node")


def run_or_fail(session: CliSession, asking: Coroutine[Any, Any, Any], at: str = "") -> Any:
    """The result of the coroutine. Every error except a bug ends the process with its exit code. `at`: the address of
    the request; stderr shows that the command waits for it. Without `at` the coroutine shows its own progress."""

    async def run() -> Any:
        async with session.notice(lambda: f"no answer yet from {at}") if at else contextlib.nullcontext():
            return await asking

    try:
        found = result_of(run())
        work_done()
        return found
    except NoAnswer as error:
        busy = "the node there may be frozen or busy; 'palisade status' shows which nodes answer"
        hint = busy if error.silent_s is not None else "give the HTTP address of a running node, as in its --http"
        session.fail(Failure(UNAVAILABLE, "unreachable", f"{error}; {hint}", True))
    except RequestRefused as error:
        session.fail(error.failure())
    except BrokenPipeError:
        session.leave_closed_pipe()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OtherCluster as error:
        failure = failure_of(error, [])
        if failure is None:
            raise
        session.fail(failure)
