"""Components start in order, stop in reverse, all or none; no listener is called before all have started (R10)."""

from __future__ import annotations

import asyncio

import pytest

from palisade.base.start_order import ComponentError
from palisade.recovery.lifecycle import Component, ComponentFailed, Lifecycle, LifecyclePhase, Part
from palisade.recovery.listeners import ListenerFailed, Listeners, Notification, NotStartedYet
from tests.support.waiting import until


def revision(number: int, *, last: bool = True) -> Notification:
    return Notification(number, (), last)


class Noted(Component):
    """Records its calls; can be configured to fail or to hang."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes
        self.fails: set[str] = set()
        self.hangs = False
        self.breaks = asyncio.Event()

    async def start(self) -> None:
        self._note("start")
        if self.hangs:
            await asyncio.Event().wait()

    async def run(self) -> None:
        await self.breaks.wait()
        raise RuntimeError(f"{self.name} broke")

    async def stop(self) -> None:
        self._note("stop")

    def _note(self, what: str) -> None:
        if what in self.fails:
            raise OSError(f"{self.name}: no {what}")
        self.notes.append(f"{what} {self.name}")


class World:
    """a <- b <- c, and d which needs a."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.listeners = Listeners()
        self.parts = {name: Noted(name, self.notes) for name in "abcd"}
        needs: dict[str, tuple[str, ...]] = {"c": ("b",), "b": ("a",), "d": ("a",), "a": ()}
        self.life = Lifecycle([Part(name, self.parts[name], needs[name]) for name in needs], self.listeners)


async def test_components_start_in_order_and_stop_in_reverse() -> None:
    world = World()
    await world.life.start()
    await world.life.stop()
    assert world.notes == [f"start {each}" for each in "abcd"] + [f"stop {each}" for each in "dcba"]


async def test_start_that_is_abandoned_by_its_event_loop_stops_nothing() -> None:
    """The coroutine of a start is closed when its loop is gone, as that of a process that was killed in the simulator.
    No loop runs its components any more; the stop was scheduled on whichever loop ran then, or never awaited."""
    world = World()
    world.parts["c"].hangs = True
    starting = world.life.start()
    starting.send(None)
    before, tasks = list(world.notes), asyncio.all_tasks()
    starting.close()
    assert world.notes == before
    assert asyncio.all_tasks() == tasks
    for each in tasks - {asyncio.current_task()}:
        each.cancel()


async def test_failing_start_stops_started_components_and_names_the_cause() -> None:
    world = World()
    world.parts["c"].fails.add("start")
    with pytest.raises(ComponentFailed, match="component c could not start: c: no start") as failed:
        await world.life.start()
    assert (failed.value.component, failed.value.phase) == ("c", LifecyclePhase.START)
    assert isinstance(failed.value.cause, OSError)
    assert world.notes == ["start a", "start b", "stop b", "stop a"]
    with pytest.raises(NotStartedYet):
        await world.listeners.notify(revision(1))
    await world.life.stop()
    assert len(world.notes) == 4


async def test_cancelled_start_stops_all_started_components() -> None:
    """scenarios.md, "Recovery": stop during recovery, clean, no hang."""
    world = World()
    world.parts["c"].hangs = True
    starting = asyncio.create_task(world.life.start())
    await until(lambda: world.notes[-1:] == ["start c"])
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert world.notes[-2:] == ["stop b", "stop a"]


async def test_failing_stop_does_not_prevent_other_stops() -> None:
    world = World()
    world.parts["b"].fails.add("stop")
    await world.life.start()
    with pytest.raises(ComponentFailed, match="component b could not stop cleanly"):
        await world.life.stop()
    assert world.notes[-3:] == ["stop d", "stop c", "stop a"]
    await world.life.stop()


