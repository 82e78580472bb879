"""Permission rows as of the moment of a request, never from a cache that may lag a revoke.

`try_read` answers within the turn of the event loop, or not at all; `read` may wait and ask the cluster. Where neither
can determine the rows, the request is refused (`PermissionsUnknown`, policy `deny` of the region, F7).

`FromRows` caches what was computed from rows, together with these rows. It is valid if each of them, read again in the
same order, is unchanged: the computation would give the same result. While `state` is the same object, no row can have
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

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

V = TypeVar("V")
SILENT_CLUSTER = (
    "its cluster does not answer; after a start, a restore or a failure the leader waits some seconds for leases"
)


class WouldBlock(Exception):
    """The answer requires waiting."""


class PermissionRows(Protocol):
    def state(self) -> object | None:
        """As long as it is the same object, no row has changed; None if that is not known."""
        ...

    def try_read(self, key: bytes) -> PermissionRow | None:
        """Raises WouldBlock."""
        ...

    async def read(self, key: bytes) -> PermissionRow | None:
        """Raises PermissionsUnknown."""
        ...

    def trouble(self) -> str:
        """Why a read takes long now."""
        ...


Read = Callable[[bytes], PermissionRow | None]


@dataclass(slots=True)
class Computed(Generic[V]):
    """`state`: of the rows when `reads` were last found unchanged; None: unknown."""

    value: V
    reads: list[tuple[bytes, PermissionRow | None]]
    state: object | None = None


class FromRows(Generic[V]):
    """Values that were computed from rows, by a key."""

    def __init__(self, rows: PermissionRows, kept_max: int) -> None:
        self._rows, self._kept_max = rows, kept_max
        self._kept: dict[Hashable, Computed[V]] = {}

    def find(self, key: Hashable) -> Computed[V] | None:
        """None if there is no value, or if it can't be known without waiting whether it is still valid."""
        found = self._kept.get(key)
        return found if found is not None and self.is_valid(found) else None

    def is_valid(self, found: Computed[V]) -> bool:
        """Whether it would be computed again. False if that can't be known without waiting."""
        state = self._rows.state()
        if state is not None and state is found.state:
            return True
        try:
            for row_key, row in found.reads:
                if self._rows.try_read(row_key) != row:
                    return False
        except WouldBlock:
            return False
        found.state = state if state is self._rows.state() else None
        return True

    def compute(self, key: Hashable, make: Callable[[Read], V | None]) -> Computed[V] | None:
        """`make` gets its rows by the function that it is called with. None: there is no value now."""
        reads: list[tuple[bytes, PermissionRow | None]] = []

        def read(row_key: bytes) -> PermissionRow | None:
            row = self._rows.try_read(row_key)
            reads.append((row_key, row))
            return row

        state = self._rows.state()
        value = make(read)
        if value is None:
            return None
        if len(self._kept) >= self._kept_max:
            self._kept.clear()
        found = self._kept[key] = Computed(value, reads, state if state is self._rows.state() else None)
        return found


class StoreRows:
    """Linearizable reads at a member: immediate while the quorum lease holds, else with one round."""

    def __init__(self, service: KeyValues) -> None:
        self._service = service

    def state(self) -> object | None:
        return None

    def try_read(self, key: bytes) -> PermissionRow | None:
        found = self._service.range_now(Range(key), caller=THIS_NODE)
        if found is None:
            raise WouldBlock
        return row_of(found)

    async def read(self, key: bytes) -> PermissionRow | None:
        try:
            return row_of(await self._service.range(Range(key), caller=THIS_NODE))
        except (RaftError, MetastoreError, ReleaseError) as error:
            raise PermissionsUnknown(f"the permissions cannot be read ({error}): retry") from error

    def trouble(self) -> str:
        return self._service.group.status().no_leader or SILENT_CLUSTER


class FencedRows:
    """Reads of this node's own vault while its lease holds; else of the cluster, by policy `deny`. `asked`: used
    while the vault is not open."""

    def __init__(self, reads: FencedReads, asked: PermissionRows) -> None:
        self._reads, self._asked = reads, asked
        self.state = reads.permissions_state

    def try_read(self, key: bytes) -> PermissionRow | None:
        try:
            found = self._reads.at_once(key)
        except VaultError:
            raise WouldBlock from None
        if found is None:
            raise WouldBlock
        return row_of_item(found.item)

    async def read(self, key: bytes) -> PermissionRow | None:
        """Waits for changes that are not released yet."""
        try:
            return row_of_item((await self._reads.read(key)).item)
        except Denied as error:
            raise PermissionsUnknown(f"the permissions cannot be read ({error}): retry") from error
        except VaultError:
            return await self._asked.read(key)

    def trouble(self) -> str:
        return self._asked.trouble()


class UnavailablePermissionRows:
    """Without a cluster: the permissions in an old copy may have been revoked."""

    def state(self) -> object | None:
        return None

    def try_read(self, key: bytes) -> PermissionRow | None:
        raise WouldBlock

    async def read(self, key: bytes) -> PermissionRow | None:
        raise PermissionsUnknown(
            "this node has no lease from its cluster and cannot verify permissions; the request was not executed"
        )

    def trouble(self) -> str:
        return SILENT_CLUSTER


def row_of(found: RangeResult) -> PermissionRow | None:
    return PermissionRow(found.kvs[0].value, found.kvs[0].mod_revision) if found.kvs else None


def row_of_item(item: Item | None) -> PermissionRow | None:
    return None if item is None else PermissionRow(item.value, item.mod_revision)
