"""A node's copy of the cluster's state at one revision, LV (R1).

Data, LV, chain digest, bucket digests and marks change in one commit of the backend. Thus after any crash the vault is
the complete state of the cluster at some revision that was LV, and LV is never ahead of the content. Only the small
records and the bucket sums (64 KiB, read on opening) are in memory; they change once a commit has succeeded.

While a snapshot is being applied, the content is between two revisions: the vault is marked, and every read is refused.
One event loop owns a vault; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from palisade.base.digest import BUCKETS, Sums, content_of, pack_sums
from palisade.base.long_keys import LONG_BYTES, in_order, stored_end, stored_key, stored_start
from palisade.vault.bucket_pages import load_sums, pages_of
from palisade.vault.change import Item, Revision, VaultEvent, item_of, key_of, with_key
from palisade.vault.errors import RESET, VaultDiverged, VaultForeign, VaultGap, VaultRecovering
from palisade.vault.fence_page import FencePage
from palisade.vault.position import (
    Recovering,
    VaultLineage,
    VaultPosition,
    pack_lineage,
    pack_position,
    unpack_lineage,
    unpack_position,
    unpack_recovering,
)
from palisade.vault.projection import Old, Projection, old_of, project
from palisade.vault.staging import VaultStaging
from palisade.vault.tables import Backend, Changes, Pause, VaultTable

POSITION, LINEAGE, RECOVERING = b"position", b"lineage", b"recovering"
PLAN, PLAN_DONE = b"plan", b"plan-done"
PLAN_DUE = b""
"""Stands for a plan that is yet to be made."""
META = VaultTable.META
FIND_PIECE = 128
"""Maximum old entries in memory at once."""
DIFFERENCE_BYTES, DIFFERENCE_PIECE = 4 << 20, 16
"""About this much is passed to listeners at once."""


class Vault:
    """Owns its backend. Raises VaultDamaged.

    `page`: the fence page of its readers, updated after each commit that they can see.
    """

    def __init__(self, backend: Backend, page: FencePage | None = None) -> None:
        self.backend = backend
        self.page = page
        self.lineage: VaultLineage | None = unpack_lineage(backend.get(META, LINEAGE))
        self.position: VaultPosition = unpack_position(backend.get(META, POSITION))
        self.recovering: Recovering | None = unpack_recovering(backend.get(META, RECOVERING))
        self.sums: Sums = load_sums(backend)
        self.staging = VaultStaging(backend, page, self.revision, whole=self.recovering is None)

    @property
    def revision(self) -> int:
        """LV: the last applied revision. 0 for a new vault."""
        return self.position.revision

    @property
    def chain(self) -> bytes:
        """The chain digest at LV."""
        return self.position.chain

    @property
    def key_count(self) -> int:
        return self.position.keys

    def packed_sums(self) -> bytes:
        """The 4,096 bucket digests of the present content."""
        return pack_sums(self.sums)

    # Reads

    def get(self, key: bytes) -> Item | None:
        """Raises VaultRecovering, VaultDamaged."""
        self._require_readable()
        entry = self.entry(key)
        return None if entry is None else item_of(entry)

    def range(self, start: bytes, end: bytes | None = None) -> Iterator[Item]:
        """Every live key with start <= key < end (None: to the last), in order, of one moment."""
        self._require_readable()
        return (item_of(entry) for _, entry in self.entries(start, end))

    def _require_readable(self) -> None:
        if self.recovering is not None:
            raise VaultRecovering(
                f"the vault is between revision {self.revision} and {self.recovering.target}, because a snapshot was "
                "not finished: start the node in its cluster to finish it"
            )

    def entry(self, key: bytes) -> bytes | None:
        """The stored entry, also while a snapshot is being applied."""
        stored = stored_key(key)
        entry = self.backend.get(VaultTable.ENTRY, stored)
        if entry is not None and stored is not key and item_of(entry).key != key:
            return None
        return entry

    def entries(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """(key, entry) as stored, also while a snapshot is being applied."""
        entries = self.backend.scan(VaultTable.ENTRY, stored_start(start), stored_end(end))
        return in_order(entries, start, end, opened=with_key)

    def key_pages(self, start: bytes, end: bytes | None, size: int) -> Iterator[list[bytes]]:
        """Every key with start <= key < end, nearly in order, unverified, also while a snapshot is being applied."""
        for page in self.backend.key_pages(VaultTable.ENTRY, stored_start(start), stored_end(end), size):
            keys = page if LONG_BYTES not in map(len, page) else [self._whole_key(stored) for stored in page]
            if stored_start(start) != start or stored_end(end) != end:
                keys = [key for key in keys if key >= start and (end is None or key < end)]
            yield keys

    def _whole_key(self, stored: bytes) -> bytes:
        return stored if len(stored) != LONG_BYTES else key_of(self.backend.get(VaultTable.ENTRY, stored) or b"")

    # The node's own data

    def config(self) -> dict[str, bytes]:
        """The local configuration. It has no data of the cluster, and no snapshot changes it."""
        return {name.decode(): value for name, value in self.backend.scan(VaultTable.CONFIG, b"", None)}

    def set_config(self, values: dict[str, bytes | None]) -> None:
        """Sets all values in one commit; None removes one."""
        self.backend.commit({VaultTable.CONFIG: {name.encode(): value for name, value in values.items()}})

    def claim(self, lineage: VaultLineage) -> None:
        """Set the lineage, once. Raises VaultForeign if the vault has another one."""
        if self.lineage == lineage:
            return
        if self.lineage is not None:
            raise VaultForeign(f"the vault is of {self.lineage}, not of {lineage}: give the node its own, or {RESET}")
        self.backend.commit({META: {LINEAGE: pack_lineage(lineage)}})
        self.lineage = lineage

    def plan(self) -> tuple[bytes, int] | None:
        """The plan of an unfinished eviction, and how many of its steps are done; None: there is none.

        PLAN_DUE if it is yet to be made: every snapshot leaves that, in the commit that moves LV.
        """
        plan = self.backend.get(META, PLAN)
        return None if plan is None else (plan, int.from_bytes(self.backend.get(META, PLAN_DONE) or b"", "big"))

    def store_plan(self, plan: bytes | None) -> None:
        """None: the eviction is finished."""
        self.backend.commit({META: {PLAN: plan, PLAN_DONE: None}})

    def plan_step_done(self, done: int) -> None:
        self.backend.commit({META: {PLAN_DONE: done.to_bytes(4, "big")}})

    # The change feed

    def apply(self, revisions: Sequence[Revision]) -> None:
        """LV + 1, LV + 2 ... in one commit. Raises VaultGap, VaultDiverged, VaultUnusable: then nothing has changed."""
        if revisions:
            self.adopt(self.prepare(revisions))

    def prepare(self, revisions: Sequence[Revision]) -> Projection:
        """The effect of `apply`. A caller that passes revisions to listeners first verifies them with this. Same
        errors.
        """
        self._require_readable()
        done = project(revisions, self.position, self.sums, self._find)
        if done.position.keys < 0:
            raise VaultDiverged(f"up to revision {done.position.revision} more keys are deleted than exist: {RESET}")
        return done

    def adopt(self, done: Projection) -> None:
        """Commit a projection that was prepared on the present state. Raises VaultUngated, VaultUnusable."""
        superseded = self.staging.superseded(done.position.revision)
        self.backend.commit(
            {
                VaultTable.ENTRY: done.entries,
                VaultTable.BUCKET: pages_of(done.sums, done.buckets),
                VaultTable.PENDING: superseded,
                META: {POSITION: pack_position(done.position)},
            }
        )
        self.sums, self.position = done.sums, done.position
        self.staging.moved(self.revision, superseded, done.entries)

    def _find(self, stored: Sequence[bytes]) -> dict[bytes, Old]:
        found: dict[bytes, Old] = {}
        ordered = sorted(stored)
        for begin in range(0, len(ordered), FIND_PIECE):
            entries = self.backend.get_many(VaultTable.ENTRY, ordered[begin : begin + FIND_PIECE])
            found |= {key: old_of(entry) for key, entry in entries.items()}
        return found

    async def leap(
        self,
        entries: Callable[[], Iterator[Mapping[bytes, bytes | None]]],
        position: VaultPosition,
        sums: Sums,
        pause: Pause,
    ) -> None:
        """Move to a later revision in one commit, made in slices; reads see the old LV until then.

        `entries`: in slices and by stored key, the state at that revision of every key that has changed since LV; other
        keys may be included. `sums` and `position`: those of the cluster there. Raises VaultUngated, VaultUnusable.
        """
        self._require_readable()
        if position.revision <= self.revision:
            raise VaultGap(f"revision {position.revision} is not after revision {self.revision}, the vault's revision")

        superseded = self.staging.superseded(position.revision)
        position = replace(position, content=content_of(sums))

        def slices() -> Iterator[Changes]:
            for rows in entries():
                yield {VaultTable.ENTRY: rows}
            yield {
                VaultTable.BUCKET: pages_of(sums, range(BUCKETS)),
                VaultTable.PENDING: superseded,
                META: {POSITION: pack_position(position)},
            }

        self.staging.leap_begins()
        try:
            await self.backend.commit_in_slices(slices, pause)
            self.sums, self.position = sums, position
            self.staging.moved(position.revision, superseded)
        finally:
            self.staging.leap_ends()

    def commit(self, changes: Changes, cleared: Sequence[VaultTable] = ()) -> None:
        """For the writers of this package; the caller updates the attributes afterwards."""
        self.backend.commit(changes, cleared)

    # Changes made by a difference, for the listeners of a running node

    def difference(self, limit: int = 1000) -> tuple[list[VaultEvent], bytes | None]:
        """Up to `limit` keys that a difference has changed, as events, and the position reached; None: no more follow.

        Fewer if they are large. A key with the same value as before is not an event. Call `forget_difference` to get
        the next ones.
        """
        rows = self.backend.scan(VaultTable.DIFFERENCE, b"", None)
        events, seen, size, until = list[VaultEvent](), 0, 0, b""
        while seen < limit and size < DIFFERENCE_BYTES:
            piece = list(islice(rows, min(DIFFERENCE_PIECE, limit - seen)))
            if not piece:
                return events, None
            now = self.backend.get_many(VaultTable.ENTRY, [stored for stored, _ in piece])
            for until, old in piece:
                new = now.get(until, b"")
                size += len(old) + len(new)
                if new != old:
                    events.append(self._event(old, new))
            seen += len(piece)
        return events, until

    def _event(self, old: bytes, new: bytes) -> VaultEvent:
        before = item_of(old) if old else None
        after = item_of(new) if new else None
        known = after or before
        if known is None:
            raise VaultDiverged(f"the difference of the vault has a key that never existed: {RESET}")
        return VaultEvent(known.key, after.mod_revision if after else self.revision, after, before)

    @property
    def has_difference(self) -> bool:
        """Whether listeners must still receive a difference."""
        return any(self.backend.key_pages(VaultTable.DIFFERENCE, b"", None, 1))

    def forget_difference(self, until: bytes | None = None) -> None:
        """The listeners have received it up to `until`, as returned by `difference`; None: all of it."""
        if until is not None:
            delivered = self.backend.key_pages(VaultTable.DIFFERENCE, b"", until + b"\0", 1_000)
            self.commit({VaultTable.DIFFERENCE: dict.fromkeys(chain.from_iterable(delivered))})
        elif self.has_difference:
            self.commit({}, cleared=(VaultTable.DIFFERENCE,))

    def close(self) -> None:
        """Everything is on the disk on return."""
        self.backend.close()
