"""What every simulated member of a Raft group has, in a whole cluster (`tests/sim/node.py`) or alone
(`raft_cluster.py`): a disk, and, while it runs, a process with a `Group`."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterable
from random import Random
from typing import Any, TypeVar

from tests.support.simulation import Process

FSYNC_S = 0.0005


class Disk:
    """`fsync_s`: about how long a sync takes. `failing`: it raises; `full`: nothing can be written."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.fsync_s = FSYNC_S
        self.full = self.failing = False

    @property
    def is_slow(self) -> bool:
        return self.fsync_s > FSYNC_S

    def sync_s(self) -> float:
        """How long the next sync takes."""
        return self.fsync_s * (0.5 + self.chance.random())

    def check(self) -> None:
        """Raises OSError."""
        if self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def sync(self) -> None:
        """Raises OSError."""
        await asyncio.sleep(self.sync_s())
        self.check()


class Machine:
    """`follows`: it is no member of the group. `starts`: how often it was started."""

    id: str
    disk: Any
    follows = False
    starts = 0
    process: Process | None = None
    group: Any = None

    @property
    def runs(self) -> bool:
        """It has a process, perhaps a paused one."""
        return self.process is not None and not self.process.dead

    @property
    def paused(self) -> bool:
        return self.process is not None and self.process.paused

    @property
    def healthy(self) -> bool:
        """Runs, is not paused, and has not stopped itself."""
        return self.runs and not self.paused and not self.failed

    @property
    def failed(self) -> bool:
        failed = self.group.failed if self.group is not None else None
        return failed is not None and failed.done()

    @property
    def takes_part(self) -> bool:
        """In the group, as far as it knows."""
        return self.healthy and self.group is not None


M = TypeVar("M", bound=Machine)


def leaders_of(machines: Iterable[M]) -> list[M]:
    return [machine for machine in machines if machine.takes_part and machine.group.leads]


def followed_leader(machines: Iterable[M]) -> M | None:
    """The leader that a majority follows."""
    present = [machine for machine in machines if machine.takes_part]
    for leader in leaders_of(present):
        followers = [each for each in present if each.group.leader == leader.id]
        if len(followers) * 2 > len(leader.group.members.voters):
            return leader
    return None


def is_voter(members: Any, machine: Machine) -> bool:
    """Whether the membership has this machine as a voter, with its current disk."""
    group, found = machine.group, members.get(machine.id)
    same = group is not None and found is not None and found.incarnation == group.incarnation
    return same and machine.id in members.voters


def all_vote(members: Any, machines: Iterable[Machine]) -> bool:
    return all(is_voter(members, each) for each in machines)
