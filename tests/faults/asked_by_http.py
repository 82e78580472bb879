"""One request to one node over HTTP, and its outcome."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from palisade.metastore.errors import KeyNotFound
from palisade.metastore.requests import Range, RequestId
from palisade.metastore.results import RangeResult
from tests.faults.asking import Request
from tests.sim.http_clients import form_of, kv_from, result_from
from tests.sim.outcomes import EXPECTED, outcome_of, problem_in
from tests.sim.seen import Ok, Outcome, Path, Refused, Unknown, Why
from tests.support.processes import NodeProcess


class NoAnswer(Exception):
    """A response that a node must not send to this request."""


async def outcome_at(
    session: aiohttp.ClientSession, node: NodeProcess, path: Path, request: Request, rid: RequestId | None = None
) -> Outcome:
    """A read without a response counts as refused. Raises NoAnswer."""
    outcome: Outcome
    try:
        outcome = Ok(await _exchange(session, node, path, request, rid))
    except aiohttp.ClientConnectorError as error:
        outcome = Refused(Why.UNAVAILABLE, str(error))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        outcome = Unknown(f"{type(error).__name__}: {error}")
    except EXPECTED as error:
        outcome = outcome_of(error)
    if isinstance(request, Range) and isinstance(outcome, Unknown):
        outcome = Refused(Why.UNAVAILABLE, outcome.text)
    return outcome


async def _exchange(
    session: aiohttp.ClientSession, node: NodeProcess, path: Path, request: Request, rid: RequestId | None
) -> Any:
    """Raises the error that the response stands for."""
    if path is Path.FENCED_API:
        assert isinstance(request, Range)
        where = URL(f"http://{node.http}{fenced_path(request)}", encoded=True)
        status, body = await _answered(session.get(where))
        if status == 404 and body.get("code") == KeyNotFound.code:
            return RangeResult(0, (), False, 0)
    else:
        name, form = form_of(request)
        once = {"Idempotency-Key": f"{rid.client}/{rid.sequence}"} if rid is not None else None
        status, body = await _answered(session.post(f"http://{node.http}/v1/{name}", json=form, headers=once))
    if status == 500 or (status >= 400 and "code" not in body):
        raise NoAnswer(f"{node.id} answers {request} with {status}: {body}")
    if status >= 400:
        raise problem_in(body)
    if path is not Path.FENCED_API:
        return result_from(request, body)
    kvs = tuple(map(kv_from, body["kvs"] if request.range_end else (body["kv"],)))
    return RangeResult(body["revision"] if request.range_end else 0, kvs, body.get("more", False), len(kvs))


def fenced_path(request: Range) -> str:
    """Of a key, or of a range, whose result names its revision."""
    key, end = quote(request.key, safe=""), quote(request.range_end, safe="")
    return f"/v1/fenced?key={key}&range_end={end}" if end else f"/v1/fenced/{key}"


async def _answered(asked: Any) -> tuple[int, dict[str, Any]]:
    async with asked as answer:
        text = await answer.text()
        try:
            return answer.status, dict(json.loads(text))
        except ValueError:
            return answer.status, {"no JSON": text[:500]}
