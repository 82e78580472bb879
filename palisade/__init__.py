"""Palisade, as programs import it: clients, fenced reads of a node's vault, and the embedded store.

    import palisade

    with palisade.connect("127.0.0.1:7601") as client:       # blocking, safe to use from threads
        client.put("/plants/7/state", "running")

    async with palisade.Client(["127.0.0.1:7601"]) as client:  # asyncio
        await client.put("/plants/7/state", "running")

    reader = palisade.VaultReader("data/n1/vault")           # linearizable reads without a network round trip
    reader.get(b"/plants/7/state")

    with palisade.open("folder") as store:                   # the store in this process, without a cluster; also
        store.put("/plants/7/state", "running")              # `async with`

Names are imported at their first use: `import palisade` alone loads nothing else. `palisade.errors` has every error.
These names are public, and `palisade.spark` and `palisade.pipeline` for programs on Spark. Everything else below
`palisade.<package>` may change.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""True for type checkers. `typing` takes longer to import than everything here."""

if TYPE_CHECKING:
    import palisade.errors as errors
    from palisade.base.version import VERSION as __version__  # noqa: N811
    from palisade.catalog.parquet_rows import inspect_segment
    from palisade.client.claims import Leadership, Lock
    from palisade.client.client import Client
    from palisade.client.lease import Lease
    from palisade.client.operations import Compare, Delete, Get, Put, Txn
    from palisade.client.recording_files import Recording
    from palisade.client.sync_claims import SyncClaim, SyncLeadership, SyncLease
    from palisade.client.sync_client import SyncClient, connect
    from palisade.client.sync_watch import SyncWatch
    from palisade.client.watch import Watch
    from palisade.journal.client import JournalClient
    from palisade.journal.sync_client import SyncJournalClient
    from palisade.metastore.errors import Compacted
    from palisade.metastore.requests import CompareResult, CompareTarget, SortOrder, SortTarget
    from palisade.metastore.results import (
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
    from palisade.node.embedded import open as open  # noqa: A004
    from palisade.node.local_store import LocalStore
    from palisade.node.sync_local_store import SyncLocalStore
    from palisade.raftgroup.errors import OutcomeUnknown, Unavailable
    from palisade.vault.change import Item
    from palisade.vault.errors import Fenced
    from palisade.vault.reader import VaultReader
    from palisade.vault.snapshot_reads import Rows
    from palisade.wire.auth_errors import PermissionDenied, Unauthenticated
    from palisade.wire.credentials import Password, Token
    from palisade.wire.scan_pages import rows_of

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
    "Item",
    "JournalClient",
    "KeyValue",
    "Leadership",
    "Lease",
    "LeaseInfo",
    "LeaseResult",
    "LocalStore",
    "Lock",
    "OutcomeUnknown",
    "Password",
    "PermissionDenied",
    "Put",
    "PutResult",
    "RangeResult",
    "Recording",
    "RevisionEvents",
    "Rows",
    "SortOrder",
    "SortTarget",
    "SyncClaim",
    "SyncClient",
    "SyncJournalClient",
    "SyncLeadership",
    "SyncLease",
    "SyncLocalStore",
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
    "inspect_segment",
    "open",
    "rows_of",
]

_MODULES = {
    "palisade.metastore.errors": ("Compacted",),
    "palisade.metastore.requests": ("CompareResult", "CompareTarget", "SortOrder", "SortTarget"),
    "palisade.metastore.results": (
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
    "palisade.wire.credentials": ("Password", "Token"),
    "palisade.wire.auth_errors": ("PermissionDenied", "Unauthenticated"),
    "palisade.wire.scan_pages": ("rows_of",),
    "palisade.catalog.parquet_rows": ("inspect_segment",),
    "palisade.client.claims": ("Leadership", "Lock"),
    "palisade.client.client": ("Client",),
    "palisade.client.lease": ("Lease",),
    "palisade.client.sync_claims": ("SyncClaim", "SyncLeadership", "SyncLease"),
    "palisade.client.sync_client": ("SyncClient", "connect"),
    "palisade.client.sync_watch": ("SyncWatch",),
    "palisade.client.watch": ("Watch",),
    "palisade.journal.client": ("JournalClient",),
    "palisade.journal.sync_client": ("SyncJournalClient",),
    "palisade.node.embedded": ("open",),
    "palisade.node.local_store": ("LocalStore",),
    "palisade.node.sync_local_store": ("SyncLocalStore",),
    "palisade.client.operations": ("Compare", "Delete", "Get", "Put", "Txn"),
    "palisade.client.recording_files": ("Recording",),
    "palisade.raftgroup.errors": ("OutcomeUnknown", "Unavailable"),
    "palisade.vault.errors": ("Fenced",),
    "palisade.vault.change": ("Item",),
    "palisade.vault.reader": ("VaultReader",),
    "palisade.vault.snapshot_reads": ("Rows",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # A type checker knows the names, and reports others.

    def __getattr__(name: str) -> object:
        """Import a public name at its first use."""
        from importlib import import_module

        if name == "errors":
            value = import_module("palisade.errors")
        elif name == "__version__":
            value = import_module("palisade.base.version").VERSION
        elif name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module 'palisade' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
