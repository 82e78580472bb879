"""The HTTP server of a standalone node: reads from its vault, each answer marked; everything else is refused (R8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from node.config import NodeConfig
from node.http.body import HTTP_LIMITS
from node.http.front import HttpLimits
from node.http.problems import errors_as_answers
from node.http.v1_keys import Keys, answer
from node.refusals import WithoutCluster
from node.standalone_reads import StandaloneReads
from recovery.report import RecoveryReport
from vault.vault import Vault

CLOSE_S = 2.0
BODY_BYTES_MAX = 4 * 1024 * 1024
MARK = "Palisade-Standalone"
"""The header of every answer."""
NOT_IN_CLUSTER = "standalone: this node is not in its cluster, and shows what its vault had"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StandaloneServer:
    def __init__(self, config: NodeConfig, vault: Vault, report: RecoveryReport) -> None:
        self._config, self._vault, self._report = config, vault, report
        app = web.Application(middlewares=[errors_as_answers], client_max_size=BODY_BYTES_MAX)
        app[HTTP_LIMITS] = HttpLimits(body_bytes_max=BODY_BYTES_MAX)
        app.on_response_prepare.append(mark)
        app.add_routes(Keys(StandaloneReads(vault)).routes())
        app.add_routes(
            [
                web.get("/livez", self._live, allow_head=False),
                web.get("/readyz", self._ready, allow_head=False),
                web.get("/v1/status", self._status, allow_head=False),
                web.get("/v1/recovery", self._recovery, allow_head=False),
                web.route("*", "/v1/{rest:.*}", self._refuse),
                web.route("*", "/v3/{rest:.*}", self._refuse),
            ]
        )
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
        """Never: whoever sends traffic to nodes that are ready wants linearizable ones."""
        return answer({"ready": False, "reasons": [NOT_IN_CLUSTER]}, 503)

    async def _status(self, request: web.Request) -> web.Response:
        return answer(standalone_status(self._config, self._vault))

    async def _recovery(self, request: web.Request) -> web.Response:
        return answer({"recoveries": [self._report.as_dict()]})

    async def _refuse(self, request: web.Request) -> web.Response:
        raise WithoutCluster(
            f"{request.path} needs the cluster, and this node runs in standalone mode: it serves GET /v1/kv, POST "
            "/v1/range, GET /v1/export, /v1/status and /v1/recovery. Ask a member, or start it without --standalone"
        )


async def mark(request: web.Request, response: web.StreamResponse) -> None:
    response.headers[MARK] = "true"


def standalone_status(config: NodeConfig, vault: Vault) -> dict[str, Any]:
    """What the node says of itself. `revision` is LV."""
    lineage = vault.lineage
    return {
        "cluster": config.cluster,
        "member": config.id,
        "role": "standalone",
        "standalone": True,
        "ready": False,
        "revision": vault.revision,
        "cluster_id": lineage.cluster_id if lineage else None,
        "generation": lineage.generation if lineage else None,
        "keys": vault.key_count,
    }
