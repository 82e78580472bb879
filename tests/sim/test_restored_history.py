"""A history that begins with a backup: it begins with that state, and contains no later change of the old one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from palisade.metastore.requests import Put
from palisade.metastore.results import KeyValue, PutResult
from tests.sim.backups import damaged_copy
from tests.sim.checkers.of_history import CHECKS
from tests.sim.history import History
from tests.sim.history_file import dump, load
from tests.sim.seen import Ok, Path
from tests.sim.stories import WATCHED, A, B, Story
from tests.sim.truth import Truth

BASE = 4
"""`A` is b"2" since 4, `B` is deleted since 3; 5 and 6 are lost."""


def restored() -> Story:
    before = Story()
    before.commit((A, b"1"), (B, b"1"))
    before.commit((B, None))
    before.commit((A, b"2"))
    story, past = Story(), before.history.revisions()
    story.history.restored(past, BASE, 2)
    story.state, story.revision = dict(before.state), BASE
    return story


def was(value: bytes, mod: int, version: int = 2) -> KeyValue:
    return KeyValue(A, value, 2, mod, version, 0)


def reporters(story: Story) -> set[str]:
    return {name for name, check in CHECKS.items() if check(story.history)}


def test_world_knows_what_was_committed_before() -> None:
    truth = Truth(restored().history)
    assert (truth.base, truth.latest, truth.disorder) == (BASE, BASE, [])
    assert truth.at(A, 2) == KeyValue(A, b"1", 2, 2, 1, 0)
    assert Truth(History()).base == 0


def well(story: Story) -> None:
    story.read(was(b"2", 4), revision=4)
    story.read(was(b"2", 4), path=Path.VAULT_READER)
    story.read(key=B, path=Path.FENCED_API)
    story.read(KeyValue(A, b"1", 2, 2, 1, 0), revision=4, at=2)
    story.put(A, b"3")
    story.read(story.state[A], revision=5)
    story.watch(*story.history.revisions(), request=WATCHED, began=5)


def test_history_that_continues_from_the_backup_is_valid() -> None:
    story = restored()
    well(story)
    assert reporters(story) == set()
    assert list(dump(load(dump(story.history)))) == list(dump(story.history))


BROKEN: dict[str, tuple[Callable[[Story], None], set[str]]] = {
    "a vault that is older than the backup": (
        lambda story: story.read(KeyValue(A, b"1", 2, 2, 1, 0), path=Path.VAULT_READER),
        {"fenced reads", "linearizable"},
    ),
    "a vault that has what is lost": (
        lambda story: story.read(was(b"lost", 6, 3), path=Path.VAULT_READER),
        {"snapshots", "linearizable"},
    ),
    "a key of the backup that is missing": (
        lambda story: story.read(revision=4),
        {"snapshots", "fenced reads", "linearizable"},
    ),
    "a key that was gone by then": (
        lambda story: story.read(KeyValue(B, b"1", 2, 2, 1, 0), key=B),
        {"fenced reads", "linearizable"},
    ),
    "a write that is acknowledged, and was lost": (
        lambda story: story.said(Put(A, b"lost"), Ok(PutResult(6))),
        {"durable"},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_history_that_contradicts_the_backup_is_refused(name: str) -> None:
    story = restored()
    act, by = BROKEN[name]
    act(story)
    assert by <= reporters(story), reporters(story)


def test_damaged_copy_of_a_backup_differs() -> None:
    data = bytes(range(256))
    copies = [damaged_copy(data, Random(seed)) for seed in range(50)]
    assert {how for _, how in copies} == {"cut off", "torn", "flipped"}
    assert all(copy != data for copy, _ in copies)
