"""/v1/feed: changes and differences for the nodes that keep a vault, as msgpack (`node/feed/wire.py` has the shapes).

What is asked and answered is in `node/feed/answers.py`. What is too large, does not end or is not called msgpack is
refused as in the whole API.
"""

from __future__ import annotations

from aiohttp import web

from node.feed import wire
from node.feed.answers import FeedAnswers
from node.http.body import read_body
from service.key_values import KeyValues


class Feed:
    """Any member of the Raft group answers."""

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
