"""The HTTP API of a standalone node: reads from its vault, each response marked; all other paths are refused (R8)."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from palisade.api.http.health import Health
from palisade.api.http.openapi_document import DocumentKind
from palisade.api.http.v1_keys import Keys
from palisade.api.http.vault_metrics import VaultExposition
from palisade.api.http.vault_server import VaultServer, is_read
from palisade.node.authorization import authorizer_of
from palisade.node.config import NodeConfig
from palisade.recovery.report import RecoveryReport
from palisade.recovery.status import EndedRecovery
from palisade.service.authorization.rows import UnavailablePermissionRows
from palisade.service.standalone_reads import StandaloneReads
from palisade.vault.vault import Vault
from palisade.wire.error_codes import WithoutCluster

MARK = "Palisade-Standalone"
"""The header of every response."""
NOT_IN_CLUSTER = "standalone: this node runs without its cluster; this is the state of its vault"
READS = ("/v1/range",)
"""By POST."""


def standalone_server(config: NodeConfig, vault: Vault, report: RecoveryReport) -> VaultServer:
    recovery = EndedRecovery(vault.revision, (report,))
    metrics = VaultExposition(config.id, lambda: False, recovery)
    keys = Keys(StandaloneReads(vault)).routes()
    server = VaultServer(
        Health(DocumentKind.STANDALONE, lambda: [NOT_IN_CLUSTER], metrics),
        lambda: standalone_status(config, vault),
        recovery,
        [route for route in keys if is_read(route) or route.path in READS],
        without_cluster,
        authorizer=authorizer_of(config, UnavailablePermissionRows()),
    )
    server.app.on_response_prepare.append(mark)
    return server


async def mark(request: web.Request, response: web.StreamResponse) -> None:
    response.headers[MARK] = "true"


def without_cluster(what: str) -> WithoutCluster:
    return WithoutCluster(
        f"{what} is not served in standalone mode, in which a node has no cluster and is read-only: it serves GET "
        "/v1/kv, POST /v1/range, GET /v1/export, /v1/status and /v1/recovery. Ask a member, or start it without "
        "--standalone"
    )


def standalone_status(config: NodeConfig, vault: Vault) -> dict[str, Any]:
    """Shape `StandaloneStatus` of the API: the status of the node. `revision` is LV. It is never ready: load balancers
    that select ready nodes expect linearizable reads."""
    lineage = vault.lineage
    return {
        "cluster": config.cluster,
        "member": config.id,
        "authorization": "on" if config.authorizes else "off",
        "role": "standalone",
        "standalone": True,
        "ready": False,
        "revision": vault.revision,
        "cluster_id": lineage.cluster_id if lineage else None,
        "generation": lineage.generation if lineage else None,
        "keys": vault.key_count,
    }
