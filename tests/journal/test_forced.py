"""A copy that was forced without the metadata store serves alone, and its activation is recorded later (A4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palisade.catalog.activation import lock_name
from palisade.catalog.forced_activation import AUDIT_FILE, CopyReport, ForcedActivation, Operator, forced
from palisade.client.claims import prefix_of
from palisade.journal import role
from palisade.journal.errors import ActivationStopped, JournalDamaged, WrongRole
from palisade.journal.local_file import NAME, LocalState, decode, encode
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import LeaseGrant, Put
from tests.support.journal_disk import SimFile
from tests.support.journal_world import ROLE, JournalWorld, Place

OPERATOR = Operator("root", 5)


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
    place.disk.files[name] = SimFile.of(content)


def force(place: Place, role: str = ROLE, *, in_copy: bool = True) -> ForcedActivation:
    """As `palisade activation force --without-store` does; `in_copy` False: it died between its two writes."""
    state = decode(bytes(place.disk.files[NAME].content), NAME)
    done = forced(role, place.name, CopyReport(place.name, state.local), [], None, OPERATOR)
    put(place, AUDIT_FILE, done.to_bytes())
    if in_copy:
        put(place, NAME, encode(LocalState(ROLE, done.new_local)))
    return done


def start_without_store(world: JournalWorld, name: str, forced_by: Operator | None = None) -> Place:
    place = world.start(name, forced_by=forced_by)
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
    """The case that the operator has to prevent: both served. Planted (reconciling without reading the agreed
    sequence): the other copy's entries are lost silently."""
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


def test_copy_is_forced_by_configuration_while_the_store_does_not_answer() -> None:
    """A4, seed 004: "admin must use command/configuration". The audit record is that of the command."""
    world = stopped_pair()
    place = start_without_store(world, "b", OPERATOR)
    world.until_active("b")
    done = ForcedActivation.from_bytes(b"", bytes(place.disk.files[AUDIT_FILE].content))
    assert (done.by, done.at_ms, done.owner, done.agreed) == ("root", 5, "b", None)
    assert done.gives_up
    world.append(b"alone")
    world.kill("b", power=False)
    place = start_without_store(world, "b", OPERATOR)
    world.until_active("b")
    assert place.active is not None
    assert place.active.sequence == done.sequence, "a restart does not force it again"
    reconnect(place)
    world.simulation.run_until(lambda: AUDIT_FILE not in place.disk.files, within_s=20)
    world.start("a")
    world.until_in_sync()
    assert world.entries("a") == world.entries("b") == {1: b"both", 2: b"alone"}
    assert (world.lost(), world.violations) == ([], [])
    world.close()


def test_copy_is_not_forced_by_configuration_while_the_store_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record and its lock protect the role: the older copy waits. Planted: the store is not asked."""
    assert not older_copy_is_forced_at_its_start()
    monkeypatch.setattr(role, "FIRST_RECONCILE_S", 0.0)
    assert older_copy_is_forced_at_its_start()


def older_copy_is_forced_at_its_start() -> bool:
    world = stopped_pair()
    world.start("a")
    world.until_active("a")
    world.append(b"primary alone")
    world.kill("a", power=False)
    world.simulation.run_for(5)
    place = world.start("b", forced_by=OPERATOR)
    world.simulation.run_for(20)
    done = place.active is not None or AUDIT_FILE in place.disk.files
    world.close()
    return done


def leave_a_claim(world: JournalWorld, ttl_ms: int) -> None:
    """Of a copy that died: its lease outlives an outage of the store."""
    world.group.apply([encode_command(LeaseGrant(ttl_ms, 77))])
    world.group.apply([encode_command(Put(prefix_of(lock_name(ROLE)) + b"left", b"", 77))])


def test_forced_copy_outlives_claims_that_are_left_from_before_the_outage() -> None:
    """It acknowledges nothing while they could belong to a running copy, and continues once they have ended."""
    world = stopped_pair()
    force(world.places["b"])
    place = start_without_store(world, "b")
    world.until_active("b")
    world.append(b"alone")
    leave_a_claim(world, 9_000)
    reconnect(place)
    active = place.active
    assert active is not None
    world.simulation.run_until(lambda: not active.in_time, within_s=8)
    world.simulation.run_until(lambda: AUDIT_FILE not in place.disk.files, within_s=20)
    world.until_active("b")
    world.append(b"after")
    assert place.failure is None
    assert world.entries("b") == {1: b"both", 2: b"alone", 3: b"after"}
    world.close()


def test_forced_copy_stops_if_the_claims_stay() -> None:
    """They belong to a running copy."""
    world = stopped_pair()
    force(world.places["b"])
    place = start_without_store(world, "b")
    world.until_active("b")
    leave_a_claim(world, 60_000)
    reconnect(place)
    world.simulation.run_until(lambda: place.failure is not None, within_s=20)
    assert isinstance(place.failure, ActivationStopped)
    assert AUDIT_FILE in place.disk.files
    world.close()
