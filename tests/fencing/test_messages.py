"""Nonsense is refused where it is read, with what is wrong: nothing of it reaches a machine."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from palisade.fencing.messages import (
    Fenced,
    Grant,
    Hello,
    HolderId,
    Join,
    Release,
    Renew,
    Stage,
    Staged,
    State,
    Welcome,
)

ME = HolderId("n1", "v", 1)
WRONG: list[Callable[[], object]] = [
    lambda: Join(1, -1),
    lambda: Staged(-1),
    lambda: Release(1, -1),
    lambda: Welcome(1, -1, None),
    lambda: Welcome(1, 5, -1),
    lambda: Renew(math.nan, 0, State.ACTIVE, True, 3.0, 3.31),
    lambda: Renew(1.0, -1, State.ACTIVE, True, 3.0, 3.31),
    lambda: Grant(1, 1, math.inf, 0),
    lambda: Grant(1, 1, 1.0, -1),
    lambda: Fenced(1, math.nan),
    lambda: Hello(ME, True, 0.0, State.FENCED, 1, False, 0, 0, 3.31),
    lambda: Hello(ME, True, math.nan, State.FENCED, 1, False, 0, 0, 3.31),
    lambda: Hello(ME, True, 3.0, State.FENCED, 1, False, -1, 0, 3.31),
    lambda: Stage(1, 1, 5, 4, ()),
    lambda: Stage(1, 1, 5, 6, ((5, b"k", None),)),
    lambda: Stage(1, 1, 5, 6, ((7, b"k", None),)),
]


@pytest.mark.parametrize("make", WRONG)
def test_invalid_messages_are_rejected(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        make()
