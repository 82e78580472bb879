"""The catalog's store port over a node: committed reads after a read barrier, transactions through the group, releases
by PROCEED.

It bypasses the wait for releases that user requests do: a procedure must read its own writes before they are released,
and waits for releases itself.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.requests import Range, Txn
from palisade.metastore.results import RangeResult, TxnResult
from palisade.metastore.validation import check_request
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues


async def at_once(revision: int) -> None:
    """Without fencing, a commit is a release."""


@dataclass(frozen=True, slots=True)
class CatalogReleases:
    """`released`: returns on PROCEED for a revision, raises `catalog.ports.ReleaseRefused`; at every member.
    `waiting_for`: the nodes that a revision waits for, as far as this node knows."""

    released: Callable[[int], Awaitable[None]] = at_once
    waiting_for: Callable[[int], list[str]] = lambda revision: []


AT_ONCE = CatalogReleases()


class NodeStore:
    """A `catalog.ports.CatalogStore`."""

    def __init__(self, service: KeyValues, releases: CatalogReleases) -> None:
        self._service = service
        self._releases = releases

    async def range(self, request: Range) -> RangeResult:
        """Raises Unavailable."""
        await self._service.barrier()
        return await self._service.range(replace(request, serializable=True), caller=THIS_NODE)

    async def txn(self, request: Txn) -> TxnResult:
        """Raises RaftError, and the refusals of the metastore."""
        check_request(request, self._service.store.limits)
        applied = await self._service.group.propose(encode_command(request), timeout_s=self._service.deadline_s)
        result: TxnResult = decode_result(applied.result)
        return result

    async def released(self, revision: int) -> None:
        await self._releases.released(revision)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
