"""Processes beside the nodes, which read their vaults by every method of `VaultReader` (issue 4, F7, F11).

A read is one callback of its process, and has steps: the page, the clock, the snapshot, the page and the clock again.
At any of them the process can be suspended (`Steps.stop_at`): then everything else continues, nodes write the page, die
and recover, and only afterwards the read takes its next step.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any

from palisade.metastore.requests import Range, prefix_end
from palisade.metastore.results import RangeResult
from palisade.vault.change import Item
from palisade.vault.reader import VaultReader
from palisade.vault.snapshot_reads import ShownPage
from palisade.vault.vault import Vault
from tests.sim.asking import EVENTUAL, EVERYTHING, STRICT
from tests.sim.checkers.durable import acknowledged
from tests.sim.clients import result_of, rows_result
from tests.sim.history import History
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED, outcome_of
from tests.sim.seen import Committed, Ok, Outcome, Path, Refused, Why
from tests.sim.vault_disk import Killed
from tests.sim.world import World
from tests.support.simulation import Process
from tests.support.stepped_reader import Step, stepped_reader
from tests.support.virtual_loop import TIMER_S_MIN

WAIT_S = 0.05
WAITED = 0.15
"""The share of reads that wait for a revision, and are of an eventual key."""
TIMES_MAX = 5
STRICT_PREFIX = b"s/"


class Way(enum.Enum):
    """Of a reader."""

    GET = "get"
    AT_ONCE = "at-once"
    ITEM = "item"
    ITEM_ASYNC = "item-async"
    PREFIX = "prefix"
    PREFIX_ASYNC = "prefix-async"
    RANGE = "range"
    RANGE_ASYNC = "range-async"
    """Strict keys and others."""


STEPS, WAYS = tuple(Step), tuple(Way)
PREFIXES = (Way.PREFIX, Way.PREFIX_ASYNC)
RANGES = (Way.RANGE, Way.RANGE_ASYNC)


class Ambiguous(Exception):
    """A result that says too little to be judged."""


class Steps:
    """Of all reads of one process."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process
        self._at: Step | None = None
        self._times = 0
        self._stopped: Callable[[], None] = lambda: None

    def stop_at(self, amount: float, stopped: Callable[[], None]) -> None:
        """Suspend the process before one of the next steps of one kind, drawn by `amount` (0 to 1), until it is
        resumed. `stopped` is called then."""
        kind, times = divmod(amount * len(STEPS), 1)
        self._at, self._times, self._stopped = STEPS[int(kind)], int(times * TIMES_MAX), stopped

    def go_on(self) -> None:
        self._at = None
        self._process.resume()

    def take(self, step: Step) -> None:
        """Raises Killed."""
        if step is not self._at:
            return
        if self._times:
            self._times -= 1
        else:
            self._at = None
            self._world.count(f"read stops: {step.value}")
            self._stopped()
            self.stand_still()

    def sleep(self, seconds: float) -> None:
        """Raises Killed."""
        self._world.simulation.after(max(seconds, TIMER_S_MIN), self._process.resume)
        self.stand_still()

    def stand_still(self) -> None:
        self._process.stand_still()
        if self._process.dead:
            raise Killed


def reader_of(vault: Vault, process: Process, steps: Steps) -> VaultReader:
    def clock_ns() -> int:
        return int(process.now() * 1e9)

    return stepped_reader(vault, steps.take, clock_ns=clock_ns, sleep=steps.sleep, wait_s=WAIT_S)


class ReaderBeside:
    """It outlives the node, and every start of it; without power it dies."""

    def __init__(self, world: World, host: Host, going: Callable[[], bool], pause_s: float) -> None:
        self._world, self._host, self._going, self._pause_s = world, host, going, pause_s
        self.name = f"reader at {host.id}"
        self.process: Any = host.new_process(self.name)
        self.steps = Steps(world, self.process)

    async def run(self) -> None:
        try:
            await self._run()
        except Killed:
            return

    async def _run(self) -> None:
        world, host, vault = self._world, self._host, None
        while self._going():
            await asyncio.sleep(self._pause_s * world.chance.random())
            if host.vault is not None and (vault is None or host.vault.backend is not vault.backend):
                vault = host.vault
                reader = reader_of(vault, self.process, self.steps)
            if vault is not None and world.is_asked(vault):
                way, key = world.chance.choice(WAYS), world.chance.choice(STRICT)
                if world.chance.random() < WAITED:
                    await read_acknowledged(world, host, vault, reader)
                else:
                    await read_beside(world, self.name, host, reader, way, key, vault)


