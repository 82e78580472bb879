"""The lease times, in seconds, validated at construction.

On a clock that is slow by the drift bound rho, a lease of T_fence lasts T_fence / (1 - rho) of true time. A clock that
is fast by rho measures this as T_fence * (1 + rho) / (1 - rho), which is T_fence * (1 + 2 rho) plus a remainder of
second order. The margin has to cover that remainder, so T_proceed = T_fence * (1 + 2 rho) + margin is never too early.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


def remainder_s(lease_s: float, drift: float) -> float:
    """The longest duration of a lease, by the fastest clock, minus T_fence * (1 + 2 rho)."""
    return lease_s * 2 * drift**2 / (1 - drift)


@dataclass(frozen=True, slots=True)
class FenceTiming:
    """`fence_s`: T_fence, the length of a lease. `drift`: rho, the maximum relative error of a clock.
    `recovery_retry_*`: the delay before a failed recovery listener runs again, doubling from min to max."""

    fence_s: float = 3.0
    drift: float = 0.01
    margin_s: float = 0.25
    renewals_per_fence: int = 5
    recovery_retry_min_s: float = 0.1
    recovery_retry_max_s: float = 5.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not math.isfinite(getattr(self, field.name)):
                raise ValueError(f"{field.name} must be a finite number: {getattr(self, field.name)}")
        if self.fence_s <= 0:
            raise ValueError(f"fence_s must be positive: {self.fence_s}")
        if not 0 <= self.drift < 0.5:
            raise ValueError(f"drift must be at least 0 and below 0.5: {self.drift}")
        if self.renewals_per_fence < 2:
            raise ValueError(
                f"renewals_per_fence must be at least 2: {self.renewals_per_fence}; with fewer, one late renewal loses "
                "the lease"
            )
        if not 0 < self.recovery_retry_min_s <= self.recovery_retry_max_s:
            raise ValueError("recovery_retry_min_s must be positive and at most recovery_retry_max_s")
        if self.margin_s < remainder_s(self.fence_s, self.drift):
            raise ValueError(
                f"margin_s ({self.margin_s}) must be at least {remainder_s(self.fence_s, self.drift):.6f} for fence_s "
                f"{self.fence_s} and drift {self.drift}: raise margin_s, or shorten fence_s"
            )

    @property
    def renew_every_s(self) -> float:
        return self.fence_s / self.renewals_per_fence

    def proceed_s(self, lease_s: float | None = None) -> float:
        """T_proceed: the time after a grant, by any clock, at which a lease of this length has certainly expired.
        `lease_s`: None for T_fence."""
        length = self.fence_s if lease_s is None else lease_s
        return length * (1 + 2 * self.drift) + max(self.margin_s, remainder_s(length, self.drift))
