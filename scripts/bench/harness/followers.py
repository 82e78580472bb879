"""The duration of recoveries in a real cluster: processes on loopback, the feed over HTTP."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.palisade import Palisade
from harness.recoveries import PERCENT, STRIDE
from harness.stream import VALUE
from harness.system import NODES
from harness.wrk import LoadFailed
from palisade.client import Client
from palisade.recovery.decision import Case

PREFIX = b"flights/2013/"
SETTLE_S = 5.0
TIMEOUT_S = 30.0
MISSED_SHARE = 0.8
"""Part of the revisions retained by the cluster that a node may lack and still replay."""
RETAINED = 100_000


@dataclass(slots=True)
class Followed:
    """Seconds from the start of a process until it serves, of each round. `*_recovery`: from the node's own report.

    `first_s` is that of a node without a vault; `join_s` is with LV = LM.
    """

    first_s: float = 0.0
    join_s: list[float] = field(default_factory=list)
    voter_s: list[float] = field(default_factory=list)
    first_recovery: dict[str, Any] = field(default_factory=dict)
    replay_recovery: list[dict[str, Any]] = field(default_factory=list)
    difference_recovery: dict[str, Any] = field(default_factory=dict)

    @property
    def replayed_per_s(self) -> float:
        rates = [each["revisions_replayed"] / each["phases"]["replay"] for each in self.replay_recovery]
        return statistics.median(rates)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


async def follow(system: Palisade, keys: int, rounds: int) -> Followed:
    """The cluster runs and is empty. Raises LoadFailed if a recovery had another case than expected."""
    found = Followed()
    await _put(system, range(keys), compact=True)
    follower = system.add_follower()
    found.first_s = await system.start([follower])
    found.first_recovery = await _recovery(system, follower, Case.C)
    for _ in range(rounds):
        found.join_s.append(await _again(system, follower))
        await _recovery(system, follower, Case.A)
    for number in range(rounds):
        await system.processes[follower].stop()
        missed = int(min(keys, RETAINED) * MISSED_SHARE)
        await _put(system, [(number + place * STRIDE) % keys for place in range(missed)])
        await system.start([follower])
        found.replay_recovery.append(await _recovery(system, follower, Case.B))
    await system.processes[follower].stop()
    await _put(system, [place * STRIDE % keys for place in range(keys // PERCENT)], compact=True)
    await system.start([follower])
    found.difference_recovery = await _recovery(system, follower, Case.C)
    await system.processes[follower].stop()
    for _ in range(rounds):
        found.voter_s.append(await _again(system, (await system.leader() + 1) % NODES))
    return found


async def _put(system: Palisade, numbers: Sequence[int], *, compact: bool = False) -> None:
    """One revision for each. `compact`: only the state is retained then, so that a lagging node cannot replay."""
    async with Client(system.streams, timeout_s=TIMEOUT_S) as client:
        await client.put_many((PREFIX + b"%010d" % number, VALUE) for number in numbers)
        if compact:
            await client.compact((await client.put(PREFIX + b"%010d" % numbers[0], VALUE)).revision)


async def _again(system: Palisade, number: int) -> float:
    """How long a process takes from its start until it serves; it is stopped before."""
    await asyncio.sleep(SETTLE_S)
    await system.processes[number].stop()
    return await system.start([number])


async def _recovery(system: Palisade, number: int, case: Case) -> dict[str, Any]:
    """The node's report of its last recovery. Raises LoadFailed unless it had this case."""
    status, answer = await system.get(number, "/v1/recovery")
    found: list[dict[str, Any]] = answer["recoveries"] if status == 200 else []
    last = found[-1] if found else {}
    if last.get("case") != case.value:
        raise LoadFailed(f"a recovery that was to be case {case.value} ended so: {last or status}")
    return last
