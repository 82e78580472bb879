"""Changes that a vault knows before they may be served: stage, release, and the strict keys meanwhile (F3, F5).

`stage` returns when the rows are committed and the fence page is updated: only then may STAGED be sent. Nothing of it
is synced: after a power failure the node is fenced, and receives the rows again. A row is removed in the commit that
moves LV past it, once its revision is released. So no reader misses both the row and its change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from palisade.vault.change import item_of
from palisade.vault.errors import VaultUngated
from palisade.vault.fence_page import FencePage, FenceState
from palisade.vault.pending import PendingKeys, Row, check_staged, pack_all, revision_of
from palisade.vault.regions import REGIONS_END, REGIONS_PREFIX, Regions, either
from palisade.vault.tables import Backend, VaultTable


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
        """Strict is what is strict at LV, or by a staged change, or between two of them."""
        found = self.regions
        rows = dict(self._region_rows or {})
        for _, key, body in self._region_changes:
            if body is None:
                rows.pop(key, None)
            else:
                rows[key] = item_of(body).value
            found = either(found, Regions.of(rows.items()))
        return found
