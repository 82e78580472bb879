"""/v1/feed: changes and differences for nodes that keep a vault, as msgpack (shapes: `recovery/feed_messages.py`).

`palisade/service/feed_service.py` answers. A body that is too large, does not end or is not declared as msgpack is
rejected, as in the whole API.
"""

from __future__ import annotations

from aiohttp import web

from palisade.api.http.request_body import read_body
from palisade.recovery import feed_messages as wire
from palisade.service.feed_service import FeedAnswers
from palisade.service.key_values import KeyValues


class FeedRoutes:
    """Served by every member of the Raft group."""

    def __init__(self, service: KeyValues) -> None:
        self._answers = FeedAnswers(service)

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/feed/{question}", self.ask)]

    async def ask(self, request: web.Request) -> web.Response:
        question = request.match_info["question"]
        if not self._answers.knows(question):
            raise web.HTTPNotFound
        if request.content_type != wire.CONTENT_TYPE:
            raise web.HTTPUnsupportedMediaType(text=f"the body is {request.content_type}; send {wire.CONTENT_TYPE}")
        status, answer = await self._answers.answer(question, await read_body(request))
        return web.Response(status=status, body=answer, content_type=wire.CONTENT_TYPE)
