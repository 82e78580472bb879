"""A snapshot by difference on its way into the vault: chunk by chunk, behind a mark, at the end another LV (R5, R11).

Every chunk is one commit: its entries, the sums, how far it came (`Recovering.coverage`), and, where listeners have
to be told, what was there before. A crash keeps the chunks that are there. The last commit moves LV and takes the mark
away, and only if every bucket adds up to what the cluster says: so the content is then the cluster's, whatever was
there before.
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
    """One at a time. `tell`: what changes is kept for listeners that run (`Vault.difference`)."""

    def __init__(self, vault: Vault, target: int, *, tell: bool) -> None:
        """Mark the vault; a mark that is there keeps what it has. Raises VaultGap for a target before what is there."""
        known = vault.recovering
        highest = max(vault.revision, known.highest if known else 0)
        if target < highest:
            raise VaultGap(f"a snapshot of revision {target} can't replace what is there of revision {highest}")
        self._vault = vault
        self._tell = tell
        mark = known.towards(target) if known else begun(vault.revision, target)
        fresh = known is None or not tell
        vault.staging.between_revisions()
        vault.commit({META: {RECOVERING: pack_recovering(mark)}}, cleared=(VaultTable.DIFFERENCE,) if fresh else ())
        vault.recovering = mark
        vault.staging.committed(whole=False)

    @property
    def mark(self) -> Recovering:
        if self._vault.recovering is None:
            raise VaultGap("this snapshot is finished: begin another one")
        return self._vault.recovering

    def differing(self, theirs: Sums) -> tuple[int, ...]:
        """The buckets that do not add up to the cluster's yet."""
        return differing(self._vault.sums, theirs)

    def put(self, rows: Iterable[bytes], start: bytes, until: bytes | None) -> int:
        """The bodies of every live key of its buckets from `start` up to `until`. How many were new."""
        return self._write(rows, (), self.mark.covered(start, until))

    def repair(self, rows: Iterable[bytes], gone: Iterable[bytes]) -> int:
        """Put these, delete those; the coverage stays. How many entries have changed."""
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
                VaultTable.DIFFERENCE: self._told(entries, old),
                META: {POSITION: pack_position(position), RECOVERING: pack_recovering(mark)},
            }
        )
        vault.sums, vault.position, vault.recovering = sums, position, mark
        vault.staging.committed(whole=False)
        return len(entries)

    def _checked(self, body: bytes) -> bytes:
        item = item_of(body) if is_body(body) else None
        if item is None or not item.version or not 0 < item.mod_revision <= self.mark.target:
            raise VaultDiverged(f"a row of the snapshot of revision {self.mark.target} is not whole: ask for it again")
        return body

    def _told(self, entries: Mapping[bytes, bytes | None], old: Mapping[bytes, bytes]) -> dict[bytes, bytes | None]:
        """What was there before the first change of each key."""
        if not self._tell or not entries:
            return {}
        known = self._vault.backend.get_many(VaultTable.DIFFERENCE, list(entries))
        return {stored: old.get(stored, b"") for stored in entries if stored not in known}

    def finish(self, chain: bytes, theirs: Sums) -> None:
        """LV is the target from now on, and an eviction is due. Raises VaultDiverged while a bucket does not add up."""
        vault, target = self._vault, self.mark.target
        wrong = self.differing(theirs)
        if wrong:
            raise VaultDiverged(
                f"{len(wrong)} buckets of the snapshot of revision {target} do not add up, the first is {wrong[0]}"
            )
        position = VaultPosition(target, chain, vault.position.keys, content_of(vault.sums))
        plan = vault.backend.get(META, PLAN) or PLAN_DUE
        superseded = vault.staging.superseded(target)
        vault.commit(
            {META: {POSITION: pack_position(position), RECOVERING: None, PLAN: plan}, VaultTable.PENDING: superseded}
        )
        vault.position, vault.recovering = position, None
        vault.staging.moved(target, superseded)
