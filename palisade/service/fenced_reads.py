"""Fenced reads of the node's own vault for its APIs: the results of `VaultReader` in other processes, without a hop.

Rules, policies and errors are those of the reader, since this is the reader in this process (`VaultReader.over`). It
takes its snapshot first and checks the lease afterwards, so a pause of the node in between is detected. Waiting tasks
are woken by the lease client when the fence page or LV has changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from palisade.catalog.keys import PERMISSIONS
from palisade.catalog.segment import ROOT as SEGMENTS
from palisade.vault.errors import Denied, Fenced, Pending, ReadRefused
from palisade.vault.fence_page import FencePage
from palisade.vault.follower_reader import FollowerReader
from palisade.vault.read_drivers import Changed
from palisade.vault.snapshot_reads import ReadOrigin, RecentChanges, Rows, ShownPage
from palisade.vault.staging import RowsWatch
from palisade.vault.vault import Vault

Ask = Callable[[bytes, bytes | None, int], Awaitable[Rows]]
"""(start, end, limit) -> the cluster's linearizable rows of that range."""
T = TypeVar("T", ShownPage, Rows)


WITHOUT_LEADER = "This node knows no leader: a majority of the cluster may be missing"


class FencedReads:
    """`ask`: for regions whose policy is to ask the cluster; None without a cluster to ask. `lacks_leader`: whether the
    node knows no leader, without which it gets no lease."""

    def __init__(self, ask: Ask | None = None, lacks_leader: Callable[[], bool] = lambda: False) -> None:
        self.ask, self._lacks_leader = ask, lacks_leader
        self._reader: FollowerReader | None = None
        self.at_once: Callable[[bytes], ShownPage | None] = not_open
        """That of the reader: None if the read requires waiting or a policy: use `read`. Raises VaultError."""
        self._served: tuple[RowsWatch, RowsWatch, FencePage, Callable[[], float]] | None = None
        self.ended = dict.fromkeys((*(each.value for each in ReadOrigin), *_ENDS.values()), 0)
        """Number of reads that were not answered immediately, by origin or by the reason of their refusal."""

    def open(self, vault: Vault, changed: Changed, now: Callable[[], float]) -> None:
        """The vault that is read from now on."""
        self._reader = FollowerReader.over(
            vault,
            fetch=lambda key: self._asked(key, key + b"\0", 1),
            fetch_range=self._asked,
            changed=changed,
            clock_ns=lambda: int(now() * 1e9),
        )
        self.at_once = self._reader.at_once
        if vault.page is not None:
            watch = vault.staging.watch
            self._served = watch(PERMISSIONS), watch(SEGMENTS), vault.page, now

    async def _asked(self, start: bytes, end: bytes | None, limit: int) -> Rows:
        if self.ask is None:
            raise Fenced("this node has no cluster to ask")
        return await self.ask(start, end, limit)

    def close(self) -> None:
        """Must be called before the vault is closed."""
        reader, self._reader, self._served, self.at_once = self._reader, None, None, not_open
        if reader is not None:
            reader.close()

    def permissions_state(self) -> object | None:
        """As long as it is the same object, `at_once` returns the same rows below PERMISSIONS; None while nothing may
        be served."""
        if self._served is None:
            return None
        permissions, _, page, now = self._served
        return permissions.state if now() * 1e9 < page.fence.deadline_ns else None

    def segments_state(self) -> object | None:
        """As `permissions_state`, for the rows of segments: `recent` returns nothing new while it is the same."""
        if self._served is None:
            return None
        _, segments, page, now = self._served
        return segments.state if now() * 1e9 < page.fence.deadline_ns else None

    async def read(self, key: bytes) -> ShownPage:
        """Raises ReadRefused, VaultError."""
        return await self._counted(self._open().read_async(key))

    async def range(self, start: bytes, end: bytes | None, limit: int) -> Rows:
        """The whole range at one revision, with turns for other tasks. Raises ReadRefused, VaultError."""
        return await self._counted(self._open().range_async(start, end, limit))

    async def recent(self, start: bytes, end: bytes | None) -> RecentChanges | Rows:
        """What LV does not include of a strict range; or the whole range from the cluster, if its policy is to ask.
        Raises ReadRefused, VaultError."""
        return await self._open().recent_async(start, end)

    async def wait_for(self, revision: int, timeout_s: float) -> int:
        """Waits until LV has reached the revision; returns LV. Raises NotReached."""
        return await self._open().wait_for_async(revision, timeout_s)

    def _open(self) -> FollowerReader:
        if self._reader is None:
            self.ended["fenced"] += 1
            raise Fenced("the vault of this node is not open: ask another node, or read linearizably with /v1/kv")
        return self._reader

    async def _counted(self, reading: Awaitable[T]) -> T:
        try:
            found = await reading
        except ReadRefused as error:
            self.ended[_ENDS[type(error)]] += 1
            if isinstance(error, Fenced) and self._lacks_leader():
                raise Fenced(f"{error}. {WITHOUT_LEADER}") from None
            raise
        self.ended[found.origin.value] += 1
        return found


def not_open(_: bytes) -> None:
    """A read of a vault that is not open."""


_ENDS: dict[type[ReadRefused], str] = {Fenced: "fenced", Pending: "pending", Denied: "denied"}
