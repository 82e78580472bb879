"""Addresses of nodes that are known already: from the last run of this node, from SWIM, or to another node.

Sources that are configured with `--seeds-from`: `seed_sources.py`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from palisade.base.address import Address
from palisade.base.http_request import HttpRequests, NoAnswer, error_text
from palisade.topology.own_node import OwnNode
from palisade.topology.physical import PhysicalTopology
from palisade.topology.records import NodeRecord, NodeRole
from palisade.topology.swim.record import Record

log = logging.getLogger(__name__)

RETRY_S = 1.0
TIMEOUT_S = 5.0
SEEDS_MAX = 16


def known_seeds(records: Iterable[NodeRecord]) -> list[str]:
    """SWIM addresses in the records of the logical topology."""
    return [address for record in records if (address := record.addresses.get("swim"))]


def http_of_voters(records: Iterable[Record], own: OwnNode) -> list[str]:
    """HTTP addresses of the live members of the Raft group, and of the node given with --join."""
    voters = [record for record in records if record.is_live and record.tag("role") == NodeRole.VOTER.value]
    known = [address for record in voters if (address := record.tag("http")) and record.name != own.id]
    return list(dict.fromkeys([*known, *([str(own.join)] if own.join else [])]))


def http_of_others(records: Iterable[Record], name: str) -> dict[str, str]:
    """HTTP address by name of the live nodes, members and followers, except the one with this name."""
    live = [record for record in records if record.is_live and record.name != name]
    return {record.name: address for record in live if (address := record.tag("http"))}


async def ask_for_seeds(physical: PhysicalTopology, at: Address, headers: Mapping[str, str] | None = None) -> None:
    """Fetch seeds from the node at this HTTP address until this node has found another. `headers`: of each request."""
    async with HttpRequests(headers, timeout_s=TIMEOUT_S) as requests:
        while len(physical.swim.live()) < 2:
            try:
                physical.add_seeds(addresses_in((await requests.json(str(at), "/v1/topology")).content))
            except (NoAnswer, ValueError) as error:
                log.debug("no seeds received: address=%s error=%s", at, error_text(error))
            await asyncio.sleep(RETRY_S)


def addresses_in(topology: Any) -> list[str]:
    """SWIM addresses of the live nodes in a response of GET /v1/topology. Raises ValueError for any other shape."""
    rows = topology.get("physical") if isinstance(topology, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("unexpected response: not a topology")
    live = [row.get("address") for row in rows if row.get("state") in ("alive", "suspect")]
    return [str(Address.parse(address)) for address in live if isinstance(address, str)][:SEEDS_MAX]
