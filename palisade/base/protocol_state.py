"""The state of one side of a connection, moved by events along a table, as in h11. Pure.

A table has a row for each state: the events that may occur in it, and the state that each leads to. An event without an
entry must not occur in that state: it is an error in the program, since input of the other side is judged before it
becomes an event. States and events are IntEnums: the hash of an int costs nothing.

The tables: `api/http/connection_state.py`, `api/stream/connection_state.py`, `raftgroup/peer_state.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from palisade.base.invariant import InvariantViolated

S = TypeVar("S", bound=enum.IntEnum)
E = TypeVar("E", bound=enum.IntEnum)


def next_state(table: Mapping[S, Mapping[E, S]], state: S, event: E) -> S:
    """Raises InvariantViolated for an event that must not occur in this state."""
    following = table[state].get(event)
    if following is None:
        raise InvariantViolated(f"{event!r} must not occur in {state!r}")
    return following
