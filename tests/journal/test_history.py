"""The checker of answers of two copies reports each violation, and nothing else (issue 17, "Activation")."""

from __future__ import annotations

import pytest

from tests.support.journal_history import Appended, JournalHistory, Read

A1 = Appended("a", 1.0, 1.1, 1, b"one")
B2 = Appended("b", 3.0, 3.1, 2, b"two")
CUT_OFF = [("a", 2.0, 9.0)]


def history(*answers: Appended | Read) -> JournalHistory:
    appended = [each for each in answers if isinstance(each, Appended)]
    return JournalHistory(appended, [each for each in answers if isinstance(each, Read)], list(CUT_OFF))


@pytest.mark.parametrize(
    "answer",
    [
        Read("a", 2.5, 2.6, 1),
        Read("a", 3.05, 3.3, 1),  # sent before the entry was acknowledged: either order is possible
        Read("b", 3.2, 3.3, 2),
        Read("a", 9.0, 9.5, 2),
        Appended("b", 3.05, 3.3, 3, b"three"),
    ],
)
def test_answers_of_one_active_copy_at_a_time_are_accepted(answer: Appended | Read) -> None:
    assert history(A1, B2, answer).violations({1: b"one", 2: b"two", 3: b"three"}) == []


def test_lost_entry_is_reported() -> None:
    (found,) = history(A1, B2).violations({1: b"one"})
    assert "entry 2 was acknowledged by b" in found
    (found,) = history(A1, B2).violations({1: b"one", 2: b"other"})
    assert "the journal has b'other'" in found


def test_entry_acknowledged_by_both_copies_is_reported() -> None:
    found = history(A1, B2, Appended("a", 3.05, 3.2, 2, b"mine")).violations()
    assert found == ["entry 2 was acknowledged by b and by a"]


def test_answer_without_an_acknowledged_entry_is_reported() -> None:
    found = history(A1, B2, Read("b", 3.2, 3.3, 1)).violations()
    assert found == ["b answered as of entry 1 after entry 2 was acknowledged"]
    found = history(A1, B2, Appended("b", 3.2, 3.3, 2, b"two")).violations()
    assert "b answered as of entry 1 after entry 2 was acknowledged" in found


def test_answer_of_a_copy_after_another_one_took_its_role_is_reported() -> None:
    found = history(A1, B2, Read("a", 3.2, 3.3, 2)).violations()
    assert found == ["a answered 0.100 s after another copy was active"]
