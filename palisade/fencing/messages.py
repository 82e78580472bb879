"""What holders and the leader say to each other, as values. Times are seconds of the holder's own clock.

None of them has to arrive, and none is believed for longer than it is true: each is safe late, twice and out of order.
An ordered connection only makes them cheap. What makes them safe is in their fields: the term of the leader, the
incarnation of the holder, the chain of stages that one belongs to, and t0, the holder's own time.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

UNKNOWN = 0
"""A generation: of a vault that is nobody's yet."""


class State(enum.StrEnum):
    """Of a holder. Only ACTIVE serves, and only before its deadline."""

    FENCED = "fenced"
    RECOVERING = "recovering"
    ACTIVE = "active"
    STOPPED = "stopped"
    """Fenced for good: the process is on its way out."""


def _check_revisions(**revisions: int | None) -> None:
    for name, value in revisions.items():
        if value is not None and value < 0:
            raise ValueError(f"{name} is a revision, which is never negative: {value}")


def _check_time(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a time in seconds, it is {value}")


def _check_lease(lease_s: float, proceed_s: float) -> None:
    _check_time("lease_s", lease_s)
    _check_time("proceed_s", proceed_s)
    if lease_s <= 0:
        raise ValueError(f"lease_s must be positive, it is {lease_s}")
    if proceed_s < lease_s:
        raise ValueError(f"proceed_s must be at least lease_s ({lease_s}), it is {proceed_s}")


@dataclass(frozen=True, slots=True)
class HolderId:
    """Who answers from a cache. `vault`: the id of its data folder; `incarnation`: grows with every start of the
    node."""

    node: str
    vault: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Hello:
    """The holder begins a connection. It is no promise, whatever `state` says: it may have lain somewhere until another
    leader reads it. `joined`: it takes stages from `staged` on; else it will join. `fences`: whether it knows leases at
    all. `proceed_s`: for how long its leases have to be counted at least, as it knows its own clock. `generation`: of
    the history that its vault is a part of, UNKNOWN while it is nobody's: what is staged counts in that one alone."""

    holder: HolderId
    fences: bool
    lease_s: float
    state: State
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
class Join:
    """The holder's vault has everything up to `lv`; it asks for what it needs to serve."""

    chain: int
    lv: int

    def __post_init__(self) -> None:
        _check_revisions(lv=self.lv)


@dataclass(frozen=True, slots=True)
class Renew:
    """A sign of life, an acknowledgement up to `staged`, and, if it `asks`, a request for a lease from `t0` on.

    `lease_s`, `proceed_s`: of that lease, so that nobody grants it who counts with less (`Registration.covers`).
    """

    t0: float
    staged: int
    state: State
    asks: bool
    lease_s: float
    proceed_s: float

    def __post_init__(self) -> None:
        _check_revisions(staged=self.staged)
        _check_time("t0", self.t0)
        _check_lease(self.lease_s, self.proceed_s)


@dataclass(frozen=True, slots=True)
class Staged:
    """The holder has every strict event up to `upto`, and shows nothing that they replaced without their release."""

    upto: int

    def __post_init__(self) -> None:
        _check_revisions(upto=self.upto)


@dataclass(frozen=True, slots=True)
class Fenced:
    """A promise to the leader of `term`, which has spoken to the holder: it serves nothing, and ignores every grant
    that it asked for at or before `at`."""

    term: int
    at: float

    def __post_init__(self) -> None:
        _check_time("at", self.at)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The leader of `term` answers a Hello. `released` is None while it does not know RR."""

    term: int
    lm: int
    released: int | None

    def __post_init__(self) -> None:
        _check_revisions(lm=self.lm, released=self.released)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Not the leader; `leader` is its address, as far as known."""

    leader: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """This holder is not taken. The reason is for people."""

    reason: str


Row = tuple[int, bytes, bytes | None]
"""Revision, stored key, body (None: deleted)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """All strict events of after < r <= upto, perhaps none, as a link of the chain that the holder's last Hello or Join
    began. The first link of a Join begins at RR or below. The rows are in the order of their revisions."""

    term: int
    chain: int
    after: int
    upto: int
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        _check_revisions(after=self.after, upto=self.upto)
        if self.upto < self.after:
            raise ValueError(f"a stage of ({self.after}, {self.upto}] goes backwards")
        if self.rows and not self.after < self.rows[0][0] <= self.rows[-1][0] <= self.upto:
            raise ValueError(
                f"a stage of ({self.after}, {self.upto}] has events of revision {self.rows[0][0]} to {self.rows[-1][0]}"
            )


@dataclass(frozen=True, slots=True)
class Behind:
    """What the chain lacks is compacted, or too much to stage: catch up by the feed, then join again."""

    term: int
    chain: int
    lm: int


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease from `t0` on, which that incarnation asked for, for who has staged up to `required`."""

    term: int
    incarnation: int
    t0: float
    required: int

    def __post_init__(self) -> None:
        _check_revisions(required=self.required)
        _check_time("t0", self.t0)


@dataclass(frozen=True, slots=True)
class Release:
    """Every strict revision up to RR = `released` may be shown. True for good, whoever leads."""

    term: int
    released: int

    def __post_init__(self) -> None:
        _check_revisions(released=self.released)
