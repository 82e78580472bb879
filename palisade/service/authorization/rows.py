"""The rows of permissions, as they are at the moment of a request: never from a cache that may be behind a revoke.

`now` answers within the turn of the loop, or not at all; `later` may wait and ask the cluster. Where neither can know,
the answer is no (`PermissionsUnknown`, policy `deny` of the region, F7).
"""

from __future__ import annotations

from typing import Protocol

from palisade.metastore.errors import MetastoreError
from palisade.metastore.requests import Range
from palisade.metastore.results import RangeResult
from palisade.raftgroup.errors import RaftError
from palisade.service.authorization.rights import PermissionRow
from palisade.service.callers import THIS_NODE
from palisade.service.fenced_reads import FencedReads
from palisade.service.key_values import KeyValues
from palisade.vault.change import Item
from palisade.vault.errors import Denied, VaultError
from palisade.wire.auth_errors import PermissionsUnknown
from palisade.wire.fencing_errors import ReleaseError


class WouldBlock(Exception):
    """It can't be known without waiting."""


class PermissionRows(Protocol):
    def state(self) -> object | None:
        """While it is the same object, every row is the same; None where that is not known."""
        ...

    def now(self, key: bytes) -> PermissionRow | None:
        """Raises WouldBlock."""
        ...

    async def later(self, key: bytes) -> PermissionRow | None:
        """Raises PermissionsUnknown."""
        ...


class StoreRows:
    """Linearizable reads at a member: at once where the quorum lease allows it, else with one round."""

    def __init__(self, service: KeyValues) -> None:
        self._service = service

    def state(self) -> object | None:
        return None

    def now(self, key: bytes) -> PermissionRow | None:
        found = self._service.range_now(Range(key), caller=THIS_NODE)
        if found is None:
            raise WouldBlock
        return row_of(found)

    async def later(self, key: bytes) -> PermissionRow | None:
        try:
            return row_of(await self._service.range(Range(key), caller=THIS_NODE))
        except (RaftError, MetastoreError, ReleaseError) as error:
            raise PermissionsUnknown(f"the permissions can't be read now ({error}): try again") from error


class FencedRows:
    """Reads of this node's own vault, while its lease holds; else of the cluster, as the policy `deny` says. `asked`:
    while the vault is not open."""

    def __init__(self, reads: FencedReads, asked: PermissionRows) -> None:
        self._reads, self._asked = reads, asked
        self.state = reads.state

    def now(self, key: bytes) -> PermissionRow | None:
        try:
            found = self._reads.at_once(key)
        except VaultError:
            raise WouldBlock from None
        if found is None:
            raise WouldBlock
        return row_of_item(found.item)

    async def later(self, key: bytes) -> PermissionRow | None:
        """What is not released yet is waited for."""
        try:
            return row_of_item((await self._reads.read(key)).item)
        except Denied as error:
            raise PermissionsUnknown(f"the permissions can't be read now ({error}): try again") from error
        except VaultError:
            return await self._asked.later(key)


class NoRows:
    """Nobody can be asked: what an old copy says may be long revoked."""

    def state(self) -> object | None:
        return None

    def now(self, key: bytes) -> PermissionRow | None:
        raise WouldBlock

    async def later(self, key: bytes) -> PermissionRow | None:
        raise PermissionsUnknown("this node has no lease from its cluster now, and can't know who may do what")


def row_of(found: RangeResult) -> PermissionRow | None:
    return PermissionRow(found.kvs[0].value, found.kvs[0].mod_revision) if found.kvs else None


def row_of_item(item: Item | None) -> PermissionRow | None:
    return None if item is None else PermissionRow(item.value, item.mod_revision)
