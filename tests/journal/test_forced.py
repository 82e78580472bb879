"""A copy that was forced without the metadata store serves alone, and its activation is recorded later (A4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palisade.catalog.forced_activation import AUDIT_FILE, CopyReport, ForcedActivation, Operator, forced
from palisade.journal.errors import ActivationStopped, JournalDamaged, WrongRole
from palisade.journal.local_file import NAME, LocalState, decode, encode
from tests.support.journal_disk import SimFile
from tests.support.journal_world import ROLE, JournalWorld, Place


def stopped_pair() -> JournalWorld:
    """Both copies have the entry b"both", and are down."""
    world = JournalWorld()
    for name in ("a", "b"):
        world.start(name)
    world.until_active("a")
    world.until_in_sync()
    world.append(b"both")
    world.simulation.run_for(1)
    for name in ("a", "b"):
        world.kill(name, power=False)
    world.simulation.run_for(5)
    return world


def put(place: Place, name: str, content: bytes) -> None:
    place.disk.files[name] = SimFile(bytearray(content), len(content))


def force(place: Place, role: str = ROLE, *, in_copy: bool = True) -> ForcedActivation:
    """As `palisade activation force --without-store` does; `in_copy` False: it died between its two writes."""
    state = decode(bytes(place.disk.files[NAME].content), NAME)
    done = forced(role, place.name, CopyReport(place.name, state.local), [], None, Operator("root", 5))
    put(place, AUDIT_FILE, done.to_bytes())
    if in_copy:
        put(place, NAME, encode(LocalState(ROLE, done.new_local)))
    return done


def start_without_store(world: JournalWorld, name: str) -> Place:
    place = world.start(name)
    assert place.store is not None
    place.store.cut_off = True
    return place


def reconnect(place: Place) -> None:
    assert place.store is not None
    place.store.cut_off = False


@pytest.mark.parametrize("in_copy", [True, False])
def test_forced_copy_serves_without_the_store_and_is_recorded_when_it_is_back(in_copy: bool) -> None:
    world = stopped_pair()
    done = force(world.places["b"], in_copy=in_copy)
    place = start_without_store(world, "b")
    world.until_active("b")
    world.append(b"alone")
    world.simulation.run_for(20)
    assert world.active() is place
    reconnect(place)
    world.simulation.run_until(lambda: AUDIT_FILE not in place.disk.files, within_s=20)
    world.simulation.run_until(lambda: place.active is not None and place.active.sequence > done.sequence, within_s=20)
    world.start("a")
    world.until_in_sync()
    assert world.entries("a") == world.entries("b") == {1: b"both", 2: b"alone"}
    assert (world.lost(), world.violations) == ([], [])
    world.close()


def test_forced_copy_stops_if_another_one_was_activated_meanwhile() -> None:
    """What the operator was told to prevent: both served. Planted (reconciling without a look at the agreed sequence):
    the other copy's entries are lost in silence."""
    world = stopped_pair()
    force(world.places["b"])
    place = start_without_store(world, "b")
    world.until_active("b")
    world.start("a")
    world.simulation.run_until(lambda: b'"sequence":2,"served":2' in (world.record() or b""), within_s=20)
    assert place.active is not None, "both serve: this is what the operator gave up"
    reconnect(place)
    world.simulation.run_until(lambda: place.failure is not None, within_s=20)
    assert isinstance(place.failure, ActivationStopped)
    assert "both may have served" in str(place.failure) or "began to take the role" in str(place.failure)
    assert AUDIT_FILE in place.disk.files
    assert place.active is None
    world.close()


def test_audit_record_that_cannot_be_used_stops_the_start() -> None:
    for content, kind in ((b"{}", JournalDamaged), (None, WrongRole)):
        world = stopped_pair()
        place = world.places["b"]
        if content is None:
            force(place, "other", in_copy=False)
        else:
            put(place, AUDIT_FILE, content)
        world.start("b")
        world.simulation.run_until(lambda place=place: place.failure is not None, within_s=20)
        assert isinstance(place.failure, kind)
        world.close()


def test_forced_copy_asks_the_store_before_it_serves_again() -> None:
    """It was stopped before its activation was recorded, and another copy is active when it starts again."""
    world = stopped_pair()
    force(world.places["b"])
    start_without_store(world, "b")
    world.until_active("b")
    world.kill("b", power=False)
    world.start("a")
    world.until_active("a")
    for _ in range(2):
        place = world.start("b")
        world.simulation.run_until(lambda place=place: place.failure is not None, within_s=20)
        assert isinstance(place.failure, ActivationStopped)
    assert world.violations == []
    world.close()


def test_forced_activation_that_a_later_one_replaced_lowers_no_sequence() -> None:
    """The second one died before it removed the first one's audit record."""
    world = stopped_pair()
    place = world.places["b"]
    done = force(place)
    later = replace(done.new_local, sequence=done.sequence + 1)
    put(place, NAME, encode(LocalState(ROLE, later)))
    start_without_store(world, "b")
    world.simulation.run_for(10)
    assert decode(bytes(place.disk.files[NAME].content), NAME).local == later
    assert AUDIT_FILE not in place.disk.files
    assert world.active() is None
    world.close()