async def test_failing_component_ends_wait_with_its_name() -> None:
    world = World()
    await world.life.start()
    waiting = asyncio.create_task(world.life.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    world.parts["b"].breaks.set()
    with pytest.raises(ComponentFailed, match="component b failed: b broke"):
        await waiting
    await world.life.stop()
    assert world.notes[-4:] == ["stop d", "stop c", "stop b", "stop a"]


async def test_listeners_are_not_called_before_the_last_component_has_started() -> None:
    heard: list[int] = []
    listeners = Listeners()
    refused: list[str] = []

    class Early(Component):
        async def start(self) -> None:
            listeners.listen("early", lambda events: heard.append(events.revision))

    class Late(Component):
        async def start(self) -> None:
            try:
                await listeners.notify(revision(1))
            except NotStartedYet as error:
                refused.append(str(error))

    life = Lifecycle([Part("early", Early()), Part("late", Late(), ("early",))], listeners)
    await life.start()
    assert (heard, len(refused)) == ([], 1)
    await listeners.notify(revision(1))
    assert heard == [1]
    await life.stop()


async def test_duplicate_component_names_are_refused() -> None:
    with pytest.raises(ComponentError, match="same name"):
        Lifecycle([Part("a", Component()), Part("a", Component())])


async def test_revisions_are_notified_once_and_in_order() -> None:
    listeners = Listeners()
    listeners.begin_at(7)
    listeners.open()
    with pytest.raises(ComponentError, match="notified after 7"):
        await listeners.notify(revision(7))
    await listeners.notify(revision(9))
    with pytest.raises(ComponentError):
        await listeners.notify(revision(8))
    assert listeners.handled == 9


async def test_listener_waits_for_values_it_depends_on_in_any_order() -> None:
    """The dependent one is notified first, and still sees the value as of its own revision, never an older one."""
    listeners = Listeners()
    seen: list[tuple[int, str]] = []
    tables = listeners.value("tables", "none")

    async def partitions(events: Notification) -> None:
        seen.append((events.revision, await tables.at(events.revision)))

    async def schema(events: Notification) -> None:
        await asyncio.sleep(0)
        tables.set(events.revision, f"tables of {events.revision}")

    listeners.listen("partitions", partitions)
    listeners.listen("tables", schema)
    listeners.open()
    for number in (1, 2, 3):
        await listeners.notify(revision(number))
    assert seen == [(number, f"tables of {number}") for number in (1, 2, 3)]


async def test_value_of_a_component_without_listeners_is_complete_at_once() -> None:
    listeners = Listeners()
    fixed = listeners.value("settings", "s")
    seen: list[str] = []

    async def user(events: Notification) -> None:
        seen.append(await fixed.at(events.revision))

    listeners.listen("user", user)
    listeners.open()
    await listeners.notify(revision(1))
    assert seen == ["s"]


async def test_failing_listener_interrupts_no_other_and_the_revision_is_repeated() -> None:
    """scenarios.md, "Recovery": a component's listener throws."""
    done: list[str] = []
    broken = True

    def attach(listeners: Listeners) -> None:
        async def slow(events: Notification) -> None:
            for _ in range(5):
                await asyncio.sleep(0)
            done.append(f"slow {events.revision}")

        async def bad(events: Notification) -> None:
            if broken:
                raise RuntimeError("disk of the partitions")
            done.append(f"bad {events.revision}")

        listeners.listen("slow", slow)
        listeners.listen("bad", bad)
        listeners.open()

    first = Listeners()
    attach(first)
    with pytest.raises(ListenerFailed, match="component bad could not handle revision 1") as failed:
        await first.notify(revision(1))
    assert (failed.value.component, failed.value.revision, first.handled) == ("bad", 1, 0)
    assert done == ["slow 1"]
    with pytest.raises(ListenerFailed):
        await first.notify(revision(2))
    broken = False
    second = Listeners(first.handled)
    attach(second)
    await second.notify(revision(1))
    assert sorted(done[1:]) == ["bad 1", "slow 1"]


async def test_waiter_for_a_failed_components_value_gets_the_cause() -> None:
    listeners = Listeners()
    tables = listeners.value("tables", "none")

    async def user(events: Notification) -> None:
        await tables.at(events.revision)

    async def schema(events: Notification) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("no schema")

    listeners.listen("user", user)
    listeners.listen("tables", schema)
    listeners.open()
    with pytest.raises(ListenerFailed, match="component tables") as failed:
        await listeners.notify(revision(1))
    assert "no schema" in str(failed.value)


async def test_stop_ends_waits_for_later_revisions() -> None:
    world = World()
    value = world.listeners.value("a", 0)
    await world.life.start()
    waiting = asyncio.create_task(value.at(5))
    await asyncio.sleep(0)
    await world.life.stop()
    with pytest.raises(ComponentError, match="the node is stopping"):
        await waiting


async def test_registration_after_start_is_refused() -> None:
    world = World()
    await world.life.start()
    with pytest.raises(ComponentError, match="registers after notifications have begun"):
        world.listeners.listen("late", lambda events: None)
    await world.life.stop()


async def test_difference_in_parts_is_handled_with_its_last_part() -> None:
    """A running node that gets a snapshot: the changes come by key, and none is skipped."""
    listeners = Listeners()
    value = listeners.value("a", 0)
    heard: list[bool] = []
    listeners.listen("a", lambda notification: heard.append(notification.last))
    listeners.open()
    for last in (False, False, True):
        assert (listeners.handled, value.completed) == (0, 0)
        await listeners.notify(revision(5, last=last))
    assert (listeners.handled, value.completed, heard) == (5, 5, [False, False, True])


def test_plain_listeners_of_several_components_are_called_without_a_turn_of_the_loop() -> None:
    """With a task for each component, a data node applied 1,000 revisions per second (issue 16)."""
    listeners, called = Listeners(), list[str]()
    for name in "abc":
        listeners.listen(name, lambda notification, name=name: called.append(name))  # type: ignore[misc]
    listeners.open()
    with pytest.raises(StopIteration):
        listeners.notify(revision(1)).send(None)
    assert (called, listeners.handled) == (["a", "b", "c"], 1)
