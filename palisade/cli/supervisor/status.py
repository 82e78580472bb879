"""The status of the nodes over HTTP; a node that does not answer has a row as well."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.node.config import InitialMember
from palisade.service.status import row_of, silent_row
from palisade.wire.credentials import header_of, node_proof

ASK_S = 2.0


class LocalNodes:
    """Sends requests to the members of a cluster. Use as `async with LocalNodes(members) as nodes`."""

    def __init__(self, members: tuple[InitialMember, ...]) -> None:
        self._addresses = {member.id: str(member.http) for member in members}
        join_token = os.environ.get("PALISADE_JOIN_TOKEN")
        headers = header_of(node_proof(join_token) if join_token else None)
        self._requests = HttpRequests(headers, timeout_s=ASK_S)

    async def __aenter__(self) -> LocalNodes:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._requests.close()

    async def ready(self) -> dict[str, bool]:
        """Node -> whether /readyz returns 200."""
        answers = await asyncio.gather(*(self._get(each, "/readyz") for each in self._addresses.values()))
        return {node: answer[0] == 200 for node, answer in zip(self._addresses, answers, strict=True)}

    async def status(self) -> list[dict[str, Any]]:
        """One row per node, in order: `palisade/service/status.py`."""
        answers = await asyncio.gather(*(self._get(each, "/v1/status") for each in self._addresses.values()))
        return [
            row_of(body, f"http://{at}") if code == 200 and isinstance(body, dict) else silent_row(node, f"http://{at}")
            for (node, at), (code, body) in zip(self._addresses.items(), answers, strict=True)
        ]

    async def _get(self, address: str, path: str) -> tuple[int, Any]:
        """(status, JSON); (0, None) without a response."""
        try:
            answer = await self._requests.json(address, path)
        except NoAnswer:
            return 0, None
        return answer.status, answer.content
