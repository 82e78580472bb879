"""What one member of a group is told at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from palisade.raftgroup.log_retention import LogRetention
from palisade.raftgroup.timing import RaftTiming


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """`founders`: member -> addresses of all founding members, this one among them; empty for one that joins.

    `addresses` are this member's own ('peer' at least). The cluster id is shared by all members, and so are the
    `terms`: whatever makes their state machines decide alike, as a text that is compared.
    """

    cluster: str
    member: str
    addresses: Mapping[str, str]
    founders: Mapping[str, Mapping[str, str]]
    terms: str = ""
    timing: RaftTiming = field(default_factory=RaftTiming)
    retention: LogRetention = field(default_factory=LogRetention)
