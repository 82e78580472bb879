"""Seed 004: of two copies of a journal, only the newest becomes active."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from palisade.cli.scenarios.actor import Actor
from palisade.cli.scenarios.link import Link
from palisade.cli.scenarios.members import Members
from palisade.cli.scenarios.stage import Stage
from palisade.cli.scenarios.story import Report, Scenario
from palisade.journal.client import JournalClient
from palisade.journal.errors import AppendUnknown, NotActive

ROLE = "orders"
BEFORE, ALONE = 20, 10
WAITS_S = 3.0
"""Three times the lease of the lock."""
FOLLOWS = ("waiting", "catching up")
"""States of a copy that neither serves nor is in sync."""


class Pair:
    """Two copies, connected by `links`; a is the configured primary. `journal` is a client of both."""

    def __init__(self, stage: Stage, cluster: Members, *options: str) -> None:
        self._stage = stage
        addresses = stage.address(), stage.address()
        self.links = [Link(stage.address(), address) for address in addresses]
        self.a, self.b = (
            stage.journal_copy(name, address, [
                f"--role={ROLE}", f"--name={name}", f"--listen={address}", f"--advertise={link.address}", f"--{kind}",
                f"--endpoints={','.join(cluster.streams)}", *options,
            ])
            for name, kind, address, link in zip("ab", ("primary", "backup"), addresses, self.links, strict=True)
        )  # fmt: skip
        self.addresses = list(addresses)
        self.journal = JournalClient(ROLE, self.addresses, timeout_s=20.0)
        self.expected: list[bytes] = []

    async def close(self) -> None:
        self.journal.close()
        for link in self.links:
            await link.close()

    async def start(self) -> None:
        for link in self.links:
            await link.start()
        await self.a.start()
        await self.b.start()

    def cut(self) -> None:
        """The copies no longer reach each other; the client and the metadata store reach both."""
        for link in self.links:
            link.cut()

    def restore(self) -> None:
        for link in self.links:
            link.restore()

    async def statuses(self) -> tuple[dict[str, Any], dict[str, Any]]:
        a, b = await self.journal.status()
        return a, b

    async def states(self) -> tuple[str, str]:
        a, b = await self.statuses()
        return str(a.get("state")), str(b.get("state"))

    async def reach(self, a: str = "", b: str = "") -> None:
        """Waits until the given copies have these states."""

        async def holds() -> bool:
            found = await self.states()
            return all(wanted in ("", state) for wanted, state in zip((a, b), found, strict=True))

        named = ", ".join(f"{name} {state}" for name, state in (("a", a), ("b", b)) if state)
        await self._stage.until(holds, f"copies: {named}")

    async def decided(self, name: str) -> None:
        """Waits until that copy follows the other one, or, which is an error, serves."""

        async def holds() -> bool:
            return (await self.states())["ab".index(name)] in (*FOLLOWS, "active")

        await self._stage.until(holds, f"copies: {name} {' or '.join(FOLLOWS)}")

    async def append(self, number: int) -> None:
        for _ in range(number):
            content = b"order %d" % (len(self.expected) + 1)
            await self.journal.append(content)
            self.expected.append(content)

    async def check_waits(self, name: str) -> bool:
        """Checks that no copy serves after several times the lease of the lock.

        The last attempt may end without an answer, so an unknown append is judged by the state of the copy."""
        async with JournalClient(ROLE, self.addresses, timeout_s=WAITS_S) as journal:
            with contextlib.suppress(NotActive, AppendUnknown):
                number = await journal.append(b"too early")
                self._stage.check(name, False, f"entry {number} was acknowledged")
                return False
        (one,) = [each for each in await self.journal.status() if each["state"] != "unreachable"]
        own, agreed = one["sequence"], one["agreed_sequence"]
        seen = f"{one['name']} is {one['state']} with sequence {own}, the agreed one is {agreed}"
        waits = bool(one["state"] == "waiting" and own < agreed)
        self._stage.check(name, waits, seen)
        return waits

    async def check_older(self, newest: Actor, said: str) -> None:
        """The running copy is the older one and must wait. Once the newest copy is started, it has every entry."""
        if not await self.check_waits("older-waits"):
            return
        await newest.start()
        await self.reach("active", "in sync")
        self._stage.say(said)
        await self.check_entries("nothing-lost")

    async def check_entries(self, name: str) -> None:
        """Checks that the journal has exactly the acknowledged entries."""
        found = [content async for _, content in self.journal.entries()]
        self._stage.check(name, found == self.expected, f"{len(found)} entries")


async def new_pair(stage: Stage, *options: str) -> Pair:
    cluster = await stage.cluster(1)
    pair = Pair(stage, cluster, *options)
    stage.at_end(pair.close)
    return pair


async def pair_in_sync(stage: Stage, *options: str) -> Pair:
    pair = await new_pair(stage, *options)
    await pair.start()
    await pair.reach("active", "in sync")
    await pair.append(BEFORE)
    stage.say(f"a is active, b is in sync; {BEFORE} orders are acknowledged")
    return pair


async def older_primary(stage: Stage) -> Report | None:
    pair = await pair_in_sync(stage, "--allow-failback")
    await pair.a.stop()
    await pair.reach(b="active")
    await pair.append(ALONE)
    stage.say(f"a is stopped, b fails over and serves {ALONE} orders alone")
    await pair.b.stop()
    await pair.a.start()
    await pair.decided("a")
    stage.say("b is stopped, and the primary a is started: its copy is the older one")
    await pair.check_older(
        pair.b, "b is started: it serves, a receives what it lacks and gets the role back (--allow-failback)"
    )
    return None


async def lonely_primary(stage: Stage) -> Report | None:
    pair = await pair_in_sync(stage)
    pair.b.send(signal.SIGSTOP)
    await pair.append(ALONE)
    stage.say(f"b hangs (SIGSTOP); a raises the sequence and serves {ALONE} orders alone")
    await pair.a.kill()
    pair.b.send(signal.SIGCONT)
    await pair.decided("b")
    stage.say("a is killed, and b continues: its copy is the older one")
    await pair.check_older(pair.a, "a is started again and serves; b receives what it lacks")
    return None


async def lucky_live(stage: Stage) -> Report | None:
    pair = await new_pair(stage)
    pair.cut()
    await pair.start()
    await pair.reach(a="active")
    await pair.decided("b")
    await pair.append(BEFORE)
    before = (await pair.statuses())[1]["sequence"]
    stage.say(f"a is active, and {BEFORE} orders are acknowledged; b has an empty copy and is not in sync")
    pair.restore()
    await pair.reach("active", "in sync")
    a, b = await pair.statuses()
    stage.say("a sends its journal to b, and with it the sequence: b could take over from now on")
    adopted = before == 0 and b["sequence"] == a["sequence"] and b["last"] == BEFORE
    seen = f"b has sequence {before or 'none'} before, and {b['sequence']} with {b['last']} entries"
    stage.check("sequence-follows-journal", adopted, seen)
    pair.cut()
    await pair.append(ALONE)
    a, b = await pair.statuses()
    stage.say(f"the copies are cut off from each other; a reaches the metadata store and serves {ALONE} orders alone")
    seen = f"a is {a['state']} with sequence {a['sequence']}, b is {b['state']} with sequence {b['sequence']}"
    stage.check("raises-before-alone", a["sequence"] > b["sequence"] and b["state"] in FOLLOWS, seen)
    await pair.a.kill()
    pair.restore()
    await pair.decided("b")
    stage.say("a is killed, and the network is restored: b finds that its sequence is not the agreed one")
    await pair.check_older(pair.a, "a is started again and serves; b receives what it lacks")
    return None


SCENARIOS = (
    Scenario(
        "activation-older-primary",
        "the primary returns after the backup served alone, and does not become active with its older journal",
        "seed 004, scenario 1, and failback; A1, A2",
        older_primary,
        {
            "older-waits": "the primary alone does not become active, although no other copy runs",
            "nothing-lost": "with both copies up, the primary is active again, with every acknowledged order",
        },
    ),
    Scenario(
        "activation-older-backup",
        "the primary served alone while the backup hung; after its death the backup does not become active",
        "seed 004, scenario 2; A1, A2",
        lonely_primary,
        {
            "older-waits": "the backup alone does not become active, although it gets the chance",
            "nothing-lost": "with the primary back, the journal has every acknowledged order",
        },
    ),
    Scenario(
        "activation-replica-cut-off",
        "a replica gets journal and sequence and is cut off; it does not become active after the primary served alone",
        "seed 004, the third example (the lucky live); A1, A2",
        lucky_live,
        {
            "sequence-follows-journal": "the replica has the sequence of the active copy only after it has its entries",
            "raises-before-alone": "the active copy has raised the sequence before it acknowledges entries alone",
            "older-waits": "the replica alone does not become active, although it reaches the metadata store",
            "nothing-lost": "with the primary back, the journal has every acknowledged order",
        },
    ),
)
