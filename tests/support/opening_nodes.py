"""Data nodes that open realtime segments for a writer, without processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from palisade.base.http_request import Answer, NoAnswer
from palisade.client.realtime import RealtimeTarget, RealtimeWriter
from palisade.raftgroup.errors import Unavailable

TIMEOUT = NoAnswer("n", "timed out", unreachable=True)
REFUSED = NoAnswer("n", "connection refused", unreachable=True, unsent=True)
SEGMENT = "sales/2013-03-01T00:00:00.000Z/2013-03-02T00:00:00.000Z/0000000000000001/0000"
PROBLEMS = {
    503: "realtime-not-announced",
    504: "outcome-unknown",
    507: "realtime-not-stored",
    404: "no-such-segment",
    409: "catalog-not-allowed",
}


class DataNodes:
    """n1 to n3, which open segments. `outcomes`: of the next requests by node: an error that the client sees after the
    node has opened the segment, unless it was not sent; or the status of a refusal."""

    def __init__(self, **outcomes: list[Any]) -> None:
        self.outcomes = outcomes
        self.opened: dict[tuple[str, str], str] = {}
        """By node and writer."""
        self.asked: list[str] = []
        self.frozen = ""
        """Freezes when it is asked to open a segment."""
        self.silent: set[str] = set()
        """Nodes that answer nothing."""
        self.looked_up = 0
        self.rows = 0
        self.closed: list[str] = []
        self.unavailable = 0
        """How often the topology is still not known."""

    async def topology(self) -> dict[str, Any]:
        self.looked_up += 1
        if self.unavailable:
            self.unavailable -= 1
            raise Unavailable("no leader")
        logical = [{"id": name, "addresses": {"http": name}} for name in ("n1", "n2", "n3")]
        return {"logical": logical, "physical": [{"id": "f1", "state": "dead"}]}

    async def members(self) -> list[dict[str, Any]]:
        return [{"id": name} for name in ("n1", "n2", "n3", "n4")]

    async def json(
        self,
        address: str,
        path: str,
        method: str = "GET",
        body: Mapping[str, Any] | None = None,
        announced_timeout_s: float = 0.0,
    ) -> Answer:
        if address in self.silent:
            await asyncio.Event().wait()
        if path == "/livez":
            return Answer(200, {"live": True}, {})
        assert body is not None
        self.asked.append(address)
        waiting = self.outcomes.get(address, [])
        outcome = waiting.pop(0) if len(waiting) > 1 else (waiting or [200])[0]
        if outcome is REFUSED:
            raise outcome
        if isinstance(outcome, int) and outcome != 200:
            return Answer(outcome, {"code": PROBLEMS[outcome], "detail": f"status {outcome}"}, {})
        if path.endswith("/close"):
            self.closed.append(path.removeprefix("/v1/segments/").removesuffix("/close"))
            return Answer(200, {"node": address, "segment": path, "rows": self.rows}, {})
        if path.endswith("/rows"):
            self.rows = body["position"] + len(body["rows"])
            return Answer(200, {"node": address, "segment": path, "rows": self.rows}, {})
        name = self.opened.setdefault((address, body["writer"]), f"{SEGMENT}{len(self.opened)}")
        if address == self.frozen:
            await asyncio.Event().wait()
        if isinstance(outcome, Exception):
            raise outcome
        return Answer(200, {"node": address, "segment": name, "rows": 0}, {})

    def writer(self, timeout_s: float = 5.0, **target: str) -> RealtimeWriter:
        wanted = RealtimeTarget("sales", "2013-03-01", "2013-03-02", {"id": "int"}, **target)
        found = RealtimeWriter(self.topology, wanted, timeout_s, None, members=self.members)
        found._requests.json = self.json  # type: ignore[assignment,method-assign]
        return found
