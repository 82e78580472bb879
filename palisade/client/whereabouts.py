"""Where a client is connected, and where the leader is, as the nodes announce it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from palisade.client.connection_failures import text_of
from palisade.raftgroup.errors import Unavailable

NO_LEADER = "knows no leader, and no other node that knows one has been found"


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The leader as announced by `member`, which is reached at `address`. `streams`: member -> 'host:port'."""

    address: str
    member: object
    leader: str | None
    streams: Mapping[str, str]

    def trouble(self, silence: str | None, unreached: Mapping[str, str] = MappingProxyType({})) -> str | None:
        """Why no answer can arrive over this connection; None if it can. `silence`: of its node. `unreached`: why other
        nodes do not answer, by address."""
        if self.leader is None:
            return "; ".join(filter(None, [f"{self.member} {NO_LEADER}", self.named(unreached)]))
        return silence and f"{self.member} at {self.address} {silence}"

    def named(self, unreached: Mapping[str, str]) -> str:
        names = {stream: f"{name} at {stream}" for name, stream in self.streams.items()}
        return text_of({names.get(address, address): why for address, why in unreached.items()})


def unconnected(why: str, silent: Collection[str]) -> str:
    """Why a client without a connection has none. `silent`: the addresses that have not responded yet."""
    return f"no connection yet: {why}" if silent else f"no connection to a node ({why})"


def beside(error: Exception, found: Whereabouts | None, unreached: Mapping[str, str]) -> Exception:
    """`error`, with the nodes that do not answer if it is the refusal of a node that knows no leader."""
    if type(error) is not Unavailable or found is None or found.leader is not None or not unreached:
        return error
    return Unavailable(f"{error}; {found.named(unreached)}")


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
