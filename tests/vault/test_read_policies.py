"""Waits of a vault reader, as courses that are driven by hand."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.vault.read_policies import reach


@pytest.mark.parametrize(
    ("revision", "timeout_s", "text"),
    [
        ("x", 1, "revision must be a whole number, not str"),
        (9, "x", "timeout_s must be a number of seconds, not str"),
        (9, None, "timeout_s must be a number of seconds, not NoneType"),
    ],
)
def test_wait_for_a_revision_names_an_argument_of_a_wrong_type(revision: Any, timeout_s: Any, text: str) -> None:
    """It was an error of an operator of Python."""
    with pytest.raises(TypeError, match=text):
        next(reach(revision, lambda: 5, 0.0, timeout_s))


def test_wait_for_a_revision_refuses_a_negative_time() -> None:
    with pytest.raises(ValueError, match="timeout_s -1 is out of range"):
        next(reach(9, lambda: 5, 0.0, -1))
