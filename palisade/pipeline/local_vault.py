"""Reads the rows of a state from the vault of a node on the same machine, instead of over the network.

Guarantee: the rows at revision R, or VaultNotRead. A slice of the vault is taken through the node's fence, so it is
the released state of the cluster at its LV; it is used if LV is at R or later and the lineage is that of R. The changes
after R, which any node returns while R is pinned, are undone (`undo.py`).

The vault's files are protected by the permissions of the operating system; the pin and the changes need the right to
read the range, as over the network.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from palisade.base.lmdb_env import raw_pages
from palisade.base.long_keys import stored_start
from palisade.client.sync_client import SyncClient
from palisade.metastore.lineage import Lineage
from palisade.metastore.mvcc import end_of
from palisade.pipeline.errors import VaultNotRead
from palisade.pipeline.partitions import ReadPart
from palisade.pipeline.undo import Undo
from palisade.pipeline.vault_rows import VaultRows
from palisade.vault.errors import Fenced, UnknownPages, VaultError
from palisade.vault.read_policies import Unreachable
from palisade.vault.reader import VaultReader
from palisade.vault.slices import STRIDE, VaultSlice, samples_of, samples_of_pages, slice_of
from palisade.vault.snapshot_reads import VaultSnapshot
from palisade.wire.scan_pages import ChangePosition, changes_of

T = TypeVar("T")
PATIENCE_S, PAUSE_S = 3.0, 0.02
"""Maximum wait for a vault that must not be read now, and the pause between two attempts."""


def open_local(folders: Sequence[str], revision: int, timeout_s: float) -> VaultReader:
    """The first vault that can be read and reaches the revision in time. Raises VaultNotRead."""
    reasons = []
    for folder in folders:
        if not os.path.isdir(folder):
            reasons.append(f"{folder} is no folder on this machine that this process may read")
            continue
        try:
            return _opened(folder, revision, timeout_s)
        except (VaultNotRead, VaultError) as error:
            reasons.append(f"{folder}: {error}")
    raise VaultNotRead("no vault can be read: " + "; ".join(reasons))


def _opened(folder: str, revision: int, timeout_s: float) -> VaultReader:
    """Raises VaultNotRead, VaultError. A vault whose node is down delays the read by at most `PATIENCE_S`."""
    reader = VaultReader(folder)
    try:
        _when_trusted(reader, lambda snapshot: snapshot.lv)
        reader.wait_for(revision, timeout_s)
    except BaseException:
        reader.close()
        raise
    return reader


def local_samples(folders: Sequence[str], key: bytes, range_end: bytes) -> tuple[int, list[bytes]] | None:
    """About how many keys [key, range_end) has, and samples by which it can be divided, from the first of the vaults
    that can be read now. None: there is none. They are of no certain revision: divided anywhere, a range has the same
    rows."""
    for folder in folders:
        try:
            with closing(VaultReader(folder)) as reader:
                start, end = stored_start(key), end_of(range_end)
                return _samples_of_pages(reader, Path(folder), start, end) or _counted(reader, start, end)
        except VaultError:
            continue
    return None


def _samples_of_pages(
    reader: VaultReader, folder: Path, start: bytes, end: bytes | None
) -> tuple[int, list[bytes]] | None:
    """None: the keys are to be counted. Raises VaultError."""
    with suppress(UnknownPages, OSError), raw_pages(folder) as read:
        return _now(reader, partial(samples_of_pages, read=read, start=start, end=end))
    return None


def _counted(reader: VaultReader, start: bytes, end: bytes | None) -> tuple[int, list[bytes]]:
    """Raises VaultError."""
    found = list[bytes]()
    at: bytes | None = start
    while at is not None:
        samples, at = _now(reader, partial(samples_of, start=at, end=end))
        found += samples
    return len(found) * STRIDE, found


def _now(reader: VaultReader, read: Callable[[VaultSnapshot], T]) -> T:
    """Raises VaultError, also if the vault must not be read now."""
    found = reader.trusted(read)
    if isinstance(found, Unreachable):
        raise Fenced(found.reason)
    return found


def vault_pages(
    reader: VaultReader,
    client: SyncClient,
    part: ReadPart,
    lineage: Lineage,
    renew: Callable[[], None],
    *,
    values: bool = True,
) -> Iterator[tuple[VaultRows, bytes | None]]:
    """The rows of a part of a state, slice by slice, each with the key at which the next one begins. `values` False:
    values are not needed, and may be empty. Raises VaultNotRead, and the errors of `scan_changes`."""
    undo, known, end = Undo(), part.last, end_of(part.range_end)
    at: bytes | None = part.key
    while at is not None:
        renew()
        found = _slice(reader, at, end, part.last, lineage)
        if found.revision > known:
            position: ChangePosition | None = ChangePosition(known + 1)
            while position is not None:
                page, position = client.scan_changes(
                    at, part.range_end, position, found.revision, lineage, values=values
                )
                undo.add(changes_of(page))
            known = found.revision
        at = found.until
        yield VaultRows(*undo.rows(found.page, found.sizes, at)), at


def _slice(reader: VaultReader, at: bytes, end: bytes | None, revision: int, lineage: Lineage) -> VaultSlice:
    found = _when_trusted(reader, lambda snapshot: slice_of(snapshot, at, end))
    own = found.lineage
    if own is None or (own.cluster_id, own.generation) != (lineage.cluster_id, lineage.generation):
        raise VaultNotRead(f"the vault is of {own}, the read of {lineage}")
    if found.revision < revision:
        raise VaultNotRead(f"the vault was reset: it is at revision {found.revision}, the read at {revision}")
    return found


def _when_trusted(reader: VaultReader, read: Callable[[VaultSnapshot], T]) -> T:
    """Waits for a vault that catches up, or whose lease is renewed late."""
    ends_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            found = reader.trusted(read)
        except VaultError as error:
            raise VaultNotRead(str(error)) from error
        if not isinstance(found, Unreachable):
            return found
        if time.monotonic() >= ends_s:
            raise VaultNotRead(found.reason)
        time.sleep(PAUSE_S)
