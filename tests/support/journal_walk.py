"""Random schedules of the journal's world: kills, power failures, pauses and cuts between copies, store and clients,
failing disks, and bits that flip on one disk at a time."""

from __future__ import annotations

import asyncio

from palisade.journal.errors import JournalDamaged, JournalError
from palisade.journal.local_file import NAME
from tests.support.journal_disk import SimDisk
from tests.support.journal_world import NAMES, JournalWorld, Place
from tests.support.simulation import Process

STEPS = 25
STEP_S = 0.7
QUIET_S = 60.0
ACTIONS = ("kill", "kill process", "pause", "cut pair", "cut pair", "cut store", "cut client", "slow store")
ACTIONS_WITH_DISKS = (*ACTIONS, "kill", "slow disk", "slow disk", "full disk", "sync fails", "reset", "reset")
ACTIONS_WITH_FLIPS = (*ACTIONS, *("bit flips",) * 6)
SLOW_SYNC_S = 0.3
READ_PAUSE_S = 0.1


def walk(seed: int, actions: tuple[str, ...] = ACTIONS) -> JournalWorld:
    """Disturb for a while, then heal everything and wait until both copies are in sync again."""
    world = JournalWorld(seed, allow_failback=seed % 2 == 0)
    try:
        return walk_in(world, actions)
    except BaseException:
        world.close()
        raise


def walk_in(world: JournalWorld, actions: tuple[str, ...]) -> JournalWorld:
    random = world.simulation.random
    for name in NAMES:
        world.start(name)
    world.load("x")
    world.load("y")
    if "bit flips" in actions:
        read_all_the_time(world)
    for _ in range(STEPS):
        disturb(world, actions)
        world.simulation.run_for(STEP_S * random.random() * 2)
        if random.random() < 0.4:
            heal(world)
            world.simulation.run_for(STEP_S * random.random() * 4)
        if world.violations:
            return world
    heal(world)
    world.simulation.run_for(6)
    notice_flip(world)
    judge(world)
    return world


def disturb(world: JournalWorld, actions: tuple[str, ...]) -> None:
    random = world.simulation.random
    name = random.choice(NAMES)
    place = world.places[name]
    assert place.process is not None
    action = random.choice(actions)
    if action in ("kill", "kill process"):
        world.kill(name, power=action == "kill")
        if random.random() < 0.6:
            world.start(name)
    elif action == "pause":
        place.process.pause()
    elif action == "cut pair":
        world.network.cuts.add(frozenset(NAMES))
    elif action == "cut store" and place.store is not None:
        place.store.cut_off = True
    elif action == "slow store":
        world.slow = True
    elif action == "cut client":
        world.network.cuts.add(frozenset(("x", name)))
    elif action == "reset":
        world.network.reset(*NAMES)
    elif action == "bit flips":
        flip_a_bit(world, place)
    else:
        disturb_disk(world, name, action)


def disturb_disk(world: JournalWorld, name: str, action: str) -> None:
    disk, random = world.places[name].disk, world.simulation.random
    if action == "slow disk":
        disk.sync_s = SLOW_SYNC_S * random.random()
    elif action == "full disk":
        disk.room = random.randrange(2000)
    elif action == "sync fails":
        disk.sync_fails = True


def flip_a_bit(world: JournalWorld, place: Place) -> None:
    """Not before the damage of the other disk has been mended: what both copies have lost is lost. In half of the cases
    both machines restart at once, while the damaged file is still the newest one."""
    if (world.flip is None or not world.flip.is_there) and NAME in place.disk.files:
        world.flip = place.disk.flip_a_bit()
        world.flips += world.flip is not None
        if world.simulation.random.random() < 0.5:
            for name in NAMES:
                world.kill(name)
                world.start(name)


def mend(world: JournalWorld, place: Place) -> None:
    """As the error says: the copy starts empty if the other one is active, else with the file of a backup."""
    assert world.flip is not None
    assert world.flip.disk is place.disk, "damage where no bit flipped"
    active = world.active()
    if active is not None and active is not place:
        place.disk = SimDisk(world.simulation.random)
    else:
        world.flip.undo()
    world.flip = None
    world.mended += 1
    world.kill(place.name, power=False)


def notice_flip(world: JournalWorld) -> None:
    """A flipped bit that no read has met is found at the next start."""
    flip = world.flip
    if flip is None or not flip.is_there:
        return
    place = next(each for each in world.places.values() if each.disk is flip.disk)
    if place.failure is None:
        world.kill(place.name, power=False)
        world.start(place.name)
        world.simulation.run_for(1)
    if not isinstance(place.failure, JournalDamaged):
        world.violations.append(f"started with a flipped bit in {flip.name} at byte {flip.offset}")
    else:
        heal(world)
        world.simulation.run_for(6)


def read_all_the_time(world: JournalWorld, name: str = "z") -> Process:
    """A client that reads any part of the journal, and compares it with what was acknowledged."""
    process, client = world.client(name, timeout_s=3.0)

    async def run() -> None:
        while True:
            first = process.simulation.random.randint(1, max(world.acknowledged, default=1))
            try:
                found, last = await client.read(first, 1 << 12)
            except JournalError:
                found, last = [], 0
            wrong = [number for number, content in found if world.acknowledged.get(number, content) != content]
            if wrong or (last >= first and not found):
                world.violations.append(f"entries from {first} to {last} were read as {found[:3]}: {wrong} differ")
            await asyncio.sleep(READ_PAUSE_S)

    process.start(run())
    return process


def heal(world: JournalWorld) -> None:
    world.network.heal()
    world.slow = False
    for name, place in world.places.items():
        assert place.process is not None
        place.process.resume()
        place.disk.sync_s, place.disk.room, place.disk.sync_fails = None, 1 << 40, False
        if place.store is not None:
            place.store.cut_off = False
        if isinstance(place.failure, JournalDamaged):
            mend(world, place)
        if isinstance(place.failure, OSError):
            world.kill(name, power=world.simulation.random.random() < 0.5)
        if place.process.dead:
            world.start(name)


def judge(world: JournalWorld) -> None:
    """The role is served again, and the active copy has every acknowledged entry."""
    stopped = [f"{place.name}: {place.failure}" for place in world.places.values() if place.failure is not None]
    if stopped:
        world.violations.append(f"stopped by itself: {stopped}")
        return
    world.until_active(within_s=QUIET_S)
    world.until_in_sync(within_s=QUIET_S)
    if world.allow_failback:
        world.until_active("a", within_s=QUIET_S)
        world.until_in_sync(within_s=QUIET_S)
    if lost := world.lost():
        world.violations.append(f"the active copy lacks acknowledged entries: {lost[:10]}")
