"""The nodes of a local cluster and their ports: HTTP base + i, peer base + 100 + i, stream base + 200 + i, SWIM base +
300 + i (UDP).

Pure. The layout is fixed when the cluster is created, since the members know each other by their addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palisade.base.address import Address
from palisade.base.errors import ConfigError
from palisade.base.identifier import check_id
from palisade.node.config import InitialMember

BASE_PORT = 7400
NODES = 3
NODES_MAX = 9
PEER_OFFSET = 100
STREAM_OFFSET = 200
SWIM_OFFSET = 300
BASE_PORT_MIN, BASE_PORT_MAX = 1024, 65535 - SWIM_OFFSET - NODES_MAX
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Layout:
    cluster: str
    nodes: int = NODES
    base_port: int = BASE_PORT

    def __post_init__(self) -> None:
        check_id("cluster", self.cluster)
        if not 1 <= self.nodes <= NODES_MAX:
            raise ConfigError(
                f"{self.nodes} is out of range; give 1 to {NODES_MAX}, best an odd number", option="nodes"
            )
        if not BASE_PORT_MIN <= self.base_port <= BASE_PORT_MAX:
            raise ConfigError(
                f"{self.base_port} is out of range; give {BASE_PORT_MIN} to {BASE_PORT_MAX}", option="base-port"
            )

    def members(self) -> tuple[InitialMember, ...]:
        return tuple(
            InitialMember(
                f"n{number}",
                peer=Address(LOOPBACK, self.base_port + PEER_OFFSET + number),
                http=Address(LOOPBACK, self.base_port + number),
                stream=Address(LOOPBACK, self.base_port + STREAM_OFFSET + number),
            )
            for number in range(1, self.nodes + 1)
        )

    def swim(self) -> dict[str, Address]:
        """By the name of the node."""
        numbers = range(1, self.nodes + 1)
        return {f"n{number}": Address(LOOPBACK, self.base_port + SWIM_OFFSET + number) for number in numbers}

    def initial_cluster(self) -> str:
        """The founding members, in the form of the option of a node."""
        return ",".join(map(str, self.members()))

    def to_json(self) -> dict[str, Any]:
        return {"cluster": self.cluster, "nodes": self.nodes, "base_port": self.base_port}


def layout_from_json(content: Mapping[str, Any]) -> Layout:
    """Raises ConfigError if a field is missing or invalid."""
    cluster, nodes, base_port = content.get("cluster"), content.get("nodes"), content.get("base_port")
    if not isinstance(cluster, str) or not isinstance(nodes, int) or not isinstance(base_port, int):
        raise ConfigError(f"cluster.json: {dict(content)} lacks cluster, nodes or base_port; restore the file")
    return Layout(cluster, nodes, base_port)


def check_same(stored: Layout, nodes: int | None, base_port: int | None) -> None:
    """Raises ConfigError if the request differs from the stored layout."""
    if nodes is not None and nodes != stored.nodes:
        raise ConfigError(
            f"{nodes} was given, but the cluster in this folder has {stored.nodes}; omit --nodes, or give "
            "another --data-dir (running clusters change with 'palisade member')",
            option="nodes",
        )
    if base_port is not None and base_port != stored.base_port:
        raise ConfigError(
            f"{base_port} was given, but the cluster in this folder was formatted with {stored.base_port}, "
            f"and its ports cannot change. Omit --base-port, or give another --data-dir; to run a backup on other "
            f"ports, restore it with 'palisade restore --base-port {base_port}'",
            option="base-port",
        )
