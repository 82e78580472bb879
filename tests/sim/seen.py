"""What a client sees of the store, as values: a request, the way it took, its outcome, the events of a watch.

Requests and results are those of `metastore`, whatever way they went: a read through a vault is recorded as the `Range`
that it stands for. Checkers see nothing else; what was committed (`Committed`) and what was there in the end (`Final`)
are put in by the world, and say so.
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
"""What the names of clients begin with that ask when all is well again (`probes.py`)."""


class Path(enum.Enum):
    """The way a request took, and what is promised there."""

    LEADER = "leader"
    MEMBER = "member"
    """A member that does not lead, or of which it is not known: linearizable, by a read barrier."""
    VAULT_READER = "vault-reader"
    """Fenced, by a process beside a node, out of its vault: linearizable in strict regions."""
    FENCED_API = "fenced-api"
    """Fenced, by a node's own API: linearizable in strict regions."""
    STREAM = "stream"
    """By the stream port, whichever member the client goes to: as of a member."""
    HTTP = "http"
    """By the HTTP port of a member: as of a member."""
    LOCAL = "local"
    """What a node has applied (`serializable`): may be old."""


FENCED = frozenset((Path.VAULT_READER, Path.FENCED_API))


LOOK, CANCEL = "look", "cancel"
"""Beside the operations of the catalog: how far a procedure is; that it is to be taken back."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request of the catalog, which is none of the meta storage: the first of its arguments names the procedure."""

    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """To a `Call`: the procedure as it was recorded at `revision`, and whether its end is released; or why not."""

    state: str = ""
    revision: int = 0
    settled: bool = False
    code: str = ""

    def __str__(self) -> str:
        return self.code or ("settled" if self.settled else self.state)


Request = Put | DeleteRange | Txn | Range | Compact | LeaseGrant | LeaseRevoke | LeaseKeepAlive | Call


class Why(enum.Enum):
    """Of a refusal."""

    UNAVAILABLE = "unavailable"
    FENCED = "fenced"
    PENDING = "pending"
    DENIED = "denied"
    COMPACTED = "compacted"
    REJECTED = "rejected"
    """The request is not possible as it is: limits, an unknown lease, a revision to come."""


@dataclass(frozen=True, slots=True)
class Ok:
    """`result`: of `metastore.results`; of a `Call` an `Answer`. A revision of 0 is one that was not told."""

    result: Any


@dataclass(frozen=True, slots=True)
class Refused:
    """Surely not done, now and later."""

    why: Why
    text: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """May take effect at any later time. `revision`: of a write of which it is known that it is committed."""

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
    """`resumes`: the number of the watch that this one goes on after; 0 for none."""

    at: Moment
    number: int
    client: str
    node: str
    request: WatchRequest
    resumes: int = 0


@dataclass(frozen=True, slots=True)
class WatchBegan:
    """`revision`: of the store, as the node told it. A watch without a start shows what is behind it."""

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
    """It was said that every event up to `revision` was delivered."""

    at: Moment
    number: int
    revision: int


class Ending(enum.Enum):
    CANCELLED = "cancelled"
    COMPACTED = "compacted"
    BROKEN = "broken"
    """The connection or the node is gone, or it refused."""
    OTHER_HISTORY = "other-history"
    """It was told that it can't go on, since the history is another one now."""


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """`minimal_revision`: MM, as the node told it with COMPACTED."""

    at: Moment
    number: int
    ending: Ending
    minimal_revision: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """Some node has applied this revision, the first to do so: seen from outside, by no client."""

    at: Moment
    events: RevisionEvents


@dataclass(frozen=True, slots=True)
class Final:
    """All keys of a node, read when everything was quiet again."""

    at: Moment
    node: str
    result: RangeResult


@dataclass(frozen=True, slots=True)
class Restored:
    """What the history begins with: everything that is committed up to `revision` was so before, in another one, and
    was restored from a backup; in `generation` it goes on. Put in by the world, as `Committed`."""

    at: Moment
    revision: int
    generation: int


WatchEvent = WatchAsked | WatchBegan | WatchDelivered | WatchProgressed | WatchEnded
Event = Begun | Ended | WatchEvent | Committed | Final | Restored


@dataclass(frozen=True, slots=True)
class Operation:
    """A request and what came of it. `outcome` None: there was no answer when the recording ended."""

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
        """None where it is not known to have been done."""
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
