"""Palisade, as programs import it: clients, fenced reads of a node's vault, and the embedded store.

    import palisade

    with palisade.connect("127.0.0.1:7601") as client:       # blocking, safe to use from threads
        client.put("/plants/7/state", "running")

    async with palisade.Client(["127.0.0.1:7601"]) as client:  # asyncio
        await client.put("/plants/7/state", "running")

    reader = palisade.VaultReader("data/n1/vault")           # linearizable reads without a network round trip
    reader.get(b"/plants/7/state")

    async with palisade.open("folder") as store:             # the store in this process, without a cluster
        await store.put("/plants/7/state", "running")

Names are imported at their first use: `import palisade` alone loads nothing else. `palisade.errors` has every error.
Only these names are public; everything below `palisade.<package>` may change.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""True for type checkers. `typing` takes longer to import than everything here."""

if TYPE_CHECKING:
    import palisade.errors as errors
    from base.version import VERSION as __version__  # noqa: N811
    from metastore.errors import Compacted
    from metastore.requests import CompareResult, CompareTarget, SortOrder, SortTarget
    from metastore.results import (
        CompactResult,
        DeleteRangeResult,
        DoneResult,
        Event,
        KeyValue,
        LeaseInfo,
        LeaseResult,
        PutResult,
        RangeResult,
        RevisionEvents,
        TxnResult,
    )
    from node.authorization.credentials import Password, Token
    from node.authorization.errors import PermissionDenied, Unauthenticated
    from node.client.client import Client
    from node.client.sync_client import SyncClient, connect
    from node.client.sync_watch import SyncWatch
    from node.client.watch import Watch
    from node.local import LocalStore
    from node.local import open as open  # noqa: A004
    from node.operations import Compare, Delete, Get, Put, Txn
    from raftgroup.errors import OutcomeUnknown, Unavailable
    from vault.errors import Fenced
    from vault.reader import VaultReader

__all__ = [
    "Client",
    "CompactResult",
    "Compacted",
    "Compare",
    "CompareResult",
    "CompareTarget",
    "Delete",
    "DeleteRangeResult",
    "DoneResult",
    "Event",
    "Fenced",
    "Get",
    "KeyValue",
    "LeaseInfo",
    "LeaseResult",
    "LocalStore",
    "OutcomeUnknown",
    "Password",
    "PermissionDenied",
    "Put",
    "PutResult",
    "RangeResult",
    "RevisionEvents",
    "SortOrder",
    "SortTarget",
    "SyncClient",
    "SyncWatch",
    "Token",
    "Txn",
    "TxnResult",
    "Unauthenticated",
    "Unavailable",
    "VaultReader",
    "Watch",
    "__version__",
    "connect",
    "errors",
    "open",
]

_MODULES = {
    "metastore.errors": ("Compacted",),
    "metastore.requests": ("CompareResult", "CompareTarget", "SortOrder", "SortTarget"),
    "metastore.results": (
        "CompactResult",
        "DeleteRangeResult",
        "DoneResult",
        "Event",
        "KeyValue",
        "LeaseInfo",
        "LeaseResult",
        "PutResult",
        "RangeResult",
        "RevisionEvents",
        "TxnResult",
    ),
    "node.authorization.credentials": ("Password", "Token"),
    "node.authorization.errors": ("PermissionDenied", "Unauthenticated"),
    "node.client.client": ("Client",),
    "node.client.sync_client": ("SyncClient", "connect"),
    "node.client.sync_watch": ("SyncWatch",),
    "node.client.watch": ("Watch",),
    "node.local": ("LocalStore", "open"),
    "node.operations": ("Compare", "Delete", "Get", "Put", "Txn"),
    "raftgroup.errors": ("OutcomeUnknown", "Unavailable"),
    "vault.errors": ("Fenced",),
    "vault.reader": ("VaultReader",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # A type checker knows the names, and reports others.

    def __getattr__(name: str) -> object:
        """Import a public name at its first use."""
        from importlib import import_module

        if name == "errors":
            value = import_module("palisade.errors")
        elif name == "__version__":
            value = import_module("base.version").VERSION
        elif name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module 'palisade' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
