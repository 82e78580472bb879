"""Whether waiting for a node is useless: every known address refuses connections, waits to be initialized, or is no
stream port. Pure."""

from __future__ import annotations

from collections.abc import Collection

from palisade.base.network_reason import reason_of
from palisade.client.connection_failures import ConnectionFailures, text_of
from palisade.raftgroup.errors import Unavailable
from palisade.wire.error_codes import NotInitialized, WrongPort


class NothingListens(Unavailable):
    """Every known address refuses connections. Nothing was done."""


class RefusedAddresses:
    """The addresses that have refused since the last answer that was no refusal. `may_begin`: a node may begin to
    listen at an address that refuses connections, or may be initialized, so only wrong ports end the wait."""

    def __init__(self, *, may_begin: bool) -> None:
        self._may_begin = may_begin
        self._refused: dict[str, WrongPort | NotInitialized | None] = {}
        self.reasons = ConnectionFailures()

    def answered(self) -> None:
        self.reasons.answered()
        self._refused.clear()

    def failed(self, address: str, error: BaseException, known: Collection[str]) -> Unavailable | None:
        """`error`: of a connection to `address`. Returns the error once all `known` addresses have refused."""
        reason = reason_of(error)
        self.reasons.failed(address, reason)
        if isinstance(error, WrongPort) or (isinstance(error, NotInitialized) and not self._may_begin):
            self._refused[address] = error
        elif reason == "connection refused" and not self._may_begin:
            self._refused[address] = None
        else:
            self._refused.clear()
        if not self._refused.keys() >= set(known):
            return None
        wrong = [f"{each}: {self._refused[each]}" for each in known if isinstance(self._refused[each], WrongPort)]
        if wrong:
            return WrongPort(f"{'; '.join(wrong)}. Nothing was done")
        if any(self._refused[each] is not None for each in known):
            return NotInitialized(f"{text_of({each: self.reasons.at(each) or '' for each in known})}. Nothing was done")
        return NothingListens(f"connections are refused at {', '.join(known)}: no node listens there; nothing was done")
