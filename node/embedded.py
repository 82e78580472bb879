"""A store inside this process: one node, one folder, no ports (N7).

    with palisade.open("folder") as store:
        store.put("key", "value")

    async with palisade.open("folder") as store:
        await store.put("key", "value")

It has the same guarantees as a cluster: acknowledged writes are on disk. One process at a time uses a folder. The
folder is the data folder of the only member of a group: `palisade node` with the same names of cluster and node starts
it as a node, and other nodes can join it (docs/growing.md).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path

from palisade.base.identifier import check_id
from palisade.metastore.limits import Limits, Retention
from palisade.node.local_store import LocalStore
from palisade.node.sync_local_store import SyncLocalStore

NAME = "local"


def open(  # noqa: A001
    path: str | Path,
    *,
    cluster: str = NAME,
    node_id: str = NAME,
    limits: Limits | None = None,
    retention: Retention | None = None,
    deadline_s: float = 5.0,
) -> Opening:
    """The store in this folder, which is created if it does not exist; for `with`, or `async with` in asyncio. It is
    the node `node_id` of `cluster`, which matters if other nodes join it later.

    Raises ConfigError for an invalid name. Entering it raises FolderError or DataDirectoryError if the folder belongs
    to another node, to a cluster with other members, or is in use; StoreCorrupt or JournalCorrupt if it is damaged.
    """
    check_id("cluster", cluster)
    check_id("node_id", node_id)
    names = (cluster, node_id)
    return Opening(
        functools.partial(LocalStore, Path(path), names, limits or Limits(), retention or Retention(), deadline_s)
    )


class Opening:
    """A store that opens when its `with` or `async with` is entered, and closes when that is left."""

    def __init__(self, create: Callable[[], LocalStore]) -> None:
        self._create = create
        self._opened, self._sync_opened = contextlib.AsyncExitStack(), contextlib.ExitStack()

    async def __aenter__(self) -> LocalStore:
        async with contextlib.AsyncExitStack() as opened:
            store = self._create()
            opened.push_async_callback(store.stop)
            await store.start()
            self._opened = opened.pop_all()
        return store

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    def __enter__(self) -> SyncLocalStore:
        store = SyncLocalStore(self._create)
        self._sync_opened.callback(store.close)
        return store

    def __exit__(self, *_: object) -> None:
        self._sync_opened.close()
