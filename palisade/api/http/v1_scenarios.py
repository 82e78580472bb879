"""/v1/scenarios: the recovery scenarios that can be run; starts one and reports its progress (R12)."""

from __future__ import annotations

from aiohttp import web

from palisade.api.http.scenario_host import ScenarioHost
from palisade.api.http.v1_cluster import nothing_in
from palisade.api.http.v1_keys import answer


class ScenarioRoutes:
    def __init__(self, host: ScenarioHost) -> None:
        self._host = host

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/scenarios", self.all, allow_head=False),
            web.get("/v1/scenarios/{name}", self.view, allow_head=False),
            web.post("/v1/scenarios/{name}", self.start),
        ]

    async def all(self, request: web.Request) -> web.Response:
        return answer({"scenarios": self._host.all()})

    async def view(self, request: web.Request) -> web.Response:
        return answer(self._host.view(request.match_info["name"]))

    async def start(self, request: web.Request) -> web.Response:
        await nothing_in(request)
        name = request.match_info["name"]
        return answer(await self._host.start(name), 202, {"Location": f"/v1/scenarios/{name}"})
