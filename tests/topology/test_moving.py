"""Which addresses a node announces to the cluster, and which stay unchanged."""

from __future__ import annotations

from pathlib import Path

from palisade.base.address import Address
from palisade.node.config import NodeConfig
from palisade.topology.address_announcement import current_addresses

KNOWN = {"http": "db1:7401", "peer": "db1:7501", "stream": "db1:7601"}


def config(advertise_host: str | None = None, peer_port: int = 7501) -> NodeConfig:
    http, peer, stream = (Address("127.0.0.1", port) for port in (7401, peer_port, 7601))
    return NodeConfig("n1", Path("d"), "c", http, peer, stream, advertise_host=advertise_host)


def test_another_name_of_the_same_host_is_no_move() -> None:
    assert current_addresses(KNOWN, config().own_node()) == KNOWN


def test_another_port_is() -> None:
    assert current_addresses(KNOWN, config(peer_port=7502).own_node()) == {**KNOWN, "peer": "127.0.0.1:7502"}


def test_so_is_another_host_that_was_asked_for() -> None:
    assert current_addresses(KNOWN, config("db2").own_node()) == {
        name: text.replace("db1", "db2") for name, text in KNOWN.items()
    }


def test_missing_addresses_are_added_and_unknown_ones_kept() -> None:
    known = {"peer": "db1:7501", "swim": "db1:7701"}
    assert current_addresses(known, config().own_node()) == {
        **known,
        "http": "127.0.0.1:7401",
        "stream": "127.0.0.1:7601",
    }
