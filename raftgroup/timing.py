"""The times of a group, in seconds, validated on construction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """`drift`: rho, the maximum relative drift between two members' clocks."""

    heartbeat_s: float = 0.1
    election_timeout_min_s: float = 1.0
    election_timeout_max_s: float = 1.5
    drift: float = 0.01
    commit_notice_s: float = 0.005

    def __post_init__(self) -> None:
        if self.heartbeat_s <= 0:
            raise ValueError(f"heartbeat_s must be positive, it is {self.heartbeat_s}")
        if self.election_timeout_min_s <= 3 * self.heartbeat_s:
            raise ValueError(
                f"election_timeout_min_s ({self.election_timeout_min_s}) must be more than three heartbeats "
                f"({self.heartbeat_s} each), or one late heartbeat costs an election"
            )
        if self.election_timeout_max_s <= self.election_timeout_min_s:
            raise ValueError("election_timeout_max_s must be more than election_timeout_min_s")
        if not 0 <= self.drift < 0.5:
            raise ValueError(f"drift is a fraction from 0 to 0.5, it is {self.drift}")
