"""The intervals, timeouts and fan-outs of SWIM. Pure.

Resulting bounds, with n nodes and without lost messages (SWIM, sections 3.1 and 4.3):
- each node sends one ping a period, independent of n, and answers the pings that it receives;
- every other node pings a stopped node within 2 n - 1 periods, because it pings all nodes in turn;
- a suspect that does not refute is declared dead after `suspicion_s(n)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, log10


@dataclass(frozen=True, slots=True)
class SwimTiming:
    """`ack_s`: how long a direct ping may take before proxies are asked. `forget_s`: how long the record of a node that
    is gone is kept, so that old rumours do not revive it."""

    period_s: float = 0.5
    ack_s: float = 0.2
    proxies: int = 3
    suspicion_factor: float = 6.0
    spread_factor: int = 3
    sync_periods: int = 10
    forget_s: float = 60.0

    def __post_init__(self) -> None:
        """Raises ValueError for values out of range."""
        if not 0 < self.ack_s < self.period_s:
            raise ValueError(f"ack_s ({self.ack_s}) must be above 0 and below period_s ({self.period_s})")
        if self.proxies < 0 or self.suspicion_factor < 1 or self.spread_factor < 1 or self.sync_periods < 1:
            raise ValueError(
                "proxies must not be negative; suspicion_factor, spread_factor and sync_periods must be >= 1"
            )

    def suspicion_s(self, nodes: int) -> float:
        """How long a suspect has to refute. Grows with the number of nodes, because gossip then takes longer."""
        return self.suspicion_factor * max(1.0, log10(max(nodes, 1))) * self.period_s

    def spread_max(self, nodes: int) -> int:
        """How often one node sends one rumour: enough to reach all nodes with high probability."""
        return self.spread_factor * ceil(log2(nodes + 1))

    def detection_max_s(self, nodes: int) -> float:
        """Longest time from the end of a process until a node declares it dead without the help of gossip."""
        return (2 * nodes - 1) * self.period_s + self.period_s + self.suspicion_s(nodes)
