"""Request numbers that identify answers, also over a crash.

A member numbers its requests to others. If it counted from one after each start, a late answer to a request before a
crash would be mistaken for the answer to a present one: a write would be reported as applied although it is in no log.
Thus each start counts from a random place. Two starts whose ranges overlap are too unlikely to matter: there are 2^52
places, and each start uses as many as it sends requests.
"""

from __future__ import annotations

from palisade.raftgroup.ports import Random

PLACES = 1 << 52


def first_number(random: Random) -> int:
    return int(random.random() * PLACES)
