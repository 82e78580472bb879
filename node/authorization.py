"""The gate of a node as its configuration has it, and what the node itself shows to others."""

from __future__ import annotations

import logging

from palisade.node.config import NodeConfig, is_loopback
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.rows import PermissionRows
from palisade.wire.credentials import NodeProof, header_of, node_proof

log = logging.getLogger(__name__)


def proof_of(config: NodeConfig) -> NodeProof | None:
    """None without a join token: then the node shows nothing."""
    return node_proof(config.join_token) if config.join_token else None


def headers_of(config: NodeConfig) -> dict[str, str]:
    """Of each request that the node sends to another one, whether or not that one asks who it is."""
    return header_of(proof_of(config))


def authorizer_of(config: NodeConfig, rows: PermissionRows) -> Authorizer | None:
    """None where everybody may do everything."""
    if config.authorizes:
        return Authorizer(rows, proof_of(config))
    if not all(is_loopback(address.host) for address in config.listening().values()):
        log.warning("authorization is off: whoever reaches this node may read and change everything")
    return None
