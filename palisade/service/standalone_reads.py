"""Reads of a vault without a cluster (R8): requests for the latest state, answered at LV.

Pure. A vault has no history: LV is the only readable revision. An older one is refused as compacted, a later one as not
yet reached. Filters, sort and limit apply in the same order as in the metadata store (`metastore/range_read.py`).
"""

from __future__ import annotations

from palisade.metastore.errors import Compacted, FutureRevision
from palisade.metastore.limits import Limits
from palisade.metastore.mvcc import Found, end_of
from palisade.metastore.range_read import answer, passes, sort
from palisade.metastore.record import LINK_BYTES
from palisade.metastore.requests import Range, RequestId, Write
from palisade.metastore.results import RangeResult
from palisade.metastore.validation import check_request
from palisade.service.callers import Caller
from palisade.vault.change import item_of
from palisade.vault.vault import Vault
from palisade.wire.error_codes import WithoutCluster

NO_LINK = bytes(LINK_BYTES)
LIMITS = Limits()
"""The defaults: a vault does not store the limits of its cluster."""


class StandaloneReads:
    """The reads of `api.http.v1_keys.Keys`, served by a vault; every write is refused."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def range(self, request: Range, *, caller: Caller) -> RangeResult:
        """Raises Compacted, FutureRevision, and the refusals that a member would return."""
        check_request(request, LIMITS)
        return read_vault_range(self._vault, request)

    async def write(self, request: Write, request_id: RequestId | None, *, caller: Caller) -> object:
        raise WithoutCluster(
            "this node runs in standalone mode, without its cluster: it serves reads and accepts no writes; "
            "write to a member of the cluster, or start this node without --standalone"
        )


def read_vault_range(vault: Vault, request: Range) -> RangeResult:
    latest = vault.revision
    if 0 < request.revision < latest:
        raise Compacted(f"a vault has no history: revision {latest} is its only readable revision", latest)
    if request.revision > latest:
        raise FutureRevision(f"revision {request.revision} is not in the vault, which is at {latest}")
    found = rows_of(vault, request)
    count = len(found)
    if request.count_only:
        return RangeResult(latest, (), False, count)
    found = sort([item for item in found if passes(item, request)], request)
    more = 0 < request.limit < len(found)
    chosen = found[: request.limit] if more else found
    return RangeResult(latest, tuple(answer(item, request) for item in chosen), more, count)


def rows_of(vault: Vault, request: Range) -> list[Found]:
    """In the order of the keys. Raises VaultDamaged."""
    if request.range_end:
        entries = list(vault.entries(request.key, end_of(request.range_end)))
    else:
        entry = vault.entry(request.key)
        entries = [] if entry is None else [(request.key, entry)]
    return [found_of(key, entry) for key, entry in entries]


def found_of(key: bytes, entry: bytes) -> Found:
    item = item_of(entry)
    return Found(key, NO_LINK + entry, item.mod_revision, item.create_revision, item.version, item.lease)
