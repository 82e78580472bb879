"""Changes that a vault has before they may be served: stage, release, and the strict keys meanwhile (F3, F5).

`stage` returns when the rows are committed and the fence page is updated: only then may STAGED be sent. Nothing of it
is synced: after a power failure the node is fenced, and receives the rows again. Thus no reader misses both the row and
its change.

A row of PENDING means: this key has a change at this revision. The old value must not be served once the change is
released, and the change must not be served before. Readers find the row in the same snapshot as the entry. A row is
superseded once the vault has applied its revision *and* the revision is released; the commit that moves LV removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from palisade.base.long_keys import PREFIX_BYTES, stored_key
from palisade.vault.change import HEADER, HEADER_BYTES, is_body, item_of
from palisade.vault.errors import RESET, VaultDamaged, VaultDiverged, VaultUngated
from palisade.vault.fence_page import FencePage, FenceState
from palisade.vault.regions import REGIONS_END, REGIONS_PREFIX, Regions, either
from palisade.vault.tables import Backend, VaultTable

REVISION_BYTES = 8
_BY_REVISION = itemgetter(0)

Row = tuple[int, bytes, bytes | None]
"""Used instead of `StagedChange` on the hot path: the tuples as they arrive from the wire."""


class StagedChange(NamedTuple):
    """A change of a key at a revision. `body`: the version (`change.py`); None: the key is deleted."""

    revision: int
    key: bytes
    body: bytes | None


def pack_all(rows: Mapping[bytes, Row]) -> dict[bytes, bytes]:
    """Keyed by stored key."""
    return {stored: row[0].to_bytes(REVISION_BYTES, "big") + (row[2] or b"") for stored, row in rows.items()}


def revision_of(packed: bytes) -> int:
    return int.from_bytes(packed[:REVISION_BYTES], "big")


def body_of(packed: bytes) -> bytes | None:
    return packed[REVISION_BYTES:] or None


def check_staged(rows: Iterable[Row]) -> None:
    """Raises VaultDiverged unless each row is well-formed: a body of its key and revision."""
    unpack = HEADER.unpack_from
    for revision, key, body in rows:
        if body is not None and len(body) >= HEADER_BYTES:
            mod, _, version, _, key_bytes, value_bytes = unpack(body)
            end = HEADER_BYTES + key_bytes
            fits = version and mod == revision and len(body) == end + value_bytes and body[HEADER_BYTES:end] == key
        else:
            fits = body is None
        if not fits or revision <= 0 or not key:
            raise VaultDiverged(
                f"the staged change of {key[:64]!r} at revision {revision} is malformed: request it again"
            )


def check_pending(stored: bytes, packed: bytes) -> None:
    """Raises VaultDamaged unless the row belongs to that key."""
    if 0 < len(packed) - REVISION_BYTES < HEADER_BYTES or len(packed) < REVISION_BYTES or not revision_of(packed):
        raise _damaged(stored)
    body = body_of(packed)
    if body is None:
        return
    item = item_of(body) if is_body(body) else None
    if item is None or stored_key(item.key) != stored or item.mod_revision != revision_of(packed):
        raise _damaged(stored)


def _damaged(stored: bytes) -> VaultDamaged:
    return VaultDamaged(f"the pending row of {stored[:64]!r} in the vault is damaged: {RESET}")


class PendingKeys:
    """The revisions of the rows, in memory, in order of revision."""

    def __init__(self, rows: Iterable[tuple[bytes, int]] = ()) -> None:
        """(stored key, revision)."""
        self._rows: dict[bytes, int] = dict(sorted(rows, key=lambda row: row[1]))

    def __len__(self) -> int:
        return len(self._rows)

    def revision_of(self, key: bytes) -> int | None:
        """The revision of the latest staged change of the key; None: no row."""
        return self._rows.get(stored_key(key))

    @property
    def latest(self) -> int:
        """The highest revision with a row; 0: none."""
        return next(reversed(self._rows.values()), 0)

    def first_after(self, revision: int) -> int | None:
        """The lowest revision above `revision` with a row."""
        return next((number for number in self._rows.values() if number > revision), None)

    def upto(self, revision: int) -> list[bytes]:
        """The stored keys of the rows at or below `revision`."""
        found: list[bytes] = []
        for stored, number in self._rows.items():
            if number > revision:
                break
            found.append(stored)
        return found

    def newer(self, rows: Iterable[Row], above: int = 0) -> dict[bytes, Row]:
        """The rows that are new at a revision above `above`, the latest of each key, by stored key, in order of
        revision."""
        found: dict[bytes, Row] = {}
        known = self._rows.get
        for row in sorted(rows, key=_BY_REVISION):
            revision, key, _ = row
            stored = key if len(key) <= PREFIX_BYTES else stored_key(key)
            if revision > above and revision > known(stored, 0):
                found.pop(stored, None)
                found[stored] = row
        return found

    def add(self, rows: dict[bytes, Row]) -> None:
        """Add the result of `newer` once it is committed."""
        ordered = next(iter(rows.values()))[0] >= self.latest if rows else True
        known = self._rows
        for stored, row in rows.items():
            if stored in known:
                del known[stored]
            known[stored] = row[0]
        if not ordered:
            self._rows = dict(sorted(self._rows.items(), key=lambda item: item[1]))

    def remove(self, stored_keys: Iterable[bytes]) -> None:
        for stored in stored_keys:
            self._rows.pop(stored, None)


class RowsWatch:
    """Whether rows below `prefix` may have changed: `state` stays the same object while no reader that may trust the
    vault can see another row there than before.

    It changes with the commit that stages or applies a change, before STAGED is sent. A release needs no new state:
    until then the row could not be read at all.
    """

    __slots__ = ("_prefix", "state")

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self.state = object()

    def changed(self, stored: Iterable[bytes] | None) -> None:
        """A commit changed the rows of these stored keys; None: perhaps of all keys."""
        if stored is None or any(key.startswith(self._prefix) for key in stored):
            self.state = object()


class VaultStaging:
    """Of one vault, at revision `lv`; `whole`: not between two revisions."""

    def __init__(self, backend: Backend, page: FencePage | None, lv: int, *, whole: bool) -> None:
        self._backend = backend
        self._page = page
        self._lv = lv
        self.released = 0
        """RR as known here; it stays true."""
        rows = list(backend.scan(VaultTable.PENDING, b"", None))
        self.pending = PendingKeys((stored, revision_of(packed)) for stored, packed in rows)
        self._region_changes: list[Row] = []
        self._region_rows: dict[bytes, bytes] | None = None
        self._regions = Regions.of(())
        self._regions_known = False
        self._leaping = False
        self._after_leap: list[Callable[[], None]] = []
        self._watches: list[RowsWatch] = []
        if page is not None:
            page.opened(lv, len(self.pending), whole=whole)

    # Stage and release

    def stage(self, rows: Sequence[Row], *, anew: bool = False) -> list[Row]:
        """Mark their keys pending, in one commit. `anew`: replaces all pending rows. Returns the rows that change
        regions.

        Raises VaultDiverged (malformed row), VaultUnusable: then nothing has changed; RuntimeError while a leap is in
        progress (`after_leap`).
        """
        if self._leaping:
            raise RuntimeError("a leap is in progress, and LMDB has one writer: stage after it (after_leap)")
        check_staged(rows)
        known = PendingKeys() if anew else self.pending
        new = known.newer(rows, min(self._lv, self.released))
        if new or (anew and self.pending):
            self._backend.commit({VaultTable.PENDING: pack_all(new)}, cleared=(VaultTable.PENDING,) if anew else ())
        known.add(new)
        self.pending = known
        self._changed(None if anew else new)
        changes = [row for row in rows if row[1].startswith(REGIONS_PREFIX)]
        self._region_changes = changes if anew else [*self._region_changes, *changes]
        self.committed()
        return changes

    def release(self, revision: int) -> None:
        """Every strict revision up to `revision` is released; updates the page. A lower revision changes nothing."""
        if revision > self.released:
            self.released = revision
            if self._page is not None:
                self._page.release(revision)

    # The commit that moves LV

    def superseded(self, lv: int) -> dict[bytes, None]:
        """The rows to remove in the commit that moves LV to `lv`.

        Raises VaultUngated if that commit would show readers an unreleased change.
        """
        ahead = self.pending.first_after(max(self._lv, self.released))
        served = self._page is not None and self._page.fence.state is FenceState.ACTIVE
        if served and ahead is not None and ahead <= lv:
            raise VaultUngated(
                f"revision {ahead} is staged and not released (RR {self.released}): the vault can't be moved from "
                f"revision {self._lv} to {lv} while it is served; move it to {ahead - 1}, or wait for the release"
            )
        return dict.fromkeys(self.pending.upto(min(lv, self.released)))

    def moved(self, lv: int, superseded: dict[bytes, None], entries: Collection[bytes] | None = None) -> None:
        """Call after that commit. `entries`: the stored keys of the entries in it; None: perhaps all."""
        self._lv = lv
        self._regions_known = False
        self.pending.remove(superseded)
        bound = min(lv, self.released)
        self._region_changes = [row for row in self._region_changes if row[0] > bound]
        self._changed(None if entries is None else (*entries, *superseded))
        self.committed()

    def committed(self, *, whole: bool = True) -> None:
        """Call after a commit that readers can see."""
        self._regions_known = self._regions_known and whole
        if not whole:
            self._changed(None)
        if self._page is not None:
            self._page.committed(self._lv, len(self.pending), whole=whole)

    def watch(self, prefix: bytes) -> RowsWatch:
        """`prefix`: shorter than the keys that are stored whole (`base/long_keys.py`)."""
        self._watches.append(RowsWatch(prefix))
        return self._watches[-1]

    def _changed(self, stored: Collection[bytes] | None) -> None:
        for watch in self._watches:
            watch.changed(stored)

    def between_revisions(self) -> None:
        """The next commit leaves the vault between two revisions: it must not be trusted from now on."""
        if self._page is not None and self._page.fence.state is FenceState.ACTIVE:
            self._page.refuse()

    # Leaps

    @property
    def leaping(self) -> bool:
        return self._leaping

    def after_leap(self, call: Callable[[], None]) -> None:
        """Call `call` once when the leap in progress has ended; at once if there is none."""
        if self._leaping:
            self._after_leap.append(call)
        else:
            call()

    def leap_begins(self) -> None:
        self._leaping = True

    def leap_ends(self) -> None:
        self._leaping = False
        waiting, self._after_leap = self._after_leap, []
        for call in waiting:
            call()

    # Regions

    @property
    def regions(self) -> Regions:
        """At LV."""
        if not self._regions_known:
            rows = {
                (item := item_of(entry)).key: item.value
                for _, entry in self._backend.scan(VaultTable.ENTRY, REGIONS_PREFIX, REGIONS_END)
            }
            if rows != self._region_rows:
                self._region_rows, self._regions = rows, Regions.of(rows.items())
            self._regions_known = True
        return self._regions

    def is_strict_at(self, key: bytes, revision: int) -> bool:
        """Whether a change of the key at this revision, after LV, may be a staged one. A change from before its prefix
        became strict is not; it must be applied before the region change is acknowledged."""
        if self._region_changes and revision > min(revision for revision, _, _ in self._region_changes):
            return self.effective_regions.is_strict(key)
        return self.regions.is_strict(key)

    @property
    def effective_regions(self) -> Regions:
        """A key is strict here if it is strict at LV or after any of the staged changes."""
        found = self.regions
        rows = dict(self._region_rows or {})
        for _, key, body in self._region_changes:
            if body is None:
                rows.pop(key, None)
            else:
                rows[key] = item_of(body).value
            found = either(found, Regions.of(rows.items()))
        return found
