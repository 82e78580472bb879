"""What a client sees of the store, as values: a request, its path, its outcome, the events of a watch.

Requests and results are those of `metastore`, on every path: a read through a vault is recorded as the equivalent
`Range`. Checkers see nothing else; commits (`Committed`) and the final state (`Final`) are recorded by the world, and
marked as such.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

from palisade.metastore.requests import (
    Compact,
    DeleteRange,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Put,
    Range,
    RequestId,
    Txn,
    WatchRequest,
)
from palisade.metastore.results import RangeResult, RevisionEvents

PROBER = "prober"
"""Prefix of the names of clients that run without faults (`probes.py`)."""


class Path(enum.Enum):
    """The path of a request, and its promise."""

    LEADER = "leader"
    MEMBER = "member"
    """A member that does not lead, or whose role is unknown: linearizable, by a read barrier."""
    VAULT_READER = "vault-reader"
    """Fenced, by a process beside a node, from its vault: linearizable in strict regions."""
    FENCED_API = "fenced-api"
    """Fenced, by a node's own API: linearizable in strict regions."""
    STREAM = "stream"
    """By the stream port, at the member that the client chooses: as of a member."""
    HTTP = "http"
    """By the HTTP port of a member: as of a member."""
    LOCAL = "local"
    """The applied state of a node (`serializable`): may be old."""


FENCED = frozenset((Path.VAULT_READER, Path.FENCED_API))


LOOK, CANCEL = "look", "cancel"
"""In addition to the operations of the catalog: reading and cancelling a procedure."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request of the catalog, not of the metadata store: the first of its arguments names the procedure."""

    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """To a `Call`: the procedure as recorded at `revision`, and whether its end is released; or the error."""

    state: str = ""
    revision: int = 0
    settled: bool = False
    code: str = ""

    def __str__(self) -> str:
        return self.code or ("settled" if self.settled else self.state)


Request = Put | DeleteRange | Txn | Range | Compact | LeaseGrant | LeaseRevoke | LeaseKeepAlive | Call


class Why(enum.Enum):
    """The reason of a refusal."""

    UNAVAILABLE = "unavailable"
    FENCED = "fenced"
    PENDING = "pending"
    DENIED = "denied"
    COMPACTED = "compacted"
    REJECTED = "rejected"
    """The request is invalid in this state: limits, an unknown lease, a future revision."""


@dataclass(frozen=True, slots=True)
class Ok:
    """`result`: of `metastore.results`; of a `Call` an `Answer`. A revision of 0 is unknown."""

    result: Any


@dataclass(frozen=True, slots=True)
class Refused:
    """Certainly not executed, now and later."""

    why: Why
    text: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """May take effect at any later time. `revision`: of a write that is known to be committed."""

    text: str = ""
    revision: int = 0


Outcome = Ok | Refused | Unknown


class Moment(NamedTuple):
    order: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Begun:
    """`attempt` counts from 1: the same `request_id` may be sent several times, to several nodes."""

    at: Moment
    number: int
    client: str
    node: str
    path: Path
    request: Request
    request_id: RequestId | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Ended:
    at: Moment
    number: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class WatchAsked:
    """`resumes`: the number of the watch that this one continues; 0 for none."""

    at: Moment
    number: int
    client: str
    node: str
    request: WatchRequest
    resumes: int = 0


@dataclass(frozen=True, slots=True)
class WatchBegan:
    """`revision`: of the store, from the node. A watch without a start gets later changes."""

    at: Moment
    number: int
    revision: int


@dataclass(frozen=True, slots=True)
class WatchDelivered:
    at: Moment
    number: int
    batch: tuple[RevisionEvents, ...]


@dataclass(frozen=True, slots=True)
class WatchProgressed:
    """The node reported that every event up to `revision` was delivered."""

    at: Moment
    number: int
    revision: int


class Ending(enum.Enum):
    CANCELLED = "cancelled"
    COMPACTED = "compacted"
    BROKEN = "broken"
    """The connection or the node is gone, or it refused."""
    OTHER_HISTORY = "other-history"
    """The node reported that it cannot continue, since the history is another one now."""


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """`minimal_revision`: MM, from the node with COMPACTED."""

    at: Moment
    number: int
    ending: Ending
    minimal_revision: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """The first node has applied this revision: observed by the world, by no client."""

    at: Moment
    events: RevisionEvents


@dataclass(frozen=True, slots=True)
class Final:
    """All keys of a node, read at the end."""

    at: Moment
    node: str
    result: RangeResult


@dataclass(frozen=True, slots=True)
class Restored:
    """The beginning of the history: everything up to `revision` was committed in an earlier one and restored from a
    backup; it continues in `generation`. Recorded by the world, as `Committed`."""

    at: Moment
    revision: int
    generation: int


WatchEvent = WatchAsked | WatchBegan | WatchDelivered | WatchProgressed | WatchEnded
Event = Begun | Ended | WatchEvent | Committed | Final | Restored


@dataclass(frozen=True, slots=True)
class Operation:
    """A request and its outcome. `outcome` None: there was none when the recording ended."""

    number: int
    client: str
    node: str
    path: Path
    request: Request
    request_id: RequestId | None
    attempt: int
    began: Moment
    ended: Moment | None = None
    outcome: Outcome | None = None

    @property
    def result(self) -> Any:
        """None if it is not known to have been executed."""
        return self.outcome.result if isinstance(self.outcome, Ok) else None

    @property
    def refused(self) -> bool:
        return isinstance(self.outcome, Refused)

    @property
    def unknown(self) -> bool:
        return self.outcome is None or isinstance(self.outcome, Unknown)

    @property
    def is_read(self) -> bool:
        return isinstance(self.request, Range)

    @property
    def of_the_past(self) -> bool:
        return isinstance(self.request, Range) and self.request.revision > 0
