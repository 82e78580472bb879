"""Fenced, linearizable reads of a vault from any process of the machine, without socket or node (issue 4, N6, F7).

Guarantee: a read of a key in a strict region returns what a linearizable read of the cluster could have returned
between its call and its return; or it raises. Reason: the node's lease is bound to a revision, and the node sends
STAGED only after the change is marked in LMDB and the fence page has a new sequence (`palisade/fencing/DESIGN.md`). A
read takes a snapshot, then checks the page. If page and clock show a valid lease, and the sequence equals that of the
copy verified before, the fence was up all the time between. Thus the snapshot has every change that may have been
acknowledged, as a row or as a mark. A page that has not changed is checked once.

Each read takes and releases its own snapshot, so an idle reader pins no page. Keeping it would save a tenth of a read.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar
from weakref import WeakSet
from zlib import crc32

from xxhash import xxh3_64_digest

from palisade.base.checksums import CHECKSUM_BYTES
from palisade.base.content import Content, as_bytes, bounds
from palisade.base.long_keys import PREFIX_BYTES
from palisade.vault.change import HEADER_BYTES, Item, item_of
from palisade.vault.errors import VaultUnusable
from palisade.vault.fence_file import CLOCK
from palisade.vault.fence_page import NO_FENCE, SEQUENCE_WORD, Fence
from palisade.vault.read_drivers import Changed, run, run_async
from palisade.vault.read_policies import Course, Unreachable, reach, read_one, read_range
from palisade.vault.reader_source import MAP_BYTES, OwnSource, ReaderSource, VaultFiles, at_fork, copy_of_fence
from palisade.vault.record_check import CHECKSUMS
from palisade.vault.regions import Region, Regions, prefix_end
from palisade.vault.snapshot_reads import (
    Opened,
    Rows,
    ShownPage,
    Unapplied,
    Unreleased,
    VaultSnapshot,
    collect,
    limited,
    look_up,
    open_range,
    regions_of,
)
from palisade.vault.tables import VaultTable
from palisade.vault.vault import Vault

T = TypeVar("T")
LOOKS = 100
"""Maximum changes of the page during one look-up."""
WAIT_S = 1.0
SLICE_ROWS = 500
"""Rows of a range that a task reads before it yields to others."""
_SEED = CHECKSUMS.seed_of(VaultTable.ENTRY)
_CONTENT, _CHECKSUM = slice(None, -CHECKSUM_BYTES), slice(-CHECKSUM_BYTES, None)


class VaultReader:
    """Reads the vault in `path`, the folder `vault` in a node's data folder; from a process of the same user.

    `fetch(key)` reads a key from the cluster, linearizably, and returns an Item or None, or Rows of that key, which
    contain the revision; `fetch_range(start, end, limit)` returns Rows. Both are used if the policy of the region is to
    read from the cluster. For the async calls both may be coroutine functions. `wait_s`: how long a read waits for the
    release of a change.

    Raises VaultForeign (no vault there), VaultUnusable (no node of this version has started there yet; no permission),
    VaultNewer, VaultDamaged. Threads may share a reader. Processes must not: after a fork it is unusable in the child.
    """

    _hot: tuple[int, int, memoryview, Callable[[], Any], Any, Any, Callable[[], int]]
    """For `get`: sequence and deadline of the verified page (0: not trusted), the page in words, the function that
    begins a transaction, the entries, the pending rows (None: there are none), the clock. Replaced as a whole."""
    _errors: tuple[type[Exception], ...]
    _shown_to: int
    """The revision up to which a snapshot shows every strict change while the page is unchanged. Set before `_hot`, and
    read before the page is checked, so it is never of a later page."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        fetch: Callable[[bytes], Any] | None = None,
        fetch_range: Callable[[bytes, bytes | None, int], Any] | None = None,
        wait_s: float = WAIT_S,
        map_bytes: int = MAP_BYTES,
    ) -> None:
        self._fetch, self._fetch_range = fetch, fetch_range
        self._wait_s = wait_s
        self._changed: Changed | None = None
        self._clock_ns: Callable[[], int] = partial(time.clock_gettime_ns, CLOCK)
        self._sleep: Callable[[float], None] = time.sleep
        self._use(VaultFiles(Path(path), map_bytes))

    @classmethod
    def over(
        cls,
        vault: Vault,
        *,
        fetch: Callable[[bytes], Any] | None = None,
        fetch_range: Callable[[bytes, bytes | None, int], Any] | None = None,
        wait_s: float = WAIT_S,
        changed: Changed | None = None,
        clock_ns: Callable[[], int] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Self:
        """Reads the vault that this process has open itself, by the same rules; close it before the vault.

        `changed`: waits until the writer of the fence page has changed it; without it the page is polled. `clock_ns`,
        `sleep`: those of a simulation.
        """
        reader = cls.__new__(cls)
        reader._fetch, reader._fetch_range = fetch, fetch_range
        reader._wait_s = wait_s
        reader._changed = changed
        reader._clock_ns = clock_ns or partial(time.clock_gettime_ns, CLOCK)
        reader._sleep = sleep
        reader._use(OwnSource(vault))
        return reader

    def _use(self, source: ReaderSource) -> None:
        self._source: ReaderSource | None = source
        self._turn = threading.RLock()
        self._gone = ""
        self._fence = NO_FENCE
        self._trust(NO_FENCE, source)
        _readers.add(self)

    # Reads

    def get(self, key: Content) -> bytes | None:
        """The value of a key (bytes or text); None if it does not exist.

        Linearizable in a strict region; in an eventual region the value at a moment when the vault was trusted. Raises
        Fenced and Pending (retry), Denied (treat as denial), according to the policy of the region; VaultDamaged.
        """
        sequence, deadline_ns, words, begin, entries, marks, clock_ns = self._hot
        if deadline_ns:
            try:
                if (key_bytes := len(key)) <= PREFIX_BYTES:
                    snapshot = begin()
                    sealed = snapshot.get(key, None, entries)
                    pending = marks is not None and snapshot.get(key, None, marks) is not None
                    if not pending and words[SEQUENCE_WORD] == sequence and clock_ns() < deadline_ns:
                        if sealed is None:
                            return None
                        entry: bytes = sealed[_CONTENT]
                        if xxh3_64_digest(entry, crc32(key, _SEED)) == sealed[_CHECKSUM]:  # type: ignore[arg-type]
                            return entry[HEADER_BYTES + key_bytes :]
            except self._errors:
                pass
            except TypeError:
                if type(key) is not bytes:
                    return self.get(as_bytes(key))
            snapshot = None  # The next call may take long, or raise an error that keeps this frame.
        item = self.get_item(key)
        return None if item is None else item.value

    def get_item(self, key: Content) -> Item | None:
        """As `get`, with the revisions of the key. A safe default has revisions 0. Raises as `get`."""
        return self.read(key).item

    def read(self, key: Content) -> ShownPage:
        """As `get_item`, with the revision and the origin of the answer. Raises as `get`."""
        return run(self._one(key), self._ask_one(as_bytes(key)), self._now_s, self._sleep)

    def at_once(self, key: bytes) -> ShownPage | None:
        """As `read` if it needs neither waiting nor a policy, else None: then call `read`. Raises VaultDamaged."""
        shown_to = self._shown_to
        sequence, deadline_ns, words, begin, entries, marks, clock_ns = self._hot
        if deadline_ns and len(key) <= PREFIX_BYTES:
            try:
                snapshot = begin()
                sealed = snapshot.get(key, None, entries)
                pending = marks is not None and snapshot.get(key, None, marks) is not None
                if not pending and words[SEQUENCE_WORD] == sequence and clock_ns() < deadline_ns:
                    if sealed is None:
                        return ShownPage(None, shown_to)
                    entry: bytes = sealed[_CONTENT]
                    if xxh3_64_digest(entry, crc32(key, _SEED)) == sealed[_CHECKSUM]:
                        return ShownPage(item_of(entry), shown_to)
            except self._errors:
                pass
            snapshot = None
        found = self._look_one(key)
        return found if isinstance(found, ShownPage) else None

    def range(self, start: Content, end: Content | None = None, limit: int = 0) -> Rows:
        """Every key with start <= key < end (None: to the last), in order; `limit` 0: all.

        The rows are the state as of `Rows.revision`, strict keys and others together. A range that has keys of
        eventual regions waits until the vault has applied the strict changes that it has received. Raises as `get`; a
        range in several regions, or in one whose policy is a default, fails closed.
        """
        low, high = bounds(start, end, limit)
        return run(self._many(low, high, limit), self._ask_many(low, high, limit), self._now_s, self._sleep)

    def prefix(self, prefix: Content, limit: int = 0) -> Rows:
        """As `range`."""
        prefix = as_bytes(prefix)
        return self.range(prefix, prefix_end(prefix), limit)

    def iterate(self, start: Content, end: Content | None = None) -> Iterator[Item]:
        """As `range`, for more than fits into memory: one snapshot is held until the iterator ends or is closed.

        Meanwhile the vault file grows with every change: exhaust the iterator or close it.
        """
        opened = run(self._opening(*bounds(start, end)), None, self._now_s, self._sleep)
        return self._going_on(opened.items)

    def _going_on(self, items: Iterable[Item]) -> Iterator[Item]:
        try:
            yield from items
        except self._errors as error:
            self._require_source().repair(error)

    def wait_for(self, revision: int, timeout_s: float) -> int:
        """Wait until the vault has applied the revision; returns LV. From then on, reads of eventual keys include every
        change up to the revision.

        A strict change needs no waiting: every read after its acknowledgement includes it. Raises NotReached.
        """
        return run(reach(revision, self.applied, self._now_s(), timeout_s), None, self._now_s, self._sleep)

    async def get_async(self, key: Content) -> bytes | None:
        """As `get`: the task awaits where `get` sleeps."""
        item = await self.get_item_async(key)
        return None if item is None else item.value

    async def get_item_async(self, key: Content) -> Item | None:
        """As `get_item`."""
        return (await self.read_async(key)).item

    async def read_async(self, key: Content) -> ShownPage:
        """As `read`."""
        return await run_async(self._one(key), self._ask_one(as_bytes(key)), self._now_s, self._changed)

    async def range_async(self, start: Content, end: Content | None = None, limit: int = 0) -> Rows:
        """As `range`, still of one revision, but yields to other tasks in between."""
        low, high = bounds(start, end, limit)
        course, ask = self._opening(low, high), self._ask_many(low, high, limit)
        opened = await run_async(course, ask, self._now_s, self._changed)
        if isinstance(opened, Rows):
            return opened
        found: list[Item] = []
        items = self._going_on(opened.items)
        wanted = limit + 1 if limit else None
        while piece := list(islice(items, SLICE_ROWS if wanted is None else min(SLICE_ROWS, wanted - len(found)))):
            found += piece
            await asyncio.sleep(0)
        return limited(opened, found, limit)

    async def prefix_async(self, prefix: Content, limit: int = 0) -> Rows:
        """As `prefix`."""
        prefix = as_bytes(prefix)
        return await self.range_async(prefix, prefix_end(prefix), limit)

    async def wait_for_async(self, revision: int, timeout_s: float) -> int:
        """As `wait_for`."""
        course = reach(revision, self.applied, self._now_s(), timeout_s)
        return await run_async(course, None, self._now_s, self._changed)

    # State of the vault

    @property
    def fence(self) -> Fence:
        """The current content of the fence page; `Fence.serves` states whether to trust the vault."""
        with self._turn:
            self._verified()
            return self._fence

    def region_of(self, key: bytes) -> Region:
        """The region of the key, according to the vault."""
        return self._regions().region_of(key)

    def close(self) -> None:
        with self._turn:
            source, self._source = self._source, None
            self._gone = "the reader is closed: create another one"
            if source is not None:
                self._hot = (self._hot[0], 0, *self._hot[2:])
                source.close()

    def __enter__(self) -> VaultReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Implementation

    def _one(self, given: Content) -> Course[ShownPage]:
        key = as_bytes(given)
        if not key:
            raise ValueError("a key must have at least one byte")
        return read_one(self, key, lambda _: self._look_one(key), self._now_s(), self._wait_s)

    def _look_one(self, key: bytes) -> ShownPage | Unreleased | Unreachable:
        def read(snapshot: VaultSnapshot, released: int) -> ShownPage | Unreleased:
            found = look_up(snapshot, key, released)
            if isinstance(found, Unreleased):
                return Unreleased(found.revision, ShownPage(found.found, found.revision))
            return ShownPage(found, max(released, self._fence.lv))

        return self._look(read)

    def _many(self, start: bytes, end: bytes | None, limit: int) -> Course[Rows]:
        def look(applied: int) -> Rows | Unreleased | Unapplied | Unreachable:
            opened = self._look_range(start, end, applied)
            if not isinstance(opened, Opened):
                return opened
            try:
                return self._unless_unreleased(opened, collect(opened, limit))
            except self._errors as error:
                self._require_source().repair(error)
                return Unreachable(f"reading it failed: {error}")

        return read_range(self, start, end, look, self._now_s(), self._wait_s)

    def _opening(self, start: bytes, end: bytes | None) -> Course[Opened | Rows]:
        def look(applied: int) -> Opened | Unreleased | Unapplied | Unreachable:
            opened = self._look_range(start, end, applied)
            return self._unless_unreleased(opened, opened) if isinstance(opened, Opened) else opened

        return read_range(self, start, end, look, self._now_s(), self._wait_s)

    def _look_range(self, start: bytes, end: bytes | None, applied: int) -> Opened | Unapplied | Unreachable:
        return self._look(lambda snapshot, released: open_range(snapshot, start, end, released, applied))

    def _unless_unreleased(self, opened: Opened, found: T) -> T | Unreleased:
        return Unreleased(opened.needs, found) if opened.needs else found

    def trusted(self, read: Callable[[VaultSnapshot], T]) -> T | Unreachable:
        """`read` of a snapshot that was to be trusted when it was taken. It keeps pages from being reused: be brief."""
        for _ in range(LOOKS):
            snapshot = self._look(lambda snapshot, _: snapshot)
            if isinstance(snapshot, Unreachable):
                return snapshot
            try:
                return read(snapshot)
            except self._errors as error:
                self._require_source().repair(error)
        return Unreachable("it grows faster than it can be read")

    def which(self) -> int:
        """A number that changes when the vault in this folder is replaced."""
        return self._require_source().opened

    def released(self) -> int:
        """RR according to the fence page."""
        return self.fence.released

    def applied(self) -> int:
        """LV according to the fence page."""
        return self.fence.lv

    def covering(self, start: bytes, end: bytes | None) -> Region | None:
        """The region of all keys of a range, according to the vault; None: there may be several."""
        return self._regions().covering(start, end)

    def _look(self, read: Callable[[VaultSnapshot, int], T]) -> T | Unreachable:
        """The result of `read` for a snapshot that was to be trusted when it was taken."""
        for _ in range(LOOKS):
            with self._turn:
                fence = self._verified()
                if isinstance(fence, Unreachable):
                    return fence
                source = self._require_source()
                try:
                    found = read(VaultSnapshot(source.begin(), source.tables), fence.released)
                except source.errors as error:
                    source.repair(error)
                    continue
                if source.words[SEQUENCE_WORD] == fence.sequence and self._clock_ns() < fence.deadline_ns:
                    return found
        return Unreachable("its fence page changes faster than it can be read")

    def _verified(self) -> Fence | Unreachable:
        """The current page, if the vault may be trusted according to it."""
        source = self._require_source()
        fence = self._fence
        if source.words[SEQUENCE_WORD] != fence.sequence:
            copied = copy_of_fence(source)
            if copied is None:
                return Unreachable("its fence page is torn: the node died while it wrote it")
            fence = self._fence = copied
            self._trust(fence, source)
        now_ns = self._clock_ns()
        if fence.serves(now_ns, source.boot):
            return fence
        if source.replaced():
            self._fence = NO_FENCE
            return self._verified()
        return Unreachable(fence.refusal(now_ns, source.boot))

    def _trust(self, fence: Fence, source: ReaderSource) -> None:
        """Prepare `get`. While nothing is pending it need not look for rows."""
        deadline_ns = fence.deadline_ns if fence.serves(0, source.boot) else 0
        entries, marks = source.tables[VaultTable.ENTRY], source.tables[VaultTable.PENDING] if fence.pending else None
        self._errors = (*source.errors, ValueError)
        self._shown_to = max(fence.released, fence.lv)
        self._hot = (fence.sequence, deadline_ns, source.words, source.begin, entries, marks, self._clock_ns)

    def _regions(self) -> Regions:
        """Whether or not the vault may be trusted: an outdated region has a policy that was safe before."""
        with self._turn:
            source = self._require_source()
            try:
                return regions_of(VaultSnapshot(source.begin(), source.tables))
            except source.errors:
                return Regions.of(())

    def _require_source(self) -> ReaderSource:
        if self._source is None:
            raise VaultUnusable(self._gone)
        return self._source

    def _ask_one(self, key: bytes) -> Callable[[], Any] | None:
        return None if self._fetch is None else partial(self._fetch, key)

    def _ask_many(self, start: bytes, end: bytes | None, limit: int) -> Callable[[], Any] | None:
        return None if self._fetch_range is None else partial(self._fetch_range, start, end, limit)

    def _now_s(self) -> float:
        return self._clock_ns() / 1e9

    def _forked(self) -> None:
        self._source = None
        self._gone = "this reader was created before the process forked: create it after the fork, or spawn the process"
        self._turn = threading.RLock()
        self._hot = (self._hot[0], 0, *self._hot[2:])


_readers: WeakSet[VaultReader] = WeakSet()


def _forget_readers() -> None:
    for reader in list(_readers):
        reader._forked()


at_fork(_forget_readers)
