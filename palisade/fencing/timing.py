"""The times of the leases, in seconds, checked at birth.

A lease of T_fence by a clock that is slow by the drift bound rho lasts T_fence / (1 - rho) of true time, which a clock
that is fast by rho measures as T_fence * (1 + rho) / (1 - rho). That is T_fence * (1 + 2 rho) and a remainder of the
second order, which the margin has to cover: so T_proceed = T_fence * (1 + 2 rho) + margin is never too early, for any
rho.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


def remainder_s(lease_s: float, drift: float) -> float:
    """What T_fence * (1 + 2 rho) lacks of the longest time that a lease can take, by the fastest clock."""
    return lease_s * 2 * drift**2 / (1 - drift)


@dataclass(frozen=True, slots=True)
class Timing:
    """`fence_s`: T_fence, how long a lease lasts. `drift`: rho, by how much a clock may be faster or slower than true
    time. `recovery_retry_*`: how long a failed recovery listener waits for its next try, doubling from min to max."""

    fence_s: float = 3.0
    drift: float = 0.01
    margin_s: float = 0.25
    renewals_per_fence: int = 5
    recovery_retry_min_s: float = 0.1
    recovery_retry_max_s: float = 5.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not math.isfinite(getattr(self, field.name)):
                raise ValueError(f"{field.name} must be a number, it is {getattr(self, field.name)}")
        if self.fence_s <= 0:
            raise ValueError(f"fence_s must be positive, it is {self.fence_s}")
        if not 0 <= self.drift < 0.5:
            raise ValueError(f"drift is a fraction from 0 to 0.5, it is {self.drift}")
        if self.renewals_per_fence < 2:
            raise ValueError(
                f"renewals_per_fence must be 2 or more, it is {self.renewals_per_fence}: with fewer, one late renewal "
                "costs the lease"
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
        """T_proceed: when a lease of this length (None: the own one) has certainly run out, counted by any clock from
        the moment at which it was granted."""
        length = self.fence_s if lease_s is None else lease_s
        return length * (1 + 2 * self.drift) + max(self.margin_s, remainder_s(length, self.drift))
