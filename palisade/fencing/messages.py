"""The messages between holders and the leader, as values. Times are seconds of the holder's own clock.

Every message may be lost, late, repeated or out of order. An ordered connection only makes the protocol cheaper. The
fields make it safe: the leader's term, the holder's incarnation, the chain of a stage, and t0, the holder's own time.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

UNKNOWN = 0
"""The generation of a vault that does not belong to a cluster yet."""


class HolderPhase(enum.StrEnum):
    """State of a holder. Only ACTIVE serves, and only before the deadline of its lease."""

    FENCED = "fenced"
    RECOVERING = "recovering"
    ACTIVE = "active"
    STOPPED = "stopped"
    """Permanently fenced: the process is stopping."""


def _check_revisions(**revisions: int | None) -> None:
    for name, value in revisions.items():
        if value is not None and value < 0:
            raise ValueError(f"{name} is a revision and must not be negative: {value}")


def _check_time(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite time in seconds: {value}")


def _check_lease(lease_s: float, proceed_s: float) -> None:
    _check_time("lease_s", lease_s)
    _check_time("proceed_s", proceed_s)
    if lease_s <= 0:
        raise ValueError(f"lease_s must be positive: {lease_s}")
    if proceed_s < lease_s:
        raise ValueError(f"proceed_s must be at least lease_s ({lease_s}): {proceed_s}")


@dataclass(frozen=True, slots=True)
class HolderId:
    """One process of a holder, a node that answers from its vault. `vault`: the ID of its data folder. `incarnation`:
    grows with every start of the node."""

    node: str
    vault: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Hello:
    """The holder begins a connection. `state` is not a promise: another leader may read a delayed Hello. `joined`: the
    holder takes stages from `staged` on; otherwise it will join. `fences`: whether it supports leases. `proceed_s`:
    the minimum T_proceed for its leases, by its own drift bound and margin. `generation`: of its vault, UNKNOWN if that
    does not belong to a cluster; stages are valid in that generation only."""

    holder: HolderId
    fences: bool
    lease_s: float
    state: HolderPhase
    chain: int
    joined: bool
    staged: int
    lv: int
    proceed_s: float
    generation: int = UNKNOWN

    def __post_init__(self) -> None:
        _check_revisions(staged=self.staged, lv=self.lv)
        _check_lease(self.lease_s, self.proceed_s)


@dataclass(frozen=True, slots=True)
class JoinMessage:
    """The holder's vault has everything up to `lv`. Requests the stages that it needs to serve."""

    chain: int
    lv: int

    def __post_init__(self) -> None:
        _check_revisions(lv=self.lv)


@dataclass(frozen=True, slots=True)
class Renew:
    """A heartbeat, an acknowledgement up to `staged`, and, if `asks`, a request for a lease from `t0` on.

    `lease_s`, `proceed_s`: of that lease. No leader grants it by a record with shorter times (`Registration.covers`).
    """

    t0: float
    staged: int
    state: HolderPhase
    asks: bool
    lease_s: float
    proceed_s: float

    def __post_init__(self) -> None:
        _check_revisions(staged=self.staged)
        _check_time("t0", self.t0)
        _check_lease(self.lease_s, self.proceed_s)


@dataclass(frozen=True, slots=True)
class StagedMessage:
    """The holder has staged every strict event up to `upto`, and serves a value that one of them replaced only until
    its release."""

    upto: int

    def __post_init__(self) -> None:
        _check_revisions(upto=self.upto)


@dataclass(frozen=True, slots=True)
class FencedMessage:
    """A promise to the leader of `term`, made after a message from that leader: the holder serves nothing, and ignores
    every grant that it requested at or before `at`."""

    term: int
    at: float

    def __post_init__(self) -> None:
        _check_time("at", self.at)


@dataclass(frozen=True, slots=True)
class WelcomeMessage:
    """The leader's answer to a Hello. `released`: RR; None while the leader does not know it."""

    term: int
    lm: int
    released: int | None

    def __post_init__(self) -> None:
        _check_revisions(lm=self.lm, released=self.released)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The answer of a node that does not lead. `leader`: the leader's address, if known."""

    leader: str | None


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """The leader rejects this holder. `reason` is for display."""

    reason: str


Row = tuple[int, bytes, bytes | None]
"""Revision, stored key, body (None: deleted)."""


@dataclass(frozen=True, slots=True)
class StageMessage:
    """All strict events of after < r <= upto, possibly none, as a link of the chain begun by the holder's last Hello or
    Join. The first link of a Join begins at RR or below. Rows are sorted by revision."""

    term: int
    chain: int
    after: int
    upto: int
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        _check_revisions(after=self.after, upto=self.upto)
        if self.upto < self.after:
            raise ValueError(f"invalid stage: range ({self.after}, {self.upto}] is reversed")
        if self.rows and not self.after < self.rows[0][0] <= self.rows[-1][0] <= self.upto:
            raise ValueError(
                f"invalid stage: events of revisions {self.rows[0][0]} to {self.rows[-1][0]} in range "
                f"({self.after}, {self.upto}]"
            )


@dataclass(frozen=True, slots=True)
class Behind:
    """The rows that the chain lacks are compacted, or too many to stage. Catch up by the feed, then join again."""

    term: int
    chain: int
    lm: int


@dataclass(frozen=True, slots=True)
class GrantMessage:
    """A lease from `t0` on, requested by that incarnation. The holder must have staged everything up to `required`."""

    term: int
    incarnation: int
    t0: float
    required: int

    def __post_init__(self) -> None:
        _check_revisions(required=self.required)
        _check_time("t0", self.t0)


@dataclass(frozen=True, slots=True)
class Release:
    """Every strict revision up to RR = `released` may be shown. This stays true under any later leader."""

    term: int
    released: int

    def __post_init__(self) -> None:
        _check_revisions(released=self.released)
