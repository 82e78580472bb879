"""A random load on the metadata store, from one seed: commands of every kind, most of them valid."""

from __future__ import annotations

import random

from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import (
    Command,
    Compact,
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    DisarmAlarm,
    EvictResults,
    LeaseExpire,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Pin,
    Put,
    Range,
    RequestId,
    SortOrder,
    SortTarget,
    Tick,
    Txn,
    Unpin,
)

KEYS = [b"a", b"b", b"c", b"c/1", b"c/2", b"d", b"\xff", b"\xff\xff"]
ENDS = [*KEYS, b"\0", b"c0", b""]
LEASES = [1, 2, 3]


class Workload:
    """`revision` and `clock_ms` are those of the store; set them before each `command`."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.revision = 1
        self.clock_ms = 0
        self._sequence = 0

    def command(self) -> tuple[Command, RequestId | None]:
        request_id = None
        if self.dice.random() < 0.3:
            self._sequence += self.dice.choice([0, 1, 1, 1, 2, 50])
            request_id = RequestId(
                self.dice.choice(["one", "two"]), max(1, self._sequence - self.dice.choice([0, 0, 3]))
            )
        return self._request(), request_id

    def encoded(self) -> bytes:
        if self.dice.random() < 0.02:
            return self.dice.randbytes(self.dice.randrange(12))
        return encode_command(*self.command())

    def _request(self) -> Command:
        dice = self.dice
        kind = dice.random()
        if kind < 0.45:
            return self.put()
        if kind < 0.6:
            return self.delete()
        if kind < 0.8:
            return self.txn(2)
        return dice.choice(
            [
                Compact(self.old_revision()),
                LeaseGrant(dice.choice([0, 99, 100, 250, 1_000, 1_500, 4_000]), dice.choice([0, *LEASES])),
                LeaseRevoke(dice.choice(LEASES)),
                LeaseKeepAlive(dice.choice(LEASES)),
                LeaseExpire(tuple(LEASES)),
                EvictResults(self.clock_ms - dice.randrange(5_000)),
                DisarmAlarm(),
                Tick(),
                Pin(dice.choice(["p", "q"]), self.old_revision(), dice.randrange(1, 5_000)),
                Unpin("p"),
            ]
        )

    def old_revision(self) -> int:
        return max(0, self.revision - self.dice.choice([-1, 0, 1, 3, 10, 30]))

    def put(self) -> Put:
        dice = self.dice
        keep = dice.random() < 0.1
        return Put(
            dice.choice(KEYS),
            b"" if keep else dice.randbytes(dice.randrange(4)),
            dice.choice([0, 0, 0, *LEASES]) if not keep else 0,
            prev_kv=dice.random() < 0.3,
            ignore_value=keep,
            ignore_lease=keep and dice.random() < 0.5,
        )

    def delete(self) -> DeleteRange:
        end = self.dice.choice(ENDS) if self.dice.random() < 0.3 else b""
        return DeleteRange(self.dice.choice(KEYS), end, prev_kv=self.dice.random() < 0.5)

    def range(self) -> Range:
        dice = self.dice
        revision = self.old_revision() if dice.random() < 0.4 else 0
        bounds = [dice.choice([0, 0, 0, 0, self.old_revision()]) for _ in range(4)]
        return Range(
            dice.choice([*KEYS, b"\0"]),
            dice.choice(ENDS),
            dice.choice([0, 0, 1, 2, 3]),
            revision,
            dice.choice(list(SortOrder)),
            dice.choice(list(SortTarget)),
            False,
            dice.random() < 0.2,
            dice.random() < 0.2,
            *bounds,
        )

    def compare(self) -> Compare:
        dice = self.dice
        target = dice.choice(list(CompareTarget))
        operand: int | bytes = dice.choice([0, 1, 2, self.revision, self.old_revision()])
        if target is CompareTarget.VALUE:
            operand = dice.randbytes(dice.randrange(2))
        end = dice.choice(ENDS) if dice.random() < 0.3 else b""
        return Compare(dice.choice(KEYS), target, dice.choice(list(CompareResult)), operand, end)

    def txn(self, depth: int) -> Txn:
        dice = self.dice

        def branch() -> tuple[Put | DeleteRange | Range | Txn, ...]:
            makers = [self.put, self.delete, self.range, *([lambda: self.txn(depth - 1)] if depth else [])]
            return tuple(dice.choice(makers)() for _ in range(dice.randrange(4)))

        return Txn(tuple(self.compare() for _ in range(dice.randrange(3))), branch(), branch())
