"""/v1/watch: changes as they are committed, as lines of JSON or as server-sent events.

One line or event per revision, in order, without gaps or duplicates. `{"progress": revision, "leader": "n1"}` means
that every change up to that revision was sent; if the leader is null, this node currently receives no new changes. A
watch that compaction overtakes ends with `{"problem": {...}}`, which names the oldest readable revision.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from palisade.api.http.open_streams import endless
from palisade.api.http.problems import problem_of
from palisade.api.http.reauthorize import reauthorize_of
from palisade.api.http.request_body import a_flag, a_number, a_text, content, query_of
from palisade.metastore.errors import Compacted
from palisade.metastore.requests import WatchRequest, prefix_end
from palisade.metastore.results import RevisionEvents
from palisade.service.authorization.needs import reading
from palisade.service.key_values import KeyValues
from palisade.service.watches import ProgressReport, Watching
from palisade.wire import json_results as shapes
from palisade.wire.auth_errors import AuthorizationError
from palisade.wire.error_codes import BadRequest

PROGRESS_S = 10.0
EVENT_STREAM = "text/event-stream"
FILTERS = {"put", "delete"}

QUERY = {
    "key": content,
    "range_end": content,
    "prefix": content,
    "start_revision": a_number,
    "prev_kv": a_flag,
    "filter": a_text,
}


class Watches:
    def __init__(self, service: KeyValues, progress_s: float = PROGRESS_S) -> None:
        self._service = service
        self._progress_s = progress_s

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/watch", self.watch, allow_head=False)]

    async def watch(self, request: web.Request) -> web.StreamResponse:
        wanted = watch_of(request)
        watching = self._service.watch(wanted, progress_s=self._progress_s)
        try:
            with endless(request):
                return await self._stream(request, watching, wanted)
        finally:
            watching.close()

    async def _stream(self, request: web.Request, watching: Watching, wanted: WatchRequest) -> web.StreamResponse:
        """A caller that has lost READ on the range gets that as an error, and no further events."""
        reauthorize, needs = reauthorize_of(request), (reading(wanted.key, wanted.range_end),)
        as_events = EVENT_STREAM in request.headers.get("Accept", "")
        response = web.StreamResponse(
            headers={"Content-Type": EVENT_STREAM if as_events else "application/x-ndjson", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        line = server_sent if as_events else json_line
        await response.write(line({"watching": True, "revision": watching.revision}, None))
        while True:
            try:
                found = await watching.next()
                await reauthorize(needs)
            except (Compacted, AuthorizationError) as error:
                await response.write(line({"problem": json.loads(problem_of(error).text or "{}")}, None))
                return response
            await response.write(lines_of(found, line, self._service.group.leader))


def lines_of(found: tuple[RevisionEvents, ...] | ProgressReport, line: Any, leader: str | None) -> bytes:
    if isinstance(found, ProgressReport):
        progress: bytes = line({"progress": found.revision, "leader": leader}, found.revision)
        return progress
    return b"".join(line(shapes.events_shape(events), events.revision) for events in found)


def json_line(shape: Any, _: int | None) -> bytes:
    return json.dumps(shape).encode() + b"\n"


def server_sent(shape: Any, revision: int | None) -> bytes:
    """The id is the revision: a browser that reconnects sends it as Last-Event-ID."""
    number = f"id: {revision}\n" if revision is not None else ""
    return f"{number}data: {json.dumps(shape)}\n\n".encode()


def watch_of(request: web.Request) -> WatchRequest:
    found = query_of(request, QUERY)
    if ("prefix" in found) == ("key" in found) or ("prefix" in found and "range_end" in found):
        raise BadRequest(
            "the query: give either prefix, or key and optionally range_end; an empty prefix= selects every key"
        )
    key, end = found.get("key", b""), found.get("range_end", b"")
    if "prefix" in found:
        key, end = found["prefix"] or b"\0", prefix_end(found["prefix"])
    last_seen = request.headers.get("Last-Event-ID")
    start = found.get("start_revision", 0) if last_seen is None else a_number(last_seen, "Last-Event-ID") + 1
    filters = frozenset(part for part in found.get("filter", "").split(",") if part)
    if not filters <= FILTERS:
        raise BadRequest(f"filter: {sorted(filters - FILTERS)[0]!r} is neither put nor delete")
    return WatchRequest(key, end, start, found.get("prev_kv", False), True, filters)
