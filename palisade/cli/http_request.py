"""One question to a node over HTTP, for commands that any kind of node answers; the stream is of members alone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.cli.credentials import headers
from palisade.cli.session import INTERRUPTED, REFUSED, UNAVAILABLE, CliSession, Failure

TIMEOUT_S = 5.0


class RequestRefused(Exception):
    """The node has refused it: a problem of the API."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or problem))
        self.code = str(problem.get("code", "refused"))
        self.retry = bool(problem.get("retry", False))


async def ask(at: str, path: str, method: str = "GET", body: Any = None, timeout_s: float = TIMEOUT_S) -> Any:
    """The JSON of the answer. Raises NoAnswer, Refused."""
    async with HttpRequests(headers(), timeout_s=timeout_s) as requests:
        answer = await requests.json(at, path, method, body)
    found = answer.content
    if isinstance(found, dict) and answer.status < 400:
        return found
    if isinstance(found, dict) and "code" in found:
        raise RequestRefused(found)
    raise NoAnswer(at, f"HTTP {answer.status}, not from a node")


def run_or_fail(session: CliSession, asking: Coroutine[Any, Any, Any]) -> Any:
    """What the coroutine returns. Every end of it that is not a bug of ours ends the process with its exit code."""
    try:
        return asyncio.run(asking)
    except NoAnswer as error:
        hint = "give the HTTP address of a running node, as in its --http"
        session.fail(Failure(UNAVAILABLE, "unreachable", f"{error}; {hint}", True))
    except RequestRefused as error:
        session.fail(Failure(UNAVAILABLE if error.retry else REFUSED, error.code, str(error), error.retry))
    except BrokenPipeError:
        session.leave_closed_pipe()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
