"""Which node to try next: the given ones first, then those that the cluster has named; the leader where it is known.

Pure: addresses in, an address out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

AVOID_S = 10.0
"""How long a leader is not tried again that could not be reached."""


class Endpoints:
    """Goes round the known addresses. Times are the caller's clock, in seconds."""

    def __init__(self, endpoints: str | Iterable[str], *, follow_leader: bool = True) -> None:
        """`endpoints`: addresses, or one text with commas between them."""
        several = endpoints.split(",") if isinstance(endpoints, str) else endpoints
        self._given = list(dict.fromkeys(each.strip() for each in several if each.strip()))
        if not self._given:
            raise ValueError("endpoints: give host:port of at least one node")
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
        """The current one did not work: the next."""
        self._position = (self._position + 1) % len(self._known)

    def learn(self, addresses: Iterable[str]) -> None:
        """Addresses that the cluster has named, as they are now; they come after the given ones."""
        if self._follow_leader:
            current = self.current()
            self._known = list(dict.fromkeys([*self._given, *addresses]))
            self._position = self._known.index(current) if current in self._known else 0

    def better(self, member: object, leader: object, streams: Mapping[str, str], now: float) -> str | None:
        """The address of the leader, if `member`, which was reached, is not the leader and following is wanted."""
        if not self._follow_leader or leader is None or leader == member or not isinstance(leader, str):
            return None
        address = streams.get(leader)
        if address is None or self._avoid.get(address, 0.0) > now:
            return None
        return address

    def others(self, address: str) -> list[str]:
        """All known addresses but this one, in their order."""
        return [other for other in self._known if other != address]

    def avoid(self, address: str, now: float) -> None:
        self._avoid[address] = now + AVOID_S
