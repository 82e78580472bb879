"""Texts with numbers have the right form of the noun (issue 15)."""

import pytest

from palisade.base.counted import agreeing, counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(0, "row", "0 rows"), (1, "row", "1 row"), (2, "copy", "2 copies"), (1, "copy", "1 copy"), (3, "key", "3 keys")],
)
def test_counted_noun_is_singular_for_one(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_verb_agrees_with_the_number() -> None:
    assert [agreeing(number, "needs", "need") for number in (0, 1, 2)] == ["need", "needs", "need"]
