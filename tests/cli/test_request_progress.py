"""The line of progress of a command that sends many requests (issue 16)."""

from __future__ import annotations

from palisade.cli.request_progress import WINDOW_S, RequestProgress


class World:
    """The clock of a command, and its trouble."""

    def __init__(self) -> None:
        self.now, self.trouble = 100.0, ""
        self.progress = RequestProgress("bench put", lambda: self.trouble or None, lambda: self.now)


def test_progress_has_counts_rate_and_time_left() -> None:
    world = World()
    progress = world.progress
    assert progress.line() == "palisade: bench put: connecting"
    progress.begin("", 10_000)
    assert progress.line() == "palisade: bench put: 0 of 10,000, 0/s"
    world.now += 2
    progress.count(4_000, 10_000)
    assert progress.line() == "palisade: bench put: 4,000 of 10,000, 2,000/s, 3 s left"


def test_rate_is_that_of_the_last_seconds_and_counts_failures() -> None:
    world = World()
    world.progress.begin("", 10_000)
    for _ in range(10):
        world.now += 1
        world.progress.count(1_000, 10_000)
        world.progress.line()
    for _ in range(2):
        world.progress.fail()
    world.trouble = "n1 does not\nrespond"
    found = world.progress.line()
    assert found == "palisade: bench put: 1,000 of 10,000, 2 failed, 1/s, 90 s left; n1 does not respond"
    assert WINDOW_S == 3.0


def test_phase_with_a_total_is_named_until_the_next_phase() -> None:
    world = World()
    world.progress.begin("writing its keys", 20)
    world.progress.count(5, 20)
    assert world.progress.line() == "palisade: bench put: writing its keys, 5 of 20, 0/s"
    world.progress.begin("reading")
    assert world.progress.line() == "palisade: bench put: reading"
    world.progress.count(1, 4)
    assert world.progress.line() == "palisade: bench put: 1 of 4, 0/s"


def test_entries_that_are_present_already_count_neither_for_the_rate_nor_for_the_time_left() -> None:
    """A repeated `palisade load flights` began with most of its entries, and showed 300,000/s and 0 s left."""
    world = World()
    world.progress.count(9_000, 10_000)
    assert world.progress.line() == "palisade: bench put: 9,000 of 10,000, 0/s"
    world.now += 1
    world.progress.count(9_100, 10_000)
    assert world.progress.line() == "palisade: bench put: 9,100 of 10,000, 100/s, 9 s left"
