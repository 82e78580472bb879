"""The check of one key: each rule finds its planted fault, and valid histories have none (issue 18)."""

from __future__ import annotations

from random import Random

import pytest

from palisade.pipeline.audit.acts import committed
from palisade.pipeline.audit.findings import FindingKind
from palisade.pipeline.audit.key_history import ABSENT, MAYBE, NEVER, SAW, WROTE, Act, Scope, check_key

K = b"k"
FEED = Scope(1, 100)


def wrote(at: int, revision: int, digest: int, by: str = "") -> Act:
    return Act(K, WROTE, at, at + 1, 0, by or f"w#{revision}", revision, revision, 0, 0, digest, False, True)


def deleted(at: int, revision: int) -> Act:
    return Act(K, WROTE, at, at + 1, 0, f"w#{revision}", revision, revision, 0, 0, None, True, True)


def maybe(at: int, digest: int | None) -> Act:
    return Act(K, MAYBE, at, NEVER, 0, f"m#{at}", 0, 0, 0, 0, digest, digest is None, True)


def saw(at: int, mod: int, digest: int, *, state: int = 0, created: int = 0, version: int = 0) -> Act:
    return Act(K, SAW, at, at + 1, 0, f"r#{at}", state, mod, created, version, digest, False, True)


def absent(at: int, *, state: int = 0) -> Act:
    return Act(K, ABSENT, at, at + 1, 0, f"r#{at}", state, 0, 0, 0, None, False, True)


def test_key_history_accepts_a_valid_history() -> None:
    acts = [
        wrote(0, 2, 7), saw(2, 2, 7, state=3, created=2, version=1), maybe(3, 8),
        saw(4, 5, 8, state=5, created=2, version=2),
        deleted(6, 6), absent(8, state=9), wrote(10, 10, 7), saw(12, 10, 7, state=10, created=10, version=1),
        committed(K, 2, 7), committed(K, 5, 8), committed(K, 6, None), committed(K, 10, 7),
    ]  # fmt: skip
    assert not check_key(acts, Scope(1, 10, all_writers=True))


