"""The tests of SWIM are worth something: each of these faults makes one of them fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palisade.topology.swim import protocol
from palisade.topology.swim.protocol import Swim
from palisade.topology.swim.record import Record
from palisade.topology.swim.roster import Roster
from tests.topology.swim import test_swim as checks


def no_refutation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swim, "_raise_above", lambda self, record: None)


def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swim, "_ask_proxies", lambda self, probe: setattr(probe, "relay_at", None))


def time_that_runs_in_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    def advance(self: Swim, now: float) -> None:
        self._clock += now - self._seen
        self._seen = now

    monkeypatch.setattr(Swim, "_advance", advance)


def death_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.topology.swim.timing.SwimTiming.suspicion_s", lambda self, nodes: 0.0)


def nobody_is_asked_for_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swim, "_ask_contested", lambda self: None)


def always_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(self: Roster) -> Record | None:
        return next((each for each in self.live() if each.name != self._own), None)

    monkeypatch.setattr(Roster, "next_turn", first)


def no_comparison_of_rosters(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Swim._synchronize
    monkeypatch.setattr(Swim, "_synchronize", lambda self, alone: original(self, alone) if alone else None)


def rumours_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol.SwimTiming, "spread_max", lambda self, nodes: 10**9)


def in_any_of(check: Callable[[int], None]) -> Callable[[], None]:
    """Some faults show themselves in some runs only."""

    def run() -> None:
        for seed in range(10):
            check(seed)

    return run


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (no_refutation, in_any_of(checks.test_false_suspicion_is_refuted_with_a_higher_incarnation)),
        (no_proxies, in_any_of(checks.test_false_suspicion_is_refuted_with_a_higher_incarnation)),
        (time_that_runs_in_a_pause, in_any_of(checks.test_paused_node_suspects_no_other_node)),
        (death_without_delay, in_any_of(checks.test_lost_datagrams_remove_no_node)),
        (
            nobody_is_asked_for_the_name,
            in_any_of(checks.test_second_node_with_the_same_name_stops_without_side_effects),
        ),
        (always_the_first, lambda: checks.test_a_node_that_stops_is_dead_to_all_within_the_bound(0, 50)),
        (no_comparison_of_rosters, in_any_of(checks.test_split_cluster_merges_after_it_heals)),
        (rumours_without_end, checks.test_rumours_are_sent_a_bounded_number_of_times),
    ],
)
def test_the_fault_is_seen(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], check: Callable[[], object]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
