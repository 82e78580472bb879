"""How often, how long, to how many. Pure.

Bounds that follow, with n nodes and without lost messages (SWIM, sections 3.1 and 4.3):
- each node sends one ping a period, whatever n is, and answers those that it gets;
- a node that stops is pinged by each of the others within 2 n - 1 periods, since they ask all others in turn;
- it is dead to whoever suspects it after `suspicion_s(n)`, unless it says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, log10


@dataclass(frozen=True, slots=True)
class SwimTiming:
    """`ack_s`: how long a direct ping may take before others are asked to try. `forget_s`: how long it is remembered
    that a node is gone, so that old rumours do not bring it back."""

    period_s: float = 0.5
    ack_s: float = 0.2
    proxies: int = 3
    suspicion_factor: float = 6.0
    spread_factor: int = 3
    sync_periods: int = 10
    forget_s: float = 60.0

    def __post_init__(self) -> None:
        """Raises ValueError where a ping could not be answered in its period."""
        if not 0 < self.ack_s < self.period_s:
            raise ValueError(f"ack_s {self.ack_s} has to be above 0 and below period_s {self.period_s}")
        if self.proxies < 0 or self.suspicion_factor < 1 or self.spread_factor < 1 or self.sync_periods < 1:
            raise ValueError("proxies, suspicion_factor, spread_factor and sync_periods have to be positive")

    def suspicion_s(self, nodes: int) -> float:
        """How long a suspected node has to say that it is there; longer with more nodes, as rumours take longer."""
        return self.suspicion_factor * max(1.0, log10(max(nodes, 1))) * self.period_s

    def spread_max(self, nodes: int) -> int:
        """How often one node passes one rumour on: enough that all hear it, and then no more."""
        return self.spread_factor * ceil(log2(nodes + 1))

    def detection_max_s(self, nodes: int) -> float:
        """From the end of a process until a node that hears no rumours has found it dead by itself."""
        return (2 * nodes - 1) * self.period_s + self.period_s + self.suspicion_s(nodes)
