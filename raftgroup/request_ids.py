"""Numbers that tell answers apart, also over a crash.

A member numbers what it asks of others. If it counted from one after each start, an answer to what it asked before a
crash, which may come after it, would be taken for one to what it asks now: a write would be called applied that is in
no log. So each start counts from a place of its own, and two starts that come near each other are too unlikely to
matter: of 2^52 places each takes as many as it asks for.
"""

from __future__ import annotations

from palisade.raftgroup.ports import Random

PLACES = 1 << 52


def first_number(random: Random) -> int:
    return int(random.random() * PLACES)
