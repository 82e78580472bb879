"""The addresses of a cluster's nodes, and which of them to try next: the given ones first, then those that the cluster
has announced; the leader if it is known.

Pure: addresses in, an address out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from palisade.base.address import STREAM_EXAMPLE, Address

EndpointsLike = str | Iterable[str | tuple[str, int]]
AVOID_S = 10.0
"""How long an unreachable leader is not tried again."""


def read_endpoints(endpoints: EndpointsLike) -> list[str]:
    """Each address as 'host:port', without duplicates. Raises ValueError, naming the address that is not one.

    `endpoints`: 'host:port', several of them separated by commas, or an iterable of such texts or (host, port) pairs.
    """
    given: object = endpoints
    if not isinstance(endpoints, Iterable) or isinstance(given, bytes | bytearray):
        raise TypeError(f"endpoints: {endpoints!r} is not an address; give 'host:port' or (host, port)")
    found: list[str] = []
    for each in (endpoints,) if isinstance(endpoints, str) else endpoints:
        if isinstance(each, str):
            found += [str(Address.parse(part.strip(), STREAM_EXAMPLE)) for part in each.split(",") if part.strip()]
        elif isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) and isinstance(each[1], int):
            found.append(str(Address(each[0].strip("[]"), each[1])))
        else:
            raise TypeError(f"endpoints: {each!r} is not an address; give 'host:port' or (host, port)")
    if not found:
        raise ValueError("endpoints: give host:port of at least one node")
    return list(dict.fromkeys(found))


class Endpoints:
    """Cycles through the known addresses. Times are the caller's clock, in seconds."""

    def __init__(self, endpoints: EndpointsLike, *, follow_leader: bool = True) -> None:
        """`endpoints` as `read_endpoints` takes them. Raises ValueError."""
        self._given = read_endpoints(endpoints)
        self._known = list(self._given)
        self._position = 0
        self._follow_leader = follow_leader
        self._avoid: dict[str, float] = {}

    @property
    def given(self) -> tuple[str, ...]:
        return tuple(self._given)

    @property
    def known(self) -> tuple[str, ...]:
        """The given addresses, and those that the cluster has named."""
        return tuple(self._known)

    @property
    def follows_leader(self) -> bool:
        return self._follow_leader

    def current(self) -> str:
        return self._known[self._position % len(self._known)]

    def advance(self) -> None:
        """Select the next address after the current one failed."""
        self._position = (self._position + 1) % len(self._known)

    def in_turn(self) -> list[str]:
        """All known addresses, from the current one on."""
        position = self._position % len(self._known)
        return [*self._known[position:], *self._known[:position]]

    def select(self, address: str) -> None:
        """It has responded: it is the current address."""
        if address in self._known:
            self._position = self._known.index(address)

    def learn(self, addresses: Iterable[str]) -> None:
        """Replace the announced addresses by these. They come after the given ones."""
        if self._follow_leader:
            current = self.current()
            self._known = list(dict.fromkeys([*self._given, *addresses]))
            self._position = self._known.index(current) if current in self._known else 0

    def better(self, member: object, leader: object, streams: Mapping[str, str], now: float) -> str | None:
        """The leader's address if the connected `member` is not the leader and the client follows the leader."""
        if not self._follow_leader or leader is None or leader == member or not isinstance(leader, str):
            return None
        address = streams.get(leader)
        if address is None or self._avoid.get(address, 0.0) > now:
            return None
        return address

    def others(self, address: str) -> list[str]:
        """All known addresses except this one, in order."""
        return [other for other in self._known if other != address]

    def avoid(self, address: str, now: float) -> None:
        self._avoid[address] = now + AVOID_S
