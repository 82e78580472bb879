"""A snapshot by difference that is being applied to the vault: chunk by chunk, under a mark, finally at a new LV (R5,
R11).

Every chunk is one commit: its entries, the sums, the progress (`Recovering.coverage`), and, if listeners must be
informed, the previous values. Committed chunks survive a crash. The last commit moves LV and removes the mark, only if
every bucket sum equals the cluster's: the content is then the cluster's, whatever the vault held before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from palisade.base.digest import Sums, content_after, content_of, differing, leaf_of, replace_leaf
from palisade.base.long_keys import stored_key
from palisade.vault.bucket_pages import pages_of
from palisade.vault.change import is_body, item_of, key_of
from palisade.vault.errors import VaultDiverged, VaultGap
from palisade.vault.position import Recovering, VaultPosition, begun, pack_position, pack_recovering
from palisade.vault.tables import VaultTable
from palisade.vault.vault import META, PLAN, PLAN_DUE, POSITION, RECOVERING, Vault


class Incoming:
    """At most one at a time. `notify`: keep the changes for running listeners (`Vault.difference`)."""

    def __init__(self, vault: Vault, target: int, *, notify: bool) -> None:
        """Mark the vault; an existing mark keeps its coverage. Raises VaultGap if `target` is below the present
        content.
        """
        known = vault.recovering
        highest = max(vault.revision, known.highest if known else 0)
        if target < highest:
            raise VaultGap(f"a snapshot of revision {target} can't replace content of revision {highest}")
        self._vault = vault
        self._notify = notify
        mark = known.towards(target) if known else begun(vault.revision, target)
        fresh = known is None or not notify
        vault.staging.between_revisions()
        vault.commit({META: {RECOVERING: pack_recovering(mark)}}, cleared=(VaultTable.DIFFERENCE,) if fresh else ())
        vault.recovering = mark
        vault.staging.committed(whole=False)

    @property
    def mark(self) -> Recovering:
        if self._vault.recovering is None:
            raise VaultGap("this snapshot is finished: begin a new one")
        return self._vault.recovering

    def differing(self, theirs: Sums) -> tuple[int, ...]:
        """The buckets whose sums differ from the cluster's."""
        return differing(self._vault.sums, theirs)

    def put(self, rows: Iterable[bytes], start: bytes, until: bytes | None) -> int:
        """The bodies of all live keys of its buckets from `start` up to `until`. Returns how many were new."""
        return self._write(rows, (), self.mark.covered(start, until))

    def repair(self, rows: Iterable[bytes], gone: Iterable[bytes]) -> int:
        """Put and delete entries; the coverage stays. Returns how many entries changed."""
        return self._write(rows, gone, self.mark)

    def _write(self, rows: Iterable[bytes], gone: Iterable[bytes], mark: Recovering) -> int:
        vault = self._vault
        new = {stored_key(key_of(row)): row for row in map(self._checked, rows)}
        removed = {stored_key(key): key for key in gone}
        old = vault.backend.get_many(VaultTable.ENTRY, [*new, *removed])
        sums, buckets, keys = vault.sums.copy(), set(), vault.position.keys
        entries: dict[bytes, bytes | None] = {}
        for stored, body in new.items():
            before = old.get(stored)
            if before != body:
                entries[stored] = body
                keys += before is None
                buckets.add(replace_leaf(sums, key_of(body), leaf_of(before) if before else 0, leaf_of(body)))
        for stored, key in removed.items():
            before = old.get(stored)
            if before is not None and stored not in new:
                entries[stored] = None
                keys -= 1
                buckets.add(replace_leaf(sums, key, leaf_of(before), 0))
        content = content_after(vault.position.content, vault.sums, sums, buckets)
        position = VaultPosition(vault.revision, vault.chain, keys, content)
        vault.commit(
            {
                VaultTable.ENTRY: entries,
                VaultTable.BUCKET: pages_of(sums, buckets),
                VaultTable.DIFFERENCE: self._first_old(entries, old),
                META: {POSITION: pack_position(position), RECOVERING: pack_recovering(mark)},
            }
        )
        vault.sums, vault.position, vault.recovering = sums, position, mark
        vault.staging.committed(whole=False)
        return len(entries)

    def _checked(self, body: bytes) -> bytes:
        item = item_of(body) if is_body(body) else None
        if item is None or not item.version or not 0 < item.mod_revision <= self.mark.target:
            raise VaultDiverged(f"a row of the snapshot of revision {self.mark.target} is malformed: request it again")
        return body

    def _first_old(
        self, entries: Mapping[bytes, bytes | None], old: Mapping[bytes, bytes]
    ) -> dict[bytes, bytes | None]:
        """The value before the first change of each key."""
        if not self._notify or not entries:
            return {}
        known = self._vault.backend.get_many(VaultTable.DIFFERENCE, list(entries))
        return {stored: old.get(stored, b"") for stored in entries if stored not in known}

    def finish(self, chain: bytes, theirs: Sums) -> None:
        """Move LV to the target; an eviction is due then. Raises VaultDiverged while a bucket sum differs."""
        vault, target = self._vault, self.mark.target
        wrong = self.differing(theirs)
        if wrong:
            raise VaultDiverged(
                f"{len(wrong)} bucket sums of the snapshot of revision {target} differ from the cluster's, the first: "
                f"{wrong[0]}"
            )
        position = VaultPosition(target, chain, vault.position.keys, content_of(vault.sums))
        plan = vault.backend.get(META, PLAN) or PLAN_DUE
        superseded = vault.staging.superseded(target)
        vault.commit(
            {META: {POSITION: pack_position(position), RECOVERING: None, PLAN: plan}, VaultTable.PENDING: superseded}
        )
        vault.position, vault.recovering = position, None
        vault.staging.moved(target, superseded)
