"""The HTTP server of a follower: its health, its state, its view of the topology, its recoveries."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from node.config import NodeConfig
from node.http.problems import errors_as_answers
from node.http.v1_keys import answer
from node.http.v1_partitions import PartitionRoutes
from node.partitions.holder import PartitionHolder
from node.topology.face import Topology
from node.vault_keeper import VaultKeeper

CLOSE_S = 2.0
BODY_BYTES_MAX = 64 * 1024


class FollowerServer:
    def __init__(
        self, config: NodeConfig, topology: Topology, keeper: VaultKeeper, partitions: PartitionHolder | None = None
    ) -> None:
        self._config, self._topology, self._keeper = config, topology, keeper
        app = web.Application(middlewares=[errors_as_answers], client_max_size=BODY_BYTES_MAX)
        app.add_routes(
            [
                web.get("/livez", self._live, allow_head=False),
                web.get("/readyz", self._ready, allow_head=False),
                web.get("/v1/status", self._status, allow_head=False),
                web.get("/v1/topology", self._view, allow_head=False),
                web.get("/v1/recovery", self._recovery, allow_head=False),
            ]
        )
        app.add_routes(PartitionRoutes(config.id, partitions).routes())
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=CLOSE_S)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError when the port can't be had."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _live(self, request: web.Request) -> web.Response:
        return answer({"live": True})

    async def _ready(self, request: web.Request) -> web.Response:
        """Ready is who is in the logical topology."""
        own = self._topology.own_view()
        waiting = f": {own['waiting_for']}" if own["waiting_for"] else ""
        reasons = [] if self._topology.is_active else [f"{own['phase']}{waiting}"]
        return answer({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def _status(self, request: web.Request) -> web.Response:
        return answer(follower_status(self._config, self._topology, self._keeper))

    async def _view(self, request: web.Request) -> web.Response:
        return answer(self._topology.view())

    async def _recovery(self, request: web.Request) -> web.Response:
        return answer({"recoveries": [report.as_dict() for report in self._keeper.reports]})


def follower_status(config: NodeConfig, topology: Topology, keeper: VaultKeeper) -> dict[str, Any]:
    """What a follower says of itself. `revision` is LV."""
    return {
        "cluster": config.cluster,
        "member": config.id,
        "role": "follower-node",
        "ready": topology.is_active,
        "revision": keeper.revision,
        "topology": topology.own_view(),
    }
