"""Fetches a segment: from other nodes, the file that its record names, or the demo data. No source is trusted.

Content is accepted only with the assigned digest over its rows (or bytes), so a truncated download or a faulty node
costs one attempt and cannot cause wrong data to be stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from palisade.base.errors import PalisadeError
from palisade.segments.assignment import score
from palisade.segments.names import Wanted, assignment_key, segment_named, wanted_of
from palisade.segments.verification import Verifier
from palisade.vault.errors import VaultError
from palisade.vault.vault import Vault
from palisade.wire.segment_errors import BadSegment, NotFetched

log = logging.getLogger(__name__)

STRANGERS_MAX = 3
"""Number of nodes without the assignment that are tried before the data set."""


class SourceFailed(PalisadeError):
    """The source cannot provide the segment. The text is a short reason."""

    code = "source-failed"


class SegmentSource(Protocol):
    """A place to fetch segments from."""

    @property
    def name(self) -> str: ...
    async def get(self, name: str, wanted: Wanted) -> bytes:
        """At most one byte more than `wanted.file_bytes_max`. Raises SourceFailed."""
        ...


async def fetch(name: str, wanted: Wanted, sources: Iterable[SegmentSource], verifier: Verifier) -> bytes:
    """The content from the first source that has it. Raises NotFetched with the reason of each source."""
    reasons = []
    for source in sources:
        try:
            content = await source.get(name, wanted)
            await check(content, wanted, verifier)
        except SourceFailed as error:
            reasons.append(f"{source.name}: {error}")
        except BadSegment as error:
            log.warning("fetched segment discarded: name=%s source=%s error=%s", name, source.name, error)
            reasons.append(f"{source.name}: {error}")
        else:
            return content
    raise NotFetched(
        f"cannot fetch segment {name} with digest {wanted.digest} ({'; '.join(reasons) or 'no source'}); retrying"
    )


async def check(content: bytes, wanted: Wanted, verifier: Verifier) -> None:
    """Raises BadSegment."""
    if not wanted.is_of_rows and len(content) != wanted.size_bytes:
        found_size = f"{len(content)} bytes" if len(content) < wanted.size_bytes else "more"
        raise BadSegment(f"expected {wanted.size_bytes} bytes, got {found_size}")
    found = await verifier.of(content)
    if found.digest != wanted.digest:
        raise BadSegment(f"wrong digest {found.digest}")
    if found != wanted:
        raise BadSegment(f"expected {wanted.size_bytes} bytes of rows, got {found.size_bytes}: publish it again")


def peers_for(name: str, wanted: Wanted, vault: Vault, others: Sequence[str]) -> list[str]:
    """The nodes of `others` to try, in order: first those with the assignment in this version, and those that announce
    the segment, then a few more.

    Each segment has its own order, which spreads the fetches of a new node over all nodes.
    """
    near = sorted(others, key=lambda node: score(node, name), reverse=True)
    held = [node for node in near if _is_holder(vault, node, name, wanted)]
    return [*held, *[node for node in near if node not in held][:STRANGERS_MAX]]


def _is_holder(vault: Vault, node: str, name: str, wanted: Wanted) -> bool:
    """False if the vault cannot be read; then all nodes are treated alike."""
    try:
        if vault.get(segment_named(name).announcement_key(node)) is not None:
            return True
        item = vault.get(assignment_key(node, name))
        return item is not None and wanted_of(item.value) == wanted
    except (VaultError, BadSegment):
        return False


class Everywhere:
    """All sources of segments. `addresses`: HTTP address by name of the other live nodes. `url_of`: of the file that
    the segment's record names; empty if none."""

    def __init__(
        self,
        addresses: Callable[[], Mapping[str, str]],
        peer: Callable[[str, str], SegmentSource],
        origin: SegmentSource,
        file: Callable[[str], SegmentSource],
        url_of: Callable[[str, Vault], str],
    ) -> None:
        self._addresses, self._peer, self._origin = addresses, peer, origin
        self._file, self._url_of = file, url_of

    def sources(self, name: str, wanted: Wanted, vault: Vault) -> Iterable[SegmentSource]:
        addresses = self._addresses()
        for node in peers_for(name, wanted, vault, list(addresses)):
            yield self._peer(node, addresses[node])
        if url := self._url_of(name, vault):
            yield self._file(url)
        yield self._origin
