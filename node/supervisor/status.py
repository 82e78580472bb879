"""What the nodes say of themselves, asked over HTTP; a node that doesn't answer is a row too."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import aiohttp

from node.authorization.credentials import header_of, node_proof
from node.config import InitialMember
from node.status_view import row_of, silent_row

ASK_S = 2.0


class Nodes:
    """Asks the members of a cluster. Use as `async with Nodes(members) as nodes`."""

    def __init__(self, members: tuple[InitialMember, ...]) -> None:
        self._urls = {member.id: f"http://{member.http}" for member in members}
        join_token = os.environ.get("PALISADE_JOIN_TOKEN")
        self._headers = header_of(node_proof(join_token) if join_token else None)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Nodes:
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=ASK_S))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def ready(self) -> dict[str, bool]:
        """Node -> whether it answers /readyz with 200."""
        answers = await asyncio.gather(*(self._get(url, "/readyz") for url in self._urls.values()))
        return {node: answer[0] == 200 for node, answer in zip(self._urls, answers, strict=True)}

    async def status(self) -> list[dict[str, Any]]:
        """One row per node, in order: `node/status_view.py`."""
        answers = await asyncio.gather(*(self._get(url, "/v1/status") for url in self._urls.values()))
        return [
            row_of(body, url) if code == 200 and isinstance(body, dict) else silent_row(node, url)
            for (node, url), (code, body) in zip(self._urls.items(), answers, strict=True)
        ]

    async def _get(self, url: str, path: str) -> tuple[int, Any]:
        """(status, JSON); (0, None) when there is no answer."""
        if self._session is None:
            raise RuntimeError("use it in 'async with'")
        try:
            async with self._session.get(url + path) as answer:
                return answer.status, await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return 0, None
