"""The authorizer of a node according to its configuration, and the credentials that the node itself presents."""

from __future__ import annotations

import logging

from palisade.base.address import is_loopback
from palisade.node.config import NodeConfig
from palisade.service.authorization.authorizer import Authorizer, NoUser, some_user
from palisade.service.authorization.rows import PermissionRows
from palisade.wire.credentials import NodeProof, header_of, node_proof

log = logging.getLogger(__name__)


def proof_of(config: NodeConfig) -> NodeProof | None:
    """None without a join token: then the node presents no credentials."""
    return node_proof(config.join_token) if config.join_token else None


def headers_of(config: NodeConfig) -> dict[str, str]:
    """The headers of each request to another node, whether or not that node requires credentials."""
    return header_of(proof_of(config))


def authorizer_of(config: NodeConfig, rows: PermissionRows, no_user: NoUser = some_user) -> Authorizer | None:
    """None if authorization is off."""
    if config.authorizes:
        return Authorizer(rows, proof_of(config), metrics_token=config.metrics_token, no_user=no_user)
    if not all(is_loopback(address.host) for address in config.listening().values()):
        log.warning("authorization is off: every client that can reach this node may read and change everything")
    return None
