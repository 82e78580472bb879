"""Errors of the HTTP API as problem documents (RFC 9457), on the /v3 paths in etcd's form.

Unexpected errors are logged with their traceback and answered without details. Requests from web pages of another
origin are refused, so that a page that a user opens in a browser cannot read or change the store.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from palisade.api.http.etcd_errors import error_fields, refused
from palisade.api.http.protobuf_json import BadJson
from palisade.api.http.request_head import HttpReply
from palisade.base.errors import PalisadeError
from palisade.metastore.errors import Compacted
from palisade.raftgroup.errors import OutcomeUnknown
from palisade.wire.error_codes import INTERNAL, BadRequest, refusal_of
from palisade.wire.fencing_errors import ReleasePending
from palisade.wire.segment_errors import SegmentsUnavailable
from palisade.wire.topology_errors import JoinRejected

log = logging.getLogger(__name__)

WHY_UNKNOWN = web.AppKey("why_unknown", PalisadeError)
"""In an application that lacks paths which other nodes serve: the response to every path that it does not serve."""
OPENAPI_LISTS = "/openapi.json lists the paths of this node"
PROBLEM_TYPE = "urn:palisade:problem:"
CHALLENGE = 'Basic realm="palisade", charset="UTF-8", Bearer realm="palisade"'
UNKNOWN_HINT = "; it may be applied or not. Read the key first, or repeat the request with the same Idempotency-Key"
OF_EVERY_ANSWER = {"Content-Type", "Content-Length", "Retry-After"}
GRPC_OF_STATUS = {403: 7, 404: 5, 405: 12, 408: 4, 413: 3, 415: 3, 501: 12}
CODE_OF_STATUS = {
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "request-timeout",
    413: "request-too-large",
    415: "unsupported-media-type",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Forbidden(PalisadeError):
    """A request of a web page of another origin."""

    code = "forbidden"


def problem_response(
    status: int, code: str, title: str, detail: str, headers: dict[str, str] | None = None, **more: Any
) -> web.Response:
    body = {"type": PROBLEM_TYPE + code, "title": title, "status": status, "detail": detail, "code": code, **more}
    given = dict(headers or {})
    if status in (429, 503):
        given.setdefault("Retry-After", "1")
    if status == 401:
        given.setdefault("WWW-Authenticate", CHALLENGE)
    return web.Response(
        status=status, body=json.dumps(body).encode(), content_type="application/problem+json", headers=given
    )


def problem_of(error: Exception) -> web.Response:
    """The response to a request that failed with `error`."""
    row = refusal_of(error)
    if row is INTERNAL:
        log.error("request failed", exc_info=error)
        return problem_response(row.status, row.code, row.title, "unexpected error; see the log of the node")
    more: dict[str, Any] = {"retry": bool(getattr(error, "retry", False))}
    if isinstance(error, Compacted):
        more["minimal_revision"] = error.minimal_revision
    if isinstance(error, ReleasePending):
        more["revision"] = error.revision
    if isinstance(error, SegmentsUnavailable):
        more["missing"] = list(error.missing)
    if isinstance(error, JoinRejected):
        more["reason"] = error.reason.value
    detail = str(error)
    if isinstance(error, OutcomeUnknown):
        detail += UNKNOWN_HINT
    return problem_response(row.status, row.code, row.title, detail, **more)


def refuse(error: Exception, reply: HttpReply) -> None:
    """Answer a request on the fast path with the problem."""
    problem = problem_of(error)
    headers = b"".join(
        f"{name}: {value}\r\n".encode() for name, value in problem.headers.items() if name not in OF_EVERY_ANSWER
    )
    reply(problem.status, bytes(problem.body or b""), headers)  # type: ignore[arg-type]


def etcd_error(status: int, message: str) -> web.Response:
    body = error_fields(message, GRPC_OF_STATUS.get(status, 2))
    return web.Response(status=status, body=body, content_type="application/json")


@web.middleware
async def errors_as_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    etcd = request.path.startswith("/v3/")
    try:
        refuse_other_origins(request)
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        error.__traceback__ = None  # the request holds this error (aiohttp_fixes.py)
        if error.status == 404 and (why := request.app.get(WHY_UNKNOWN)) is not None:
            return refusal_response(why, etcd)
        return http_error(request, error, etcd)
    except (asyncio.CancelledError, ConnectionResetError):
        raise
    except TimeoutError:
        return plain_error(408, "the body did not arrive in time", etcd)
    except Forbidden as error:
        return plain_error(403, str(error), etcd)
    except BadJson as error:
        if etcd:
            return etcd_error(400, str(error))
        return problem_of(BadRequest(str(error)))
    except Exception as error:
        return refusal_response(error, etcd)


def refusal_response(error: Exception, etcd: bool) -> web.Response:
    if etcd:
        status, body = refused(error)
        return web.Response(status=status, body=body, content_type="application/json")
    return problem_of(error)


def http_error(request: web.Request, error: web.HTTPException, etcd: bool) -> web.Response:
    """Refusals by aiohttp itself."""
    detail = error.text or error.reason
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    if error.status == 404:
        detail = f"unknown path {request.path}; {OPENAPI_LISTS}"
    elif error.status == 405:
        detail = f"{request.path} does not support {request.method}; supported: {error.headers.get('Allow', 'none')}"
    elif error.status == 413:
        detail = "the body exceeds the size limit of requests: split it"
    if etcd:
        answer = etcd_error(error.status, detail)
        answer.headers.update(headers or {})
        return answer
    code = CODE_OF_STATUS.get(error.status, f"http-{error.status}")
    return problem_response(error.status, code, error.reason, detail, headers)


def plain_error(status: int, detail: str, etcd: bool) -> web.Response:
    if etcd:
        return etcd_error(status, detail)
    title = {403: "Forbidden", 408: "Request Timeout"}[status]
    return problem_response(status, CODE_OF_STATUS[status], title, detail)


def late_body() -> bytes:
    """The problem of a request on the fast path whose body did not arrive in time."""
    return bytes(plain_error(408, "the body did not arrive in time", etcd=False).body or b"")  # type: ignore[arg-type]


def refuse_other_origins(request: web.Request) -> None:
    """Raises Forbidden. Browsers send Origin with every cross-origin request and every change that a page makes."""
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.host:
        raise Forbidden(f"a web page of {origin[:100]} must not use this API: only pages of {request.host} may")
