"""Random schedules of the journal's world: kills, power failures, pauses and cuts between copies, store and clients."""

from __future__ import annotations

from tests.support.journal_world import NAMES, JournalWorld

STEPS = 25
STEP_S = 0.7
QUIET_S = 60.0
ACTIONS = ("kill", "kill process", "pause", "cut pair", "cut pair", "cut store", "cut client", "slow store")
ACTIONS_WITH_DISKS = (*ACTIONS, "kill", "slow disk", "slow disk", "full disk", "sync fails", "reset", "reset")
SLOW_SYNC_S = 0.3


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


def heal(world: JournalWorld) -> None:
    world.network.heal()
    world.slow = False
    for name, place in world.places.items():
        assert place.process is not None
        place.process.resume()
        place.disk.sync_s, place.disk.room, place.disk.sync_fails = None, 1 << 40, False
        if place.store is not None:
            place.store.cut_off = False
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
