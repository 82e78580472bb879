"""States of connections are tables: what every table must be."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import pytest

from palisade.api.http import connection_state as http
from palisade.api.stream import connection_state as stream
from palisade.base.invariant import InvariantViolated
from palisade.base.protocol_state import next_state
from palisade.raftgroup import peer_state as peer
from palisade.raftgroup.inbound_connection import Accepted
from palisade.raftgroup.outbound_connection import Dialled

Table = Mapping[Any, Mapping[Any, Any]]
TABLES = {"http": http.TRANSITIONS, "stream": stream.TRANSITIONS, "peer": peer.TRANSITIONS}
EVENTS: dict[str, type[enum.IntEnum]] = {"http": http.HttpEvent, "stream": stream.StreamEvent, "peer": peer.PeerEvent}
LAST = {"http": http.HttpState.CLOSED, "stream": stream.StreamState.ENDED, "peer": peer.PeerState.CLOSED}


def reached_from(table: Table, first: Any) -> set[Any]:
    found, new = {first}, [first]
    while new:
        new = [state for state in table[new.pop()].values() if state not in found] + new
        found.update(new)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_every_state_has_a_row_and_is_reached_from_the_first(name: str) -> None:
    states = list(type(LAST[name]))
    assert list(TABLES[name]) == states
    assert reached_from(TABLES[name], states[0]) == set(states)


@pytest.mark.parametrize("name", TABLES)
def test_every_event_occurs_in_the_last_state_and_leads_nowhere(name: str) -> None:
    """What was begun before the end of a connection may finish after it."""
    if name != "peer":
        assert set(TABLES[name][LAST[name]]) == set(EVENTS[name])
    assert set(TABLES[name][LAST[name]].values()) == {LAST[name]}


@pytest.mark.parametrize("name", TABLES)
def test_every_state_can_end(name: str) -> None:
    assert all(LAST[name] in reached_from(TABLES[name], state) for state in TABLES[name])


def test_event_that_must_not_occur_is_an_error_of_the_program() -> None:
    with pytest.raises(InvariantViolated, match=r"GREETED.*OPEN"):
        next_state(peer.TRANSITIONS, peer.PeerState.OPEN, peer.PeerEvent.GREETED)


def test_stream_that_was_refused_while_it_authenticates_is_not_opened() -> None:
    state = next_state(stream.TRANSITIONS, stream.StreamState.GREETING, stream.StreamEvent.AUTHENTICATE)
    state = next_state(stream.TRANSITIONS, state, stream.StreamEvent.END)
    assert next_state(stream.TRANSITIONS, state, stream.StreamEvent.WELCOME) is stream.StreamState.ENDED


@pytest.mark.parametrize("end", [Accepted, Dialled])
def test_peers_accept_frames_only_while_they_greet_and_in_open(end: type[Accepted | Dialled]) -> None:
    assert list(end.frames) == [peer.PeerState.GREETING, peer.PeerState.OPEN]
