"""A leader and one holder with a reader, in simulated time: any of their steps may occur between two steps of a read.

The leader is the smallest that keeps the rules of design.md ("Released revision", "Revision-bound leases"): a revision
is released when the holder has staged it, or has promised, or its lease from before the commit has expired. A read must
return the state of its key at some RR between its call and its return; anything else is a violation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from palisade.metastore.requests import DeleteRange, Put
from palisade.vault import snapshot_reads as reading
from palisade.vault.change import item_of
from palisade.vault.errors import ReadRefused
from palisade.vault.fence_page import FENCE_BYTES, SEQUENCE_WORD, FencePage, FenceState
from palisade.vault.follower_reader import FollowerReader
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.reader import VaultReader
from palisade.vault.staging import StagedChange
from palisade.vault.tables import Backend
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver
from tests.support.vault_feed import follow, full, revision_at

BOOT = b"thisboot"
LEASE_NS = 30
KEYS = (b"palisade/a", b"palisade/b", b"palisade/" + b"long" * 150)


class Violation(AssertionError):
    """A read returned a value that no linearizable read could return."""


def staged_of(driver: Driver, revision: int) -> list[StagedChange]:
    """The rows of a revision that a holder is staged."""
    items = [(body, item_of(body)) for body in revision_at(driver, revision).bodies]
    return [StagedChange(revision, item.key, body if item.version else None) for body, item in items]


class World:
    """`fault`: the broken rule. One walk is one seed."""

    def __init__(self, seed: int, fault: str = "", backend: Backend | None = None) -> None:
        self.rng = random.Random(seed)
        self.fault = fault
        self.now = 1000
        self.driver = full([])
        self.states: list[dict[bytes, bytes]] = [{}, {}]
        self.rr = 1
        self.acked = 1
        self.promised = False
        self.last_grant = 0
        self.barrier: dict[int, int] = {}
        self.backend = backend or MemoryBackend()
        self.buffer = bytearray(FENCE_BYTES)
        self.starts = 0
        self.reading = self.staging = False
        self.reads = 0
        self.page, self.vault = self._start()
        self.reader = self._reader()

    # The node

    def _start(self) -> tuple[FencePage, Vault]:
        self.starts += 1
        if self.fault == "no_fenced_at_start" and self.starts > 1:
            vault = Vault(self.backend, self.page)
        else:
            page = FencePage(self.buffer, BOOT, first_sequence=self.starts << 32)
            vault = Vault(self.backend, page)
        assert vault.page is not None
        self.staged = 0
        if self.fault == "staged_unpublished":
            vault.staging.committed = lambda **_: None  # type: ignore[method-assign]
        if self.fault in ("no_gate", "no_fenced_at_start"):
            vault.staging.superseded = lambda lv: {}  # type: ignore[method-assign]
        return vault.page, vault

    @property
    def lm(self) -> int:
        return self.driver.store.revision

    @property
    def serving(self) -> bool:
        return self.staged > 0 and self.now < self.page.fence.deadline_ns

    # Steps

    def commit(self) -> None:
        key = self.rng.choice(KEYS)
        state = dict(self.states[-1])
        if key in state and self.rng.random() < 0.3:
            self.driver.do(DeleteRange(key))
            del state[key]
        else:
            state[key] = b"%d" % len(self.states)
            self.driver.do(Put(key, state[key]))
        self.states.append(state)
        self.barrier[self.lm] = self.last_grant

    def stage(self) -> None:
        """Committed in the vault, then published, then answered."""
        if not self.staged or self.staged >= self.lm:
            return
        rows = [row for number in range(self.staged + 1, self.lm + 1) for row in staged_of(self.driver, number)]
        self.staged = self.lm
        if self.fault == "staged_before_commit":
            self.acked, self.staging = self.lm, True
            self.proceed()
            self.read_within()
            self.staging = False
        self.vault.staging.stage(rows)
        self.acked = max(self.acked, self.lm if self.fault == "staged_before_commit" else self.staged)

    def proceed(self) -> None:
        """The leader releases the permitted revisions."""
        while self.rr < self.lm:
            following = self.rr + 1
            out = self.now >= self.barrier[following] + LEASE_NS
            if not (self.acked >= following or self.promised or out):
                return
            self.rr = following

    def released(self) -> None:
        if self.staged:
            self.vault.staging.release(min(self.rr, self.staged))

    def apply(self) -> None:
        """While the node serves, no further than RR."""
        served = self.page.fence.state is FenceState.ACTIVE and self.fault != "no_fenced_at_start"
        limit = self.lm if not served or self.fault == "no_gate" else min(self.lm, self.vault.staging.released)
        if limit > self.vault.revision:
            self.advance(self.rng.randint(self.vault.revision + 1, limit))

    def advance(self, last: int) -> None:
        """The vault applies everything up to a revision."""
        follow(self.vault, self.driver, last)

    def renew(self) -> None:
        """Requested, granted with LM required, and accepted; the deadline counts from the request."""
        if self.serving and self.staged >= self.lm:
            self.last_grant, self.promised = self.now, False
            self.page.serve(self.now + LEASE_NS, 1)

    def recover(self) -> None:
        """From FENCED, with everything up to RR applied and the rest pending again."""
        self.lapse()
        if self.page.fence.state is FenceState.ACTIVE:
            return
        if self.vault.revision < self.rr:
            self.advance(self.rr)
        pending = [row for number in range(self.rr + 1, self.lm + 1) for row in staged_of(self.driver, number)]
        self.vault.staging.stage(pending, anew=True)
        self.vault.staging.release(self.rr)
        self.staged = self.acked = self.lm
        self.last_grant, self.promised = self.now, False
        self.page.serve(self.now + LEASE_NS, 1)

    def lapse(self) -> None:
        if self.page.fence.state is FenceState.ACTIVE and self.now >= self.page.fence.deadline_ns:
            self._down()

    def stop_politely(self) -> None:
        """Stop serving first, then promise."""
        if self.staged:
            self._down()
            self.promised = True

    def _down(self) -> None:
        self.page.refuse()
        self.staged = 0

    def restart(self) -> None:
        """The process dies and another one starts at once: no promise was made, the page is unchanged."""
        if self.fault != "stale_snapshot":
            self.page, self.vault = self._start()
            self.apply()

    def silence(self) -> None:
        """The node is paused, and with it its page; the cluster continues without it."""
        self.commit()
        self.now += LEASE_NS
        self.proceed()

    def tick(self) -> None:
        self.now += self.rng.randrange(16)

    def step(self) -> None:
        """Long periods of serving, with every event that may end them."""
        often = (self.commit, self.stage, self.proceed, self.released, self.apply, self.renew, self.recover)
        self.rng.choice(often if self.rng.random() < 0.9 else self.seldom)()

    @property
    def seldom(self) -> tuple[Callable[[], None], ...]:
        return (self.lapse, self.stop_politely, self.restart, self.silence, self.tick, self.tick)

    # The reader

    def between(self) -> None:
        """Between two steps of a read: every other event that may happen."""
        if self.rng.random() < 0.7:
            return
        for _ in range(self.rng.randrange(8)):
            steps: tuple[Callable[[], None], ...] = (self.proceed, self.released, self.commit, self.apply)
            if not self.staging:
                steps += (self.stage, self.stage)
                if self.rng.random() < 0.1:
                    steps = self.seldom
            self.rng.choice(steps)()

    def _reader(self) -> FollowerReader:
        patience_s = 0 if self.fault in ("no_second_look", "no_deadline") else 2e-8
        reader = FollowerReader.over(self.vault, clock_ns=lambda: self._clock(), wait_s=patience_s, sleep=self._sleep)
        source: Any = reader._source
        source.begin = self._begin
        reader._trust(reader._fence, source)
        if self.fault == "no_second_look":
            source.words = _Stuck(self, source.words)
        if self.fault == "pending_overlooked":
            reader._trust = lambda fence, source: VaultReader._trust(  # type: ignore[method-assign]
                reader, _without_pending(fence), source
            )
        return reader

    def _clock(self) -> int:
        if self.reading:
            self.between()
        if self.fault == "no_deadline":
            return 0
        if self.reading and self.fault == "no_second_look":
            return self.called
        return self.now

    def _sleep(self, _: float) -> None:
        self.now += 5
        for _ in range(3):
            self.between()

    def _begin(self) -> Any:
        if self.fault == "stale_snapshot" and self.rng.random() < 0.9 and hasattr(self, "kept"):
            return self.kept
        if self.reading:
            self.between()
        self.kept = self.backend.begin()  # type: ignore[attr-defined]
        if self.reading:
            self.between()
        return self.kept

    def read_within(self) -> None:
        if not self.reading:
            self.read()

    def read(self) -> None:
        key, before = self.rng.choice(KEYS), self.rr
        self.called, self.sequence = self.now, memoryview(self.buffer).cast("Q")[SEQUENCE_WORD]
        many = self.rng.random() < 0.3
        self.reading = True
        try:
            found = self._found(key, many)
        except ReadRefused:
            return
        finally:
            self.reading = False
        self.reads += 1
        for name, value in found.items():
            allowed = [state.get(name) for state in self.states[before : self.rr + 1]]
            if value not in allowed:
                raise Violation(f"{name[:12]!r} is {value!r}, and may be one of {allowed} (RR {before} to {self.rr})")

    def _found(self, key: bytes, many: bool) -> dict[bytes, bytes | None]:
        if not many:
            return {key: self.reader.get(key) if self.rng.random() < 0.5 else self._shown(key)}
        rows = self.reader.prefix(b"palisade/")
        found = {item.key: item.value for item in rows}
        state = self.states[rows.revision] if rows.revision < len(self.states) else None
        if state != found:
            raise Violation(f"the range is reported as of revision {rows.revision}, and is {found}")
        return {name: found.get(name) for name in KEYS}

    def _shown(self, key: bytes) -> bytes | None:
        """With or without waiting; no result is older than the revision that it names."""
        shown = self.reader.at_once(key) or self.reader.read(key)
        value = None if shown.item is None else shown.item.value
        if value not in [state.get(key) for state in self.states[shown.revision :]]:
            raise Violation(f"{key[:12]!r} is {value!r}, and is reported as of revision {shown.revision}")
        return value

    def walk(self, steps: int = 60) -> int:
        """Returns the number of answered reads. Raises Violation."""
        for _ in range(steps):
            for _ in range(self.rng.randrange(8)):
                self.step()
            self.read()
        return self.reads


class _Stuck:
    """The page as text, at the moment at which the read was called."""

    def __init__(self, world: World, words: Any) -> None:
        self._world, self._words = world, words

    def __getitem__(self, index: int) -> int:
        return self._world.sequence if self._world.reading else int(self._words[index])


def _without_pending(fence: Any) -> Any:

    return fence._replace(pending=0)


@contextmanager
def rows_for_ever() -> Iterator[None]:
    """Planted: a reader for which a released row is the value, however old the vault is."""
    original: Callable[..., Any] = reading.VaultSnapshot.lv.fget  # type: ignore[attr-defined]
    reading.VaultSnapshot.lv = property(lambda self: 0)  # type: ignore[assignment]
    try:
        yield
    finally:
        reading.VaultSnapshot.lv = property(original)  # type: ignore[assignment]
