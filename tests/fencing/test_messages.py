"""Nonsense is refused where it is read, with what is wrong: nothing of it reaches a machine."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from palisade.fencing.messages import (
    FencedMessage,
    GrantMessage,
    Hello,
    HolderId,
    HolderPhase,
    JoinMessage,
    Release,
    Renew,
    StagedMessage,
    StageMessage,
    WelcomeMessage,
)

ME = HolderId("n1", "v", 1)
WRONG: list[Callable[[], object]] = [
    lambda: JoinMessage(1, -1),
    lambda: StagedMessage(-1),
    lambda: Release(1, -1),
    lambda: WelcomeMessage(1, -1, None),
    lambda: WelcomeMessage(1, 5, -1),
    lambda: Renew(math.nan, 0, HolderPhase.ACTIVE, True, 3.0, 3.31),
    lambda: Renew(1.0, -1, HolderPhase.ACTIVE, True, 3.0, 3.31),
    lambda: GrantMessage(1, 1, math.inf, 0),
    lambda: GrantMessage(1, 1, 1.0, -1),
    lambda: FencedMessage(1, math.nan),
    lambda: Hello(ME, True, 0.0, HolderPhase.FENCED, 1, False, 0, 0, 3.31),
    lambda: Hello(ME, True, math.nan, HolderPhase.FENCED, 1, False, 0, 0, 3.31),
    lambda: Hello(ME, True, 3.0, HolderPhase.FENCED, 1, False, -1, 0, 3.31),
    lambda: StageMessage(1, 1, 5, 4, ()),
    lambda: StageMessage(1, 1, 5, 6, ((5, b"k", None),)),
    lambda: StageMessage(1, 1, 5, 6, ((7, b"k", None),)),
]


@pytest.mark.parametrize("make", WRONG)
def test_invalid_messages_are_rejected(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        make()