PLANTED: dict[str, tuple[list[Act], Scope, FindingKind]] = {
    "stale read of an older version": ([wrote(0, 2, 7), wrote(2, 3, 8), saw(4, 2, 7)], Scope(), FindingKind.STALE_READ),
    "new value, then the old one": ([wrote(0, 2, 7), saw(1, 3, 8), saw(4, 2, 7)], Scope(), FindingKind.STALE_READ),
    "absent after a write": ([wrote(0, 2, 7), committed(K, 2, 7), absent(4)], FEED, FindingKind.STALE_READ),
    "absent in an old state": ([wrote(0, 2, 7), absent(4, state=1)], Scope(), FindingKind.STALE_READ),
    "returned before it was requested": ([saw(0, 2, 7), wrote(4, 2, 7)], Scope(), FindingKind.FUTURE_READ),
    "version later than its state": ([saw(0, 5, 7, state=4)], Scope(), FindingKind.FUTURE_READ),
    "state without an acknowledged write": (
        [wrote(0, 2, 7), wrote(2, 3, 8), saw(0, 2, 7, state=4)], Scope(), FindingKind.LOST_WRITE,
    ),
    "absent, and the feed has no deletion": ([committed(K, 2, 7), absent(0, state=3)], FEED, FindingKind.LOST_WRITE),
    "absent, and no writer deleted it": (
        [wrote(0, 2, 7), absent(2, state=3)], Scope(all_writers=True), FindingKind.LOST_WRITE,
    ),
    "not in the feed": ([wrote(0, 2, 7)], FEED, FindingKind.LOST_WRITE),
    "later than the end of the feed": ([wrote(0, 200, 7)], Scope(1, 100, read_wall_ms=10), FindingKind.LOST_WRITE),
    "version number too low": (
        [wrote(0, 2, 7), wrote(2, 3, 8), wrote(4, 4, 9), saw(6, 4, 9, created=2, version=2)], Scope(),
        FindingKind.LOST_WRITE,
    ),
    "value written twice": (
        [wrote(0, 2, 7), committed(K, 2, 7), committed(K, 4, 7)], Scope(1, 100, all_writers=True),
        FindingKind.DOUBLED_WRITE,
    ),
    "two values at one revision": ([saw(0, 2, 7), saw(0, 2, 8)], Scope(), FindingKind.TWO_VALUES),
    "two writers of one revision": ([wrote(0, 2, 7, "a#1"), wrote(0, 2, 7, "b#1")], Scope(), FindingKind.TWO_VALUES),
    "put and deletion at one revision": ([saw(0, 2, 7), deleted(0, 2)], Scope(), FindingKind.TWO_VALUES),
    "other version number": ([saw(0, 2, 7, version=1), saw(0, 2, 7, version=2)], Scope(), FindingKind.TWO_VALUES),
    "read of what was never committed": ([saw(0, 2, 7)], FEED, FindingKind.NEVER_COMMITTED),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_key_history_finds_a_planted_fault(name: str) -> None:
    acts, scope, kind = PLANTED[name]
    found = check_key(acts, scope)
    assert kind in {finding.kind for finding in found}
    assert all(finding.subject == K and finding.text for finding in found)


UNDECIDED: dict[str, tuple[list[Act], Scope]] = {
    "absent, deleted by a writer that was not recorded": ([wrote(0, 2, 7), absent(2, state=5)], Scope()),
    "absent, and a deletion has no response": (
        [wrote(0, 2, 7), maybe(1, None), absent(2, state=5)], Scope(all_writers=True),
    ),
    "absent at the end of what the feed covers": ([committed(K, 90, 7), absent(0, state=101)], FEED),
    "concurrent with the write": ([wrote(0, 2, 7), saw(1, 1, 6)], Scope()),
    "written after the feed was read": ([wrote(0, 200, 7)], Scope(1, 100, read_wall_ms=0)),
    "same value by an unrecorded writer": ([wrote(0, 2, 7), saw(2, 4, 7)], Scope()),
    "write without a response that took effect": ([maybe(0, 7), saw(2, 4, 7)], Scope(all_writers=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDECIDED)
def test_key_history_accuses_nothing_that_can_be_explained(name: str) -> None:
    assert not check_key(*UNDECIDED[name])


def test_key_history_finds_one_read_moved_back_in_a_long_history() -> None:
    random = Random(1)
    acts: list[Act] = []
    for number in range(2_000):
        revision, at = 2 + number, 10 * number
        acts.append(wrote(at, revision, revision))
        acts.append(saw(at + random.choice((2, 4)), revision, revision, state=revision, created=2, version=number + 1))
    assert not check_key(acts, Scope(all_writers=True))
    acts.append(saw(15_007, 1_400, 1_400))
    assert [finding.kind for finding in check_key(acts, Scope(all_writers=True))] == [FindingKind.STALE_READ]


def test_one_diverging_read_is_one_finding_in_any_order_of_the_acts() -> None:
    """Tasks of Spark get the acts of a key in any order."""
    random = Random(1)
    acts = [saw(15, 12, 10), saw(30, 12, 99)]
    for at in (0, 10, 20):
        acts += [wrote(at, 2 + at, at), committed(K, 2 + at, at), saw(at + 3, 2 + at, at)]
    expected = check_key(acts, Scope())
    assert [(each.kind, each.operation) for each in expected] == [
        (FindingKind.TWO_VALUES, "r#30"), (FindingKind.STALE_READ, "r#30"),
    ]  # fmt: skip
    for _ in range(50):
        random.shuffle(acts)
        assert check_key(acts, Scope()) == expected


@pytest.mark.parametrize("name", PLANTED)
def test_findings_of_a_planted_fault_do_not_depend_on_the_order_of_the_acts(name: str) -> None:
    acts, scope, _ = PLANTED[name]
    assert check_key(acts[::-1], scope) == check_key(acts, scope)
