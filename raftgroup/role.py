"""The role of a member."""

from __future__ import annotations

import enum


class RaftRole(enum.Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    LEARNER = "learner"
    REMOVED = "removed"
