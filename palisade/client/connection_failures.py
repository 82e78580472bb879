"""Why a client has no connection: the latest reason at each address. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from palisade.base.network_reason import NO_ANSWER


class ConnectionFailures:
    """Since a node answered last."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def answered(self) -> None:
        self._reasons.clear()

    def failed(self, address: str, reason: str) -> None:
        self._reasons[address] = reason

    def add(self, reasons: Mapping[str, str]) -> None:
        self._reasons.update(reasons)

    @property
    def text(self) -> str:
        """All reasons, in the order in which the addresses failed first, so that a notice changes little."""
        return text_of(self._reasons)

    def text_beside(self, silent: Iterable[str]) -> str:
        """As `text`, with those addresses that have not responded yet."""
        return text_of({**dict.fromkeys(silent, NO_ANSWER), **self._reasons})

    def at(self, address: str) -> str | None:
        return self._reasons.get(address)


def text_of(reasons: Mapping[str, str]) -> str:
    """Addresses with the same reason are named together. A "; retry" at the end of a reason is omitted, because other
    reasons may follow; the caller adds the advice to the whole text."""
    together: dict[str, list[str]] = {}
    for address, why in reasons.items():
        together.setdefault(why.removesuffix("; retry"), []).append(address)
    return "; ".join(f"{', '.join(addresses)}: {why}" for why, addresses in together.items())
