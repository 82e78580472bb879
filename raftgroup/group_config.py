"""The configuration of one member of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from palisade.raftgroup.log_retention import LogRetention
from palisade.raftgroup.timing import RaftTiming


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """`founders`: member -> addresses of all founding members, including this one; empty for a joining node.

    `addresses` are this member's own (at least 'peer'). All members share the cluster id and the `terms`: the settings
    that affect the decisions of their state machines, as a text that is compared.
    """

    cluster: str
    member: str
    addresses: Mapping[str, str]
    founders: Mapping[str, Mapping[str, str]]
    terms: str = ""
    timing: RaftTiming = field(default_factory=RaftTiming)
    retention: LogRetention = field(default_factory=LogRetention)


def _ignore(*_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class GroupEvents:
    """Called by the group: `synced` with the seconds that a sync of the journal took, `led` with (whether this member
    leads, term) when that changes, `removed` once, in the turn in which this member is found to be removed."""

    synced: Callable[[float], object] = _ignore
    led: Callable[[bool, int], object] = _ignore
    removed: Callable[[], object] = _ignore


NO_EVENTS = GroupEvents()
