"""Whether every known address of a cluster refuses connections: no node listens then, and waiting is useless. Pure."""

from __future__ import annotations

from collections.abc import Collection

from palisade.base.network_reason import reason_of
from palisade.raftgroup.errors import Unavailable


class NothingListens(Unavailable):
    """Every known address refuses connections. Nothing was done."""


class RefusedAddresses:
    """Those that have refused since one of them answered otherwise."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def answered(self) -> None:
        self._refused.clear()

    def failed(self, address: str, error: BaseException, known: Collection[str]) -> NothingListens | None:
        """`error`: of a connection to `address`. Returns the error once all `known` addresses have refused."""
        if reason_of(error) != "connection refused":
            self._refused.clear()
            return None
        self._refused.add(address)
        if not self._refused.issuperset(known):
            return None
        return NothingListens(f"connections are refused at {', '.join(known)}: no node listens there; nothing was done")
