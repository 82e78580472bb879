"""The duration of recoveries without a network: each way separately, over stores and absences of several sizes."""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.replica import Recovered, Replica, recover
from harness.wrk import LoadFailed
from palisade.recovery.decision import Case

STRIDE = 7_919
"""A prime: the changed keys are spread over the store, and each of them changes once."""
PERCENT = 100


@dataclass(slots=True)
class Measured:
    """Of one store of `keys` keys, seconds and bytes of each round. `replay`, `difference`: by missed revisions."""

    keys: int
    full: list[tuple[float, int]] = field(default_factory=list)
    join: list[float] = field(default_factory=list)
    replay: dict[int, list[float]] = field(default_factory=dict)
    difference: dict[int, list[tuple[float, int]]] = field(default_factory=dict)

    def replay_s(self, missed: int) -> float:
        return statistics.median(self.replay[missed])

    def difference_s(self, missed: int) -> float:
        return statistics.median(seconds for seconds, _ in self.difference[missed])

    def difference_bytes(self, missed: int) -> float:
        return statistics.median(size for _, size in self.difference[missed])

    def full_s(self) -> float:
        return statistics.median(seconds for seconds, _ in self.full)

    def full_bytes(self) -> float:
        return statistics.median(size for _, size in self.full)

    def join_s(self) -> float:
        return statistics.median(self.join)


async def measure(folder: Path, keys: int, missed: Sequence[int], rounds: int) -> Measured:
    """Full copies first, and then, for each of `missed`, as many overwritten keys: replayed, and by difference.

    Two vaults are kept at LM, one for each way. Raises LoadFailed if a recovery had another case than expected.
    """
    found = Measured(keys)
    os.makedirs(folder)
    try:
        async with Replica(folder / "store") as replica:
            await replica.put(range(keys))
            await replica.compact()
            vaults = [folder / "replayed", folder / "compared"]
            for vault in [*vaults, *(folder / f"other-{number}" for number in range(2, rounds))]:
                full = _of(Case.C, await recover(replica.source, vault))
                found.full.append((full.seconds, full.report.bytes_fetched))
                if vault not in vaults:
                    shutil.rmtree(vault)
            for _ in range(rounds):
                found.join.append(_of(Case.A, await recover(replica.source, vaults[0])).seconds)
            for count in missed:
                for _ in range(rounds):
                    await _miss(replica, vaults, count, found)
    finally:
        shutil.rmtree(folder)
    return found


async def _miss(replica: Replica, vaults: Sequence[Path], count: int, found: Measured) -> None:
    first = replica.store.revision
    await replica.put((first + number * STRIDE) % found.keys for number in range(count))
    replayed = _of(Case.B, await recover(replica.source, vaults[0]))
    found.replay.setdefault(count, []).append(replayed.seconds)
    await replica.compact()
    compared = _of(Case.C, await recover(replica.source, vaults[1]))
    found.difference.setdefault(count, []).append((compared.seconds, compared.report.bytes_fetched))


def _of(case: Case, recovered: Recovered) -> Recovered:
    if recovered.report.case is not case:
        raise LoadFailed(f"a recovery that was to be case {case.value} ended so: {recovered.report}")
    return recovered
