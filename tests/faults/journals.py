"""Partitions between the two copies of a journal and the metadata store (issue 17, "Activation").

A client of each copy appends and reads all the time, and reaches it in every partition. `journal_history.py` checks
that no acknowledged entry is lost, and that no copy answers after another one has taken its role.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from palisade.journal.channel import Channel, TcpNetwork
from palisade.journal.client import JournalClient
from palisade.journal.errors import JournalError
from tests.faults.ground import Ground, GroundCluster
from tests.faults.network import PORTS
from tests.faults.rules import Rule, partition
from tests.support.fencing_cluster import now
from tests.support.journal_history import Appended, JournalHistory, Read
from tests.support.processes import NodeProcess, until

ROLE = "orders"
STORE, COPIES = "n1", ("n2", "n3")
CALL_S = 0.5
PAUSE_S = 0.02
APPENDS = 20
OUTLASTS_S = 2.0
"""A cut that lasts so long ends the lease of the role (1 s) and the session of a replica (1 s)."""
ANSWERS_S = 15.0
"""How long a cut may stop all answers. The goal is 3 s on a quiet machine."""


class JournalCopy(NodeProcess):
    """A copy on a host of its own, with the name of the host. Clients use the address on which it listens, the other
    copy the advertised one: where relays of loopback addresses replace namespaces, they are between the two."""

    def __init__(self, ground: Ground, host: str, kind: str, cluster: GroundCluster) -> None:
        super().__init__(ground.folder, host)
        self.before_exec = ground.network.enter(host)
        self.program = cluster.members[0].program
        self.address = f"{ground.network.listens_on(host)}:{PORTS['stream']}"
        self._arguments = [
            "journal", "serve", f"--role={ROLE}", f"--name={host}", f"--dir={self.data_dir}",
            f"--listen={self.address}", f"--advertise={ground.network.advertised(host)}:{PORTS['stream']}",
            f"--{kind}", f"--endpoints={','.join(cluster.endpoints)}",
        ]  # fmt: skip

    def command(self) -> list[str]:
        return [sys.executable, *self.program, *self._arguments]


class _OneCopy:
    """A network with this copy alone: its client does not follow a hint to the other one."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def dial(self, _address: str) -> Channel:
        return await TcpNetwork().dial(self._address)


class Pair:
    """Two copies and the clients of each."""

    def __init__(self, ground: Ground, cluster: GroundCluster) -> None:
        self.ground = ground
        self.copies = [
            JournalCopy(ground, host, kind, cluster) for host, kind in zip(COPIES, ("primary", "backup"), strict=True)
        ]
        self.history = JournalHistory()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for copy in self.copies:
            copy.start()
        tasks = [asyncio.create_task(work(copy)) for copy in self.copies for work in (self._append, self._read)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for copy in self.copies:
                copy.kill()

    def client(self, copy: JournalCopy, timeout_s: float = CALL_S) -> JournalClient:
        return JournalClient(ROLE, [copy.address], timeout_s=timeout_s, network=_OneCopy(copy.address))

    async def _append(self, copy: JournalCopy) -> None:
        count = 0
        async with self.client(copy) as client:
            while True:
                count += 1
                content, began = b"%s %d" % (copy.id.encode(), count), now()
                with contextlib.suppress(JournalError):
                    number = await client.append(content)
                    self.history.appended.append(Appended(copy.id, began, now(), number, content))
                await asyncio.sleep(PAUSE_S)

    async def _read(self, copy: JournalCopy) -> None:
        async with self.client(copy) as client:
            while True:
                began = now()
                with contextlib.suppress(JournalError):
                    _, last = await client.read(1, 1)
                    self.history.reads.append(Read(copy.id, began, now(), last))
                await asyncio.sleep(PAUSE_S)

    async def whole(self) -> tuple[JournalCopy, JournalCopy]:
        """The active copy, and the replica once it is in sync."""

        async def states() -> list[str]:
            async with JournalClient(ROLE, [copy.address for copy in self.copies]) as client:
                found = [status["state"] for status in await client.status()]
            return found if sorted(found) == ["active", "in sync"] else []

        first = await until(states, "one copy active and the other in sync")
        one, other = self.copies
        return (one, other) if first[0] == "active" else (other, one)

    async def appends_after(self, moment: float, copies: Sequence[JournalCopy]) -> float:
        """Seconds from `moment` to the acknowledgement of the first entry that was sent later to one of these copies;
        returns when the cut has outlasted leases and `APPENDS` more are acknowledged."""
        names = [copy.id for copy in copies]

        def after(begin: float) -> list[Appended]:
            return [each for each in self.history.appended if each.copy in names and each.began > begin]

        def enough() -> bool:
            return len(after(moment + OUTLASTS_S)) >= APPENDS

        await until(enough, f"{APPENDS} entries acknowledged by {' or '.join(names)} in a cut", ANSWERS_S)
        return min(each.ended for each in after(moment)) - moment

    async def entries(self) -> dict[int, bytes]:
        active, _ = await self.whole()
        async with self.client(active, timeout_s=10.0) as client:
            return {number: content async for number, content in client.entries()}


Cut = Callable[[JournalCopy, JournalCopy], list[Rule]]
"""From the active copy and the replica to the rules."""


def active_from_store(active: JournalCopy, _replica: JournalCopy) -> list[Rule]:
    return partition([active.id], [STORE])


def replica_from_store(_active: JournalCopy, replica: JournalCopy) -> list[Rule]:
    return partition([replica.id], [STORE])


def copies_from_each_other(active: JournalCopy, replica: JournalCopy) -> list[Rule]:
    return partition([active.id], [replica.id])


def active_from_both(active: JournalCopy, replica: JournalCopy) -> list[Rule]:
    return partition([active.id], [STORE, replica.id])


def responses_of_the_store(active: JournalCopy, _replica: JournalCopy) -> list[Rule]:
    """The store gets what the active copy sends: the lease lasts longer there than the copy knows."""
    return [Rule(STORE, active.id, carrying=True, loss=1.0)]


LOSES_ROLE = (active_from_store, active_from_both, responses_of_the_store)
"""In these the active copy cannot become active again before the network heals."""
CUTS: tuple[Cut, ...] = (
    replica_from_store, active_from_store, copies_from_each_other, active_from_both, responses_of_the_store,
)  # fmt: skip


async def journal_partitions(ground: Ground) -> None:
    """The copies of a journal and the metadata store are cut off from each other in each way; clients reach both."""
    cluster = ground.cluster(1)
    cluster.start()
    await cluster.ready()
    pair = Pair(ground, cluster)
    async with pair.running():
        await pair.whole()
        for cut in CUTS if ground.plant is None else [active_from_both]:
            await during(pair, cut)
        entries = await pair.entries() if ground.plant is None else None
    ground.violations += pair.history.violations(entries)
    ground.seen |= {"acknowledged": len(pair.history.appended), "reads": len(pair.history.reads)}


async def during(pair: Pair, cut: Cut) -> None:
    """Entries are acknowledged in the cut, and both copies are in sync again after it."""
    ground, (active, replica) = pair.ground, await pair.whole()
    ground.note(f"{active.id} is active: {cut.__name__}")
    began = ground.become(*cut(active, replica))
    answering = [replica] if cut in LOSES_ROLE else pair.copies
    ground.seen[f"{cut.__name__}_s"] = await pair.appends_after(began, answering)
    if cut in LOSES_ROLE:
        pair.history.cut_off.append((active.id, began, now()))
    ground.become()
    if ground.plant is None:
        await pair.whole()


SCENARIOS = (journal_partitions,)
