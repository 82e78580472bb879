"""The configuration of one member of a group."""

from __future__ import annotations

from collections.abc import Mapping
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
