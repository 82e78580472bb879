"""What a member is at the moment."""

from __future__ import annotations

import enum


class RaftRole(enum.Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    LEARNER = "learner"
    REMOVED = "removed"
