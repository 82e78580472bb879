"""A reader beside a node stops between any two steps of a read, and events meanwhile are detected (F11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palisade.vault.errors import Fenced
from palisade.vault.fence_page import FENCE_BYTES, FencePage
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.vault import Vault
from tests.sim.readers import STEPS, Ambiguous, Step, Steps, reader_of, row_of
from tests.sim.stories import A, Story
from tests.sim.vault_disk import Killed
from tests.sim.world import Settings, World
from tests.support.virtual_loop import VirtualLoop

BOOT = b"thisboot"
SERVED_S = 3.0


class Reading:
    """A process reads a vault that is served, and that it has read before; it stops once, before that step."""

    def __init__(self, stops: Step | None, meanwhile: Callable[[Reading], None] = lambda reading: None) -> None:
        self.world = World(1, Settings())
        process = self.world.simulation.process("reader", loop=VirtualLoop)
        self.process, self.steps = process, Steps(self.world, process)
        self.page = FencePage(bytearray(FENCE_BYTES), BOOT)
        self.page.serve(int((process.now() + SERVED_S) * 1e9), 1)
        self.reader = reader_of(Vault(MemoryBackend(), self.page), process, self.steps)
        self._stops, self._meanwhile = stops, meanwhile
        self.ended: str = ""

    def run(self) -> str:
        """Returns how it ended."""
        self.process.loop.call_soon(self._read)
        self.world.simulation.run_for(10.0)
        self.world.close()
        return self.ended

    def _read(self) -> None:
        try:
            self.reader.get(b"s/a")
            if self._stops is not None:
                self.steps.stop_at(STEPS.index(self._stops) / len(STEPS), lambda: self._meanwhile(self))
            value = self.reader.get(b"s/a")
            self.ended = f"answered {value!r} at {self.world.now:.0f} s"
        except Fenced:
            self.ended = f"fenced at {self.world.now:.0f} s"
        except Killed:
            self.ended = "killed"


def after(seconds: float, act: Callable[[Reading], None] = lambda reading: None) -> Callable[[Reading], None]:
    """It is suspended that long; then the node does that, and the reader continues."""

    def wake(reading: Reading) -> None:
        act(reading)
        reading.process.resume()

    return lambda reading: reading.world.simulation.after(seconds, lambda: wake(reading))


@pytest.mark.parametrize("step", STEPS)
def test_read_stops_before_any_of_its_steps_and_goes_on(step: Step) -> None:
    assert Reading(step, after(1.0)).run() == "answered None at 1 s"


@pytest.mark.parametrize("step", STEPS)
def test_lease_expiry_is_seen_after_every_step(step: Step) -> None:
    assert Reading(step, after(SERVED_S + 1.0)).run() == "fenced at 4 s"


@pytest.mark.parametrize("step", STEPS)
def test_fenced_page_is_seen_until_the_last_check(step: Step) -> None:
    """After that check only the clock can show that the snapshot was not to be trusted when it was taken."""
    ended = Reading(step, after(1.0, lambda reading: reading.page.refuse())).run()
    assert ended == ("answered None at 1 s" if step is Step.CLOCK else "fenced at 1 s")


def test_read_stops_only_on_request() -> None:
    assert Reading(None).run() == "answered None at 0 s"


def test_process_killed_during_a_read_does_nothing_more() -> None:
    def kill(reading: Reading) -> None:
        reading.world.simulation.after(1.0, reading.process.kill)

    assert Reading(Step.PAGE, kill).run() == "killed"


def test_value_identifies_its_revision_unless_a_later_put_kept_it() -> None:
    """Many 200817: a reader that got the earlier value was assumed to have seen the put that kept it."""
    story = Story()
    story.put(A, b"1")
    assert row_of(story.history, A, b"1").kvs == (story.state[A],)
    assert row_of(story.history, A, None).kvs == ()
    assert row_of(story.history, A, b"2").kvs[0].mod_revision == 0
    story.put(A, b"1")
    with pytest.raises(Ambiguous, match=r"\[2, 3\]"):
        row_of(story.history, A, b"1")
