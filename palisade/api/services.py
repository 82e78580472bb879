"""The parts from which the servers of a node serve: the write and read path, and the views of the node that its APIs
show.

Built once from finished parts and immutable. A part that a node does not have is None or empty: the embedded store has
neither topology nor vault, a node in tests often only its keys.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from palisade.metastore.snapshot import StoreSnapshotReader
from palisade.recovery.status import RecoveryStatus
from palisade.segments.broker import SegmentBroker
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.bootstrap import FirstUser
from palisade.service.catalog import Catalog
from palisade.service.fenced_reads import FencedReads
from palisade.service.key_values import KeyValues
from palisade.topology.initialization import Participant
from palisade.topology.topology import Topology

OpenSnapshot = Callable[[], Awaitable[StoreSnapshotReader]]


@dataclass(frozen=True, slots=True)
class NodeServices:
    """`open_snapshot`: the state on disk, for backups; None without a disk. `participant`: the node's part in the
    initialization of the cluster. `vault`: None for a node without one. `topology`: None without a cluster. `catalog`:
    of a member of the Raft group. `fencing_view`, `fencing_families`: the fencing state of the node as JSON and as
    metrics. `fenced`: reads of the node's own vault. `authorizer`: None if every client may do everything.
    `first_user`: None where requests need no user. `broker`: None for a node without a vault. `trace`: the middleware
    that traces HTTP requests, if any."""

    key_values: KeyValues
    open_snapshot: OpenSnapshot | None = None
    participant: Callable[[], Participant] = Participant
    vault: RecoveryStatus | None = None
    topology: Topology | None = None
    catalog: Catalog | None = None
    fencing_view: Callable[[], dict[str, Any]] | None = None
    fencing_families: Callable[[], Iterable[Any]] = tuple
    fenced: FencedReads = field(default_factory=FencedReads)
    authorizer: Authorizer | None = None
    first_user: FirstUser | None = None
    broker: SegmentBroker | None = None
    trace: Callable[..., Any] | None = None
