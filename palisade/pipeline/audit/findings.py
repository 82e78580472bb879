"""The kinds of findings of an audit."""

from __future__ import annotations

import enum
from typing import NamedTuple


class FindingKind(enum.StrEnum):
    STALE_READ = "stale-read"
    """A read returned an older version than one that was acknowledged or read before the read began."""
    FUTURE_READ = "future-read"
    """A read returned a version of a later revision than its state, or one that was requested only after the read."""
    LOST_WRITE = "lost-write"
    """An acknowledged write is missing: in the change feed, or in a state of the same or a later revision."""
    DOUBLED_WRITE = "doubled-write"
    """A value was written at more revisions than there were requests to write it."""
    TWO_VALUES = "two-values"
    """One key has two values, or two writers, at one revision."""
    NEVER_COMMITTED = "never-committed"
    """A read returned a version that the change feed does not contain."""
    ORDER = "order"
    """Revisions contradict time: an operation that began after another one completed has a lower revision."""
    GAP = "availability-gap"
    """Requests were made, and none succeeded for longer than the limit."""
    DIVERGENCE = "divergence"
    """Members have different digests at one revision."""
    UNANNOUNCED = "unannounced-segment"
    """A segment is used and loaded, and no node announces it."""
    MISALIGNED = "misaligned-journal"
    """The local sequence of a copy contradicts the agreed record of its role."""


class Finding(NamedTuple):
    """`subject`: a key, member, segment or role. `operation`: client and number. `wall_ms`: 0 if it has no time."""

    kind: str
    subject: bytes
    revision: int
    operation: str
    wall_ms: int
    text: str
