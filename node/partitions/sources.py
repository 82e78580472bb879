"""Where a partition is fetched from: other nodes that have it, then the data set it comes from. Nobody is believed.

What comes from anywhere counts only if it has the size and the digest that were asked for; so a truncated download, a
damaged or a lying node costs a try, and never puts anything wrong on the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from base.errors import PalisadeError
from node.partitions.assignment import score
from node.partitions.errors import BadPartition, NotFetched
from node.partitions.names import Wanted, assignment_key, wanted_of
from node.partitions.shelf import version_of
from vault.errors import VaultError
from vault.vault import Vault

log = logging.getLogger(__name__)

STRANGERS_MAX = 3
"""Nodes that may have it, though it is not assigned to them: so many are asked before the data set is."""


class SourceFailed(PalisadeError):
    """It does not give the partition: why, in a few words."""

    code = "source-failed"


class Source(Protocol):
    """One place to fetch from."""

    @property
    def name(self) -> str: ...
    async def get(self, name: str, wanted: Wanted) -> bytes:
        """Not more than one byte more than `wanted` has. Raises SourceFailed."""
        ...


async def fetch(name: str, wanted: Wanted, sources: Iterable[Source]) -> bytes:
    """From the first one that has it. Raises NotFetched, with what each said."""
    said = []
    for source in sources:
        try:
            content = await source.get(name, wanted)
            check(content, wanted)
        except SourceFailed as error:
            said.append(f"{source.name}: {error}")
        except BadPartition as error:
            log.warning("partition %s from %s is not taken: %s", name, source.name, error)
            said.append(f"{source.name}: {error}")
        else:
            return content
    raise NotFetched(
        f"partition {name} in the version {wanted.digest} was not to be had ({'; '.join(said) or 'nobody to ask'}); it "
        "is tried again"
    )


def check(content: bytes, wanted: Wanted) -> None:
    """Raises BadPartition."""
    if len(content) != wanted.size_bytes:
        less = "only " if len(content) < wanted.size_bytes else "more than its "
        raise BadPartition(f"it has {less}{min(len(content), wanted.size_bytes)} bytes; {wanted.size_bytes} are right")
    if (found := version_of(content)) != wanted:
        raise BadPartition(f"its digest is {found.digest}")


def peers_for(name: str, wanted: Wanted, vault: Vault, others: Sequence[str]) -> list[str]:
    """Whom of the `others` to ask, in that order: who is to have it in this version, then a few that may.

    Each partition has an order of its own, so that one new node does not ask one old node for everything.
    """
    near = sorted(others, key=lambda node: score(node, name), reverse=True)
    held = [node for node in near if _is_assigned(vault, node, name, wanted)]
    return [*held, *[node for node in near if node not in held][:STRANGERS_MAX]]


def _is_assigned(vault: Vault, node: str, name: str, wanted: Wanted) -> bool:
    """False also where the vault can't be read now: then all are asked alike."""
    try:
        item = vault.get(assignment_key(node, name))
        return item is not None and wanted_of(item.value) == wanted
    except (VaultError, BadPartition):
        return False


class Everywhere:
    """Whom to ask for what. `addresses`: HTTP address by name of the other nodes that are there."""

    def __init__(
        self,
        addresses: Callable[[], Mapping[str, str]],
        peer: Callable[[str, str], Source],
        origin: Source,
    ) -> None:
        self._addresses, self._peer, self._origin = addresses, peer, origin

    def sources(self, name: str, wanted: Wanted, vault: Vault) -> Iterable[Source]:
        addresses = self._addresses()
        for node in peers_for(name, wanted, vault, list(addresses)):
            yield self._peer(node, addresses[node])
        yield self._origin
