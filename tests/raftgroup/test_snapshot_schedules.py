"""Snapshots over a bad line: with any losses, repetitions, reordering, changes, breaks and restarts, the transfer ends
with the sent bytes and one install (scenarios.md). The planted faults below prove that the test detects violations.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.raftgroup import snapshot_receiver, snapshot_sender
from palisade.raftgroup.snapshot_receiver import SnapshotReceiver
from palisade.raftgroup.snapshot_sender import SnapshotSender
from palisade.raftgroup.snapshot_transfer import Install, WriteChunk
from tests.support.snapshot_world import Line, World

STORM_S = 8.0
SEEDS = range(150)

shares = st.floats(0.0, 0.4)
delays = st.tuples(st.floats(0.001, 0.01), st.floats(0.01, 0.4))
lines = st.builds(Line, delay_s=delays, lose=shares, repeat=shares, reorder=shares, corrupt=shares)


def run(
    seed: int, pieces: int, line: Line, breaks: list[tuple[float, float]], restarts: list[tuple[float, float]]
) -> None:
    """A storm, then no faults. `breaks`: (when, for how long); `restarts`: (when, what part is kept)."""
    random = Random(seed)
    world = World(seed, [random.randbytes(random.randrange(1, 30)) for _ in range(pieces)], line=line)
    world.install_s = random.random()
    for when, for_s in breaks:
        world.sim.after(when, lambda for_s=for_s: world.break_connection(for_s))  # type: ignore[misc]
    for when, keep in restarts:
        world.sim.after(when, lambda keep=keep: world.restart_follower(keep))  # type: ignore[misc]
    world.sim.after(STORM_S, lambda: setattr(world, "line", Line()))
    world.start()
    world.run_to_the_end(400)
    world.sim.run_for(10)
    world.check()


def run_seed(seed: int) -> None:
    random = Random(1_000_000 + seed)
    lot = random.random
    line = Line((0.001, 0.01 + 0.4 * lot() ** 2), *(0.4 * lot() ** 3 for _ in range(4)))
    breaks = [(STORM_S * lot(), 4 * lot() ** 2) for _ in range(random.randrange(4))]
    restarts = [(STORM_S * lot(), random.choice((0.0, lot(), 1.0))) for _ in range(random.randrange(3))]
    run(seed, random.randrange(1, 40), line, breaks, restarts)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_storm_ends_with_the_same_bytes_and_one_install(seed: int) -> None:
    run_seed(seed)


@given(
    seed=st.integers(0, 2**32),
    pieces=st.integers(1, 25),
    line=lines,
    breaks=st.lists(st.tuples(st.floats(0, STORM_S), st.floats(0.01, 5)), max_size=4),
    restarts=st.lists(st.tuples(st.floats(0, STORM_S), st.floats(0, 1)), max_size=3),
)
def test_no_generated_schedule_breaks_the_transfer(
    seed: int, pieces: int, line: Line, breaks: list[tuple[float, float]], restarts: list[tuple[float, float]]
) -> None:
    run(seed, pieces, line, breaks, restarts)


# The same storms over code with one fault each.

Plant = Callable[[pytest.MonkeyPatch], None]


def ignore_checksums(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot_receiver, "is_intact", lambda _data, _crc32: True)


def write_whatever_comes(patch: pytest.MonkeyPatch) -> None:
    original = SnapshotReceiver._got_chunk

    def take_any(self: SnapshotReceiver, member: str, transfer: str, fields: list[Any], *rest: Any) -> list[Any]:
        if self._current is not None and self._current.next_chunk is not None and not self._current.installing:
            self._current.next_chunk = fields[0]
        return original(self, member, transfer, fields, *rest)

    patch.setattr(SnapshotReceiver, "_got_chunk", take_any)


def install_at_every_last_piece(patch: pytest.MonkeyPatch) -> None:
    original = SnapshotReceiver._got_chunk

    def install_again(self: SnapshotReceiver, member: str, transfer: str, fields: list[Any], *rest: Any) -> list[Any]:
        effects = original(self, member, transfer, fields, *rest)
        current = self._current
        if fields[3] and current is not None and not any(isinstance(effect, Install) for effect in effects):
            effects.append(Install(current.meta, current.membership))
        return effects

    patch.setattr(SnapshotReceiver, "_got_chunk", install_again)


def install_without_the_last_piece(patch: pytest.MonkeyPatch) -> None:
    original = SnapshotReceiver._got_chunk

    def install_early(self: SnapshotReceiver, member: str, transfer: str, fields: list[Any], *rest: Any) -> list[Any]:
        effects = original(self, member, transfer, fields, *rest)
        current = self._current
        if fields[3] and current is not None and not current.installing:
            current.installing = True
            effects.append(Install(current.meta, current.membership))
        return effects

    patch.setattr(SnapshotReceiver, "_got_chunk", install_early)


def never_ask_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SnapshotSender, "tick", lambda _self, _now: [])


def believe_in_the_old_position(patch: pytest.MonkeyPatch) -> None:
    original = SnapshotSender._go_on_from

    def never_back(self: SnapshotSender, next_chunk: int, installing: bool, now: float) -> list[Any]:
        return original(self, max(next_chunk, self._furthest), installing, now)

    patch.setattr(SnapshotSender, "_go_on_from", never_back)


def do_not_repeat_the_last_piece(patch: pytest.MonkeyPatch) -> None:
    original = SnapshotSender._go_on_from

    def from_the_next(self: SnapshotSender, next_chunk: int, installing: bool, now: float) -> list[Any]:
        return original(self, next_chunk, True, now)

    patch.setattr(SnapshotSender, "_go_on_from", from_the_next)


def write_a_piece_twice(patch: pytest.MonkeyPatch) -> None:
    original = SnapshotReceiver._got_chunk

    def repeat(self: SnapshotReceiver, *arguments: Any) -> list[Any]:
        effects = original(self, *arguments)
        return [*effects[:1], *effects] if effects and isinstance(effects[0], WriteChunk) else effects

    patch.setattr(SnapshotReceiver, "_got_chunk", repeat)


def forget_the_commit_index(patch: pytest.MonkeyPatch) -> None:
    original = SnapshotReceiver.receive

    def blind(self: SnapshotReceiver, member: str, wire: Any, now: float, *, term: int, commit_index: int) -> list[Any]:
        self._finished = None
        return original(self, member, wire, now, term=term, commit_index=0)

    patch.setattr(SnapshotReceiver, "receive", blind)


def read_the_wrong_piece_as_last(patch: pytest.MonkeyPatch) -> None:
    original = snapshot_sender.chunk
    patch.setattr(snapshot_sender, "chunk", lambda transfer, number, data, last: original(transfer, number, data, True))


@pytest.mark.parametrize(
    "plant",
    [
        ignore_checksums,
        write_whatever_comes,
        install_at_every_last_piece,
        install_without_the_last_piece,
        never_ask_again,
        believe_in_the_old_position,
        do_not_repeat_the_last_piece,
        write_a_piece_twice,
        forget_the_commit_index,
        read_the_wrong_piece_as_last,
    ],
)
def test_storms_detect_the_planted_faults(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in SEEDS:
        try:
            run_seed(seed)
        except Exception:
            return
    pytest.fail(f"{len(SEEDS)} storms did not find it")