async def read_beside(
    world: World, client: str, host: Host, reader: VaultReader, way: Way, key: bytes, vault: Vault
) -> Outcome:
    """From the vault of this machine, by `reader`. `client`: for the history. Raises Killed."""
    history = world.history
    outcome: Outcome
    request = asked_by(way, key)
    number = history.begin(client, host.id, Path.VAULT_READER, request)
    world.count(f"way of a reader: {way.value}")

    def names(shown: ShownPage) -> None:
        if shown.revision and is_of_this_history(world, history, vault):
            for checker in world.checkers:
                checker.waited(host, shown.revision, key, shown.item)

    try:
        result = await _found(history, reader, way, key, names)
    except EXPECTED as error:
        outcome = outcome_of(error)
        history.end(number, outcome)
        world.count(f"reader: {type(error).__name__}")
        return outcome
    except Ambiguous as error:
        outcome = Refused(Why.UNAVAILABLE, str(error))
        history.end(number, outcome)
        return outcome
    outcome = Ok(result)
    history.end(number, outcome)
    world.count("reader: Ok")
    world.note(host.id, f"reader {number} {way.value} {[kv.mod_revision for kv in result.kvs]}")
    return outcome


async def read_acknowledged(world: World, host: Host, vault: Vault, reader: VaultReader) -> None:
    """An eventual key, at or after the latest revision acknowledged to any write. A vault from before a restore has
    other revisions. Raises Killed."""
    history, revision, key = world.history, acknowledged(world.history), world.chance.choice(EVENTUAL)
    if not is_of_this_history(world, history, vault):
        return
    try:
        await reader.wait_for_async(revision, WAIT_S)
        item = reader.get_item(key)
    except EXPECTED as error:
        world.count(f"waited read: {type(error).__name__}")
        return
    if is_of_this_history(world, history, vault):
        world.count("waited read: Ok")
        world.note(host.id, f"reader waited for {revision}: {key!r} {item.mod_revision if item else 0}")
        for checker in world.checkers:
            checker.waited(host, revision, key, item)


def is_of_this_history(world: World, history: History, vault: Vault) -> bool:
    lineage = vault.lineage
    return history is world.history and lineage is not None and lineage.generation == world.generation


async def _found(
    history: History, reader: VaultReader, way: Way, key: bytes, names: Callable[[ShownPage], None]
) -> RangeResult:
    """`names` is called with each result that names its revision."""
    match way:
        case Way.GET:
            return row_of(history, key, reader.get(key))
        case Way.AT_ONCE:
            shown = reader.at_once(key) or reader.read(key)
            names(shown)
            return result_of(shown.item)
        case Way.ITEM:
            return result_of(reader.get_item(key))
        case Way.ITEM_ASYNC:
            return result_of(await reader.get_item_async(key))
        case Way.PREFIX:
            return rows_result(reader.prefix(STRICT_PREFIX))
        case Way.PREFIX_ASYNC:
            return rows_result(await reader.prefix_async(STRICT_PREFIX))
        case Way.RANGE:
            return rows_result(reader.range(*EVERYTHING))
        case Way.RANGE_ASYNC:
            return rows_result(await reader.range_async(*EVERYTHING))


def asked_by(way: Way, key: bytes) -> Range:
    if way in PREFIXES:
        return Range(STRICT_PREFIX, prefix_end(STRICT_PREFIX))
    return Range(*EVERYTHING) if way in RANGES else Range(key)


def row_of(history: History, key: bytes, value: bytes | None) -> RangeResult:
    """The revision of a value: each value of a client is of one request, so it identifies its revision; a value that no
    client put has none. Raises Ambiguous for one that a later put kept."""
    if value is None:
        return result_of(None)
    rows = [
        each.kv
        for event in history.events
        if isinstance(event, Committed)
        for each in event.events.events
        if each.kv.key == key and each.kv.value == value and not each.delete
    ]
    if len(rows) > 1:
        raise Ambiguous(f"{value!r} is what {key!r} was at the revisions {[kv.mod_revision for kv in rows]}")
    return result_of(Item(*rows[0]) if rows else Item(key, value, 1, 0, 1, 0))
