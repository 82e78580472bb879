"""Publishers of batches, plain writers, sweepers and readers over one store, in a random order of steps.

Every step is one request. A process may end between any two of them; a query is then started again, as Spark does. At
each revision that no batch splits, the store must have the rows of `batch_oracle.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from palisade.metastore.lineage import Lineage
from palisade.metastore.requests import FROM_KEY, Compare, DeleteRange, Put, Range, Txn, WatchRequest, prefix_end
from palisade.metastore.results import RangeResult
from palisade.metastore.staged_rows import Row, pack_chunk
from palisade.pipeline import batch_steps
from palisade.pipeline.batch_steps import (
    REJECTS,
    ROWS,
    STAGES,
    Contended,
    Draft,
    PrefixChanged,
    StageLost,
    Steps,
    Together,
    alive_key,
    chunk_key,
    finish_overlapping,
    open_batch,
    sweep,
)
from palisade.pipeline.query_record import BatchName
from palisade.wire.batch_records import BATCHES, KeySpan, Window, window_of
from tests.support.batch_oracle import BatchOracle
from tests.support.meta_driver import Driver

PREFIX = KeySpan(b"p/", b"p0")
BAD = KeySpan(b"bad/", b"bad0")
KEYS = [b"p/%d" % number for number in range(6)]
HERE = Lineage("c", 1)
RECORD = b"records/q"
Process = Generator[None, None, None]


class Violation(AssertionError):
    """A reader could see a part of a batch, an older row than the newest change, or a batch twice."""


@dataclass(eq=False, slots=True)
class Running:
    """`again` starts the batch of a query once more."""

    process: Process
    again: Callable[[], Process] | None = None
    paused_until: int = 0


class BatchWorld:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.driver = Driver()
        self.driver.do(Put(b"start", b""))
        self.oracle = BatchOracle((PREFIX.key, BAD.key), violated)
        self.acknowledged: set[int] = set()
        self._names = 0

    # Requests, one per step.

    def do(self, request: Any) -> Any:
        if isinstance(request, Range):
            return self.driver.store.range(request)
        return self.driver.do(request)

    def run(self, steps: Steps) -> Generator[None, None, Any]:
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = None
            if isinstance(request, Together):
                answer = []
                for each in self.dice.sample(request.requests, len(request.requests)):
                    yield
                    answer.append(self.do(each))
            elif isinstance(request, Range | Txn):
                yield
                answer = self.do(request)

    # Processes.

    def publisher(self, batch: int, *, queried: bool) -> Process:
        self._names += 1
        name = f"s{self._names}"
        dice, replaces = self.dice, self.dice.random() < 0.3
        rows = tuple((key, self._value(batch, allowed=not replaces)) for key in dice.sample(KEYS, 4))
        rejected = (b"bad/%d" % batch, b"reason")
        yield
        alive = self.driver.do(Put(alive_key(name), b"")).revision
        for attempt, part in (("0", rows[:2]), ("lost", ((key, b"lost") for key, _ in rows)), ("1", rows[2:])):
            yield
            self.driver.do(Put(chunk_key(name, ROWS, attempt, 0), pack_chunk(part)))
        self.driver.do(Put(chunk_key(name, REJECTS, "0", 0), pack_chunk([rejected])))
        query = BatchName("q", batch, HERE) if queried else None
        attempts, since = ("0", "1"), 0
        self.oracle.drafted(name, (*rows, rejected), replaces=replaces, number=batch)
        try:
            if replaces:
                since = yield from self._stage_deletes(name, rows)
                attempts = ("0", "1", "deletes")
            draft = Draft(name, alive, (PREFIX, BAD), attempts, query, RECORD if queried else b"", since)
            yield from self.run(open_batch(draft))
        except (StageLost, PrefixChanged, Contended):
            return
        yield from self.run(finish_overlapping((PREFIX,)))
        self.acknowledged.add(batch)

    def _stage_deletes(self, name: str, rows: tuple[Row, ...]) -> Generator[None, None, int]:
        yield from self.run(finish_overlapping((PREFIX,)))
        found: RangeResult = self.do(Range(*PREFIX))
        gone = [(kv.key, None) for kv in found.kvs if kv.key not in dict(rows)]
        yield
        if gone:
            self.driver.do(Put(chunk_key(name, ROWS, "deletes", 0), pack_chunk(gone)))
        return found.revision

    def _value(self, number: int, *, allowed: bool = True) -> bytes | None:
        return None if allowed and self.dice.random() < 0.25 else b"%d-%d" % (number, self.dice.randrange(1000))

    def writer(self) -> Process:
        """An etcd client, which knows nothing of batches."""
        for _ in range(self.dice.randrange(1, 8)):
            yield
            key, value = self.dice.choice(KEYS), self._value(9)
            self.driver.do(DeleteRange(key) if value is None else Put(key, value))

    def small(self) -> Process:
        """A batch of one transaction with deletes."""
        read: int = yield from self.run(finish_overlapping((PREFIX,)))
        rows = tuple((key, self._value(8)) for key in self.dice.sample(KEYS, 2))
        yield
        writes = tuple(DeleteRange(key) if value is None else Put(key, value) for key, value in rows)
        self.driver.do(Txn((batch_steps.closed_since(read),), writes))

    def sweeper(self) -> Process:
        yield from self.run(sweep(1))

    def finisher(self) -> Process:
        """A reader that meets an open batch."""
        yield from self.run(finish_overlapping((PREFIX,)))

    def expire(self) -> None:
        """The lease of a stage ends, whether its writer is alive or not."""
        found: RangeResult = self.do(Range(STAGES, prefix_end(STAGES), keys_only=True))
        alive = [kv.key for kv in found.kvs if kv.key.endswith(b"/alive")]
        if alive:
            self.driver.do(DeleteRange(self.dice.choice(alive)))

    # The schedule.

    def play(self, steps: int = 300) -> None:
        running: list[Running] = []
        queried = free = 0
        for now in range(steps):
            if len(running) < 4 or self.dice.random() < 0.05:
                kind = self.dice.randrange(8)
                if kind < 2 and not any(each.again for each in running):
                    running.append(self._queried(queried))
                    queried += 1
                elif kind < 4:
                    free += 1
                    running.append(Running(self.publisher(1_000 + free, queried=False)))
                else:
                    others = (self.writer, self.small, self.sweeper, self.finisher)
                    running.append(Running(others[kind - 4]()))
            one = self.dice.choice([each for each in running if each.paused_until <= now] or running)
            ended = next(one.process, self) is self
            dies = not ended and self.dice.random() < 0.02
            if ended or (dies and self.dice.random() < 0.5):
                running.remove(one)
            elif dies or self.dice.random() < 0.03:
                one.paused_until = now + 80
            if one.again and (dies or ended) and queried - 1 not in self.acknowledged:
                running.append(Running(one.again(), one.again))
            if dies or ended:
                one.again = None  # a process that is taken for dead may go on later
            if self.dice.random() < 0.01:
                self.expire()
        self.finish()

    def _queried(self, batch: int) -> Running:
        def again() -> Process:
            return self.publisher(batch, queried=True)

        return Running(again(), again)

    def finish(self) -> None:
        for process in (self.finisher(), self.sweeper()):
            for _ in process:
                pass

    # The oracle.

    def check(self) -> None:
        """Once, after `play`. Raises Violation."""
        watcher = self.driver.store.watches.open(WatchRequest(b"\0", FROM_KEY, 2), lambda: None)
        while found := watcher.poll(1_000, 1 << 24):
            for events in found:
                self.oracle.committed(events)
        watcher.close()
        if not self.acknowledged <= self.oracle.published:
            raise Violation("a batch was acknowledged that was not published")
        windows = self.windows()
        for revision in range(2, self.driver.store.revision + 1):
            if any(window.splits(revision) for window in windows) is not (self.oracle.at(revision) is None):
                raise Violation(f"a record of a batch is wrong about revision {revision}")

    def windows(self) -> list[Window]:
        """By which readers choose their revision."""
        found = self.do(Range(BATCHES, prefix_end(BATCHES))).kvs
        windows = [window_of(kv.key, kv.value, kv.create_revision, PREFIX) for kv in found]
        return [each for each in windows if each is not None]

    def staged(self) -> int:
        return int(self.do(Range(STAGES, prefix_end(STAGES))).count)


def violated(text: str) -> None:
    raise Violation(text)


def always(*_: Any) -> Compare:
    """A compare that holds."""
    from palisade.metastore.requests import CompareResult, CompareTarget

    return Compare(b"none", CompareTarget.VERSION, CompareResult.EQUAL, 0)


def nothing(*_: Any) -> Iterator[Any]:
    return iter(())
