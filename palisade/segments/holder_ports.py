"""The ports of the holder of segments, which it gets in its constructor, and implementations that do nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from palisade.segments.names import Wanted
from palisade.segments.sources import SegmentSource
from palisade.vault.vault import Vault


class Places(Protocol):
    """Finds the sources of a segment: `sources.Everywhere`."""

    def sources(self, name: str, wanted: Wanted, vault: Vault) -> Iterable[SegmentSource]: ...


class Announcements(Protocol):
    """Called by the holder before and after it removes a copy. See `leased_announcements.LeasedAnnouncements`."""

    async def withdraw(self, name: str, vault: Vault, *, even_if_needed: bool) -> bool:
        """Returns True once no broker returns this node for the segment. Then `removed` must be called."""
        ...

    def removed(self, name: str) -> None:
        """Call when the attempt to remove the copy has ended."""
        ...

    def changed(self) -> None:
        """Call when the local copies have changed."""
        ...

    def state(self) -> tuple[int, str | None]:
        """The number of announced copies, and why some are not announced."""
        ...


class Unannounced:
    """For a node that announces nothing."""

    async def withdraw(self, name: str, vault: Vault, *, even_if_needed: bool) -> bool:
        return True

    def removed(self, name: str) -> None: ...

    def changed(self) -> None: ...

    def state(self) -> tuple[int, str | None]:
        return 0, "this node announces nothing"


NO_RETENTION = {"works": False, "why": "retention is off on this node", "passes": 0, "refused": 0}


class SegmentRetention(Protocol):
    """The expired segments, for the holder: `expiry.Expiry`."""

    def is_expired(self, name: str, vault: Vault) -> bool: ...

    def view(self) -> Mapping[str, Any]:
        """Shape `retention` of the API's `Segments`."""
        ...


class NoRetention:
    """For a node on which no segment expires."""

    def is_expired(self, name: str, vault: Vault) -> bool:
        return False

    def view(self) -> Mapping[str, Any]:
        return NO_RETENTION
