"""One request to one node over HTTP, and its outcome."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from palisade.metastore.requests import Range, RequestId
from tests.sim.http_clients import form_of, result_in
from tests.sim.outcomes import outcome_from
from tests.sim.seen import Outcome, Path, Request
from tests.support.processes import NodeProcess

REFUSED = (aiohttp.ClientConnectorError,)
LOST = (aiohttp.ClientError, TimeoutError, OSError)


async def outcome_at(
    session: aiohttp.ClientSession, node: NodeProcess, path: Path, request: Request, rid: RequestId | None = None
) -> Outcome:
    return await outcome_from(_exchange(session, node, path, request, rid), request, refused=REFUSED, lost=LOST)


async def _exchange(
    session: aiohttp.ClientSession, node: NodeProcess, path: Path, request: Request, rid: RequestId | None
) -> Any:
    """Raises the error that the response stands for."""
    if path is Path.FENCED_API:
        assert isinstance(request, Range)
        where = URL(f"http://{node.http}{fenced_path(request)}", encoded=True)
        status, body = await _answered(session.get(where))
    else:
        name, form = form_of(request)
        once = {"Idempotency-Key": f"{rid.client}/{rid.sequence}"} if rid is not None else None
        status, body = await _answered(session.post(f"http://{node.http}/v1/{name}", json=form, headers=once))
    return result_in(node.id, path, request, status, body)


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
