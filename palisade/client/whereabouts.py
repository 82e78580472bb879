"""Where a client is connected, and where the leader is, as the nodes announce it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The leader as announced by `member`, which is reached at `address`. `streams`: member -> 'host:port'."""

    address: str
    member: object
    leader: str | None
    streams: Mapping[str, str]

    def trouble(self, silence: str | None) -> str | None:
        """Why no answer can arrive over this connection; None if it can. `silence`: of its node."""
        if self.leader is None:
            return f"{self.member} knows no leader, and no other node that knows one has been found"
        return silence and f"{self.member} at {self.address} {silence}"


def whereabouts(address: str, member: object, leader: object, streams: object) -> Whereabouts:
    """From the fields of a WELCOME or LEADER frame, whatever their types."""
    known = {str(name): str(stream) for name, stream in streams.items()} if type(streams) is dict else {}
    return Whereabouts(address, member, leader if isinstance(leader, str) else None, known)


class LeaderNews:
    """The leaders that nodes have announced while the client connects: the WELCOME of a node may be outdated before its
    connection is used."""

    def __init__(self) -> None:
        self._of: dict[object, tuple[object, object]] = {}

    def forget(self) -> None:
        self._of.clear()

    def note(self, member: object, leader: object, streams: object) -> None:
        self._of[member] = (leader, streams)

    def applied_to(self, found: Whereabouts) -> Whereabouts:
        newer = self._of.get(found.member)
        return found if newer is None else whereabouts(found.address, found.member, *newer)
