"""More nodes to find the cluster by: those that it knew when this node last ran, and those that another node knows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from base.address import Address
from node.http_request import HttpRequests, NoAnswer, error_text
from node.swim.record import Record
from node.topology.own_node import OwnNode
from node.topology.physical import PhysicalTopology
from node.topology.records import NodeRecord, Role

log = logging.getLogger(__name__)

RETRY_S = 1.0
TIMEOUT_S = 5.0
SEEDS_MAX = 16


def known_seeds(records: Iterable[NodeRecord]) -> list[str]:
    """SWIM addresses of the nodes that the logical topology remembers."""
    return [address for record in records if (address := record.addresses.get("swim"))]


def http_of_voters(records: Iterable[Record], own: OwnNode) -> list[str]:
    """HTTP addresses of the members of the Raft group that are there, and of the node that --join names."""
    voters = [record for record in records if record.is_live and record.tag("role") == Role.VOTER.value]
    known = [address for record in voters if (address := record.tag("http")) and record.name != own.id]
    return list(dict.fromkeys([*known, *([str(own.join)] if own.join else [])]))


def http_of_others(records: Iterable[Record], name: str) -> dict[str, str]:
    """HTTP address by name of the nodes that are there, members and followers, but for the one with this name."""
    live = [record for record in records if record.is_live and record.name != name]
    return {record.name: address for record in live if (address := record.tag("http"))}


async def ask_for_seeds(physical: PhysicalTopology, at: Address, headers: Mapping[str, str] | None = None) -> None:
    """Ask the node with this HTTP address whom it knows, until this node is not alone. `headers`: of each question."""
    async with HttpRequests(headers, timeout_s=TIMEOUT_S) as requests:
        while len(physical.swim.live()) < 2:
            try:
                physical.add_seeds(addresses_in((await requests.json(str(at), "/v1/topology")).content))
            except (NoAnswer, ValueError) as error:
                log.debug("%s does not say which nodes there are: %s", at, error_text(error))
            await asyncio.sleep(RETRY_S)


def addresses_in(topology: Any) -> list[str]:
    """Of the nodes that are there, in the shape of GET /v1/topology. Raises ValueError for another shape."""
    rows = topology.get("physical") if isinstance(topology, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("the answer is no topology")
    live = [row.get("address") for row in rows if row.get("state") in ("alive", "suspect")]
    return [str(Address.parse(address)) for address in live if isinstance(address, str)][:SEEDS_MAX]
