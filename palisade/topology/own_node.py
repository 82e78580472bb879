"""How a node presents itself to other nodes: its name, its cluster and its addresses.

`node/config.py` builds it from the configuration. Packages that contact other nodes receive it instead of the whole
configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from palisade.base.address import Address
from palisade.topology.seed_sources import SeedSource


@dataclass(frozen=True, slots=True)
class OwnNode:
    """`addresses`: advertised TCP addresses by port name ('http', 'peer', 'stream'), as 'host:port'.

    `host_is_fixed`: the advertised host was configured with --advertise-host, so a membership that names another host
    is out of date. `swim_listening` is the UDP address to bind, `swim_address` the one that other nodes use. `seeds`:
    SWIM addresses of other nodes. `seed_sources`: where to read more of them. `join`: HTTP address of a member of a
    running cluster.
    """

    id: str
    cluster: str
    addresses: Mapping[str, str]
    host_is_fixed: bool
    swim_listening: Address
    swim_address: str
    seeds: tuple[str, ...] = ()
    seed_sources: tuple[SeedSource, ...] = ()
    join: Address | None = None
