"""How a run of the job `history` extends an archive, as steps that another module executes. Pure.

The order gives the guarantees. Folders are written before the manifest that names them is published; the watermark in
the store follows the manifest. Thus a crash between two steps leaves folders that no manifest names, or a watermark
that is too low: the next run begins after the newest manifest and raises the watermark first. The watermark is never
above what is archived, so automatic compaction within its bound removes nothing else.

A new archive first publishes a manifest without content. It has the name of the watermark, which must hold back
compaction before the state at the base is read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from palisade.pipeline.archive_manifest import (
    ArchiveManifest,
    Piece,
    Superseded,
    check_lineage,
    folder_name,
    garbage,
    merged,
    small_pieces,
)
from palisade.pipeline.errors import RevisionGone
from palisade.pipeline.offsets import Here


@dataclass(frozen=True, slots=True)
class Look:
    """The cluster now -> Here."""


@dataclass(frozen=True, slots=True)
class ReadManifests:
    """-> all manifests, the oldest first."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Create the manifest durably, unless one of its number or a later one exists -> whether it was created.

    Every folder that it names is durable before."""

    manifest: ArchiveManifest


@dataclass(frozen=True, slots=True)
class RaiseWatermark:
    """Raise the watermark of the archive to `revision`, never lower it -> revision of the last write of its key."""

    manifest: ArchiveManifest
    revision: int


@dataclass(frozen=True, slots=True)
class WriteBase:
    """Write the state at `revision` to `folder` -> rows."""

    revision: int
    folder: str


@dataclass(frozen=True, slots=True)
class WriteChanges:
    """Write the changes of `first` to `last` to `folder` -> rows."""

    first: int
    last: int
    folder: str


@dataclass(frozen=True, slots=True)
class WriteVersions:
    """From the versions valid before (`current`) and `changes`: write those that ended, and those that are valid
    after -> rows of both."""

    current: str | None
    changes: str
    ended: str
    valid: str


@dataclass(frozen=True, slots=True)
class Merge:
    """Write the rows of `folders` to `folder`, in few files."""

    folders: tuple[str, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class ListFolders:
    """-> the folders of the archive, also those that no manifest names."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove folders and old manifests, if they exist."""

    folders: tuple[str, ...]
    manifests: tuple[int, ...]


Step = (
    Look
    | ReadManifests
    | Publish
    | RaiseWatermark
    | WriteBase
    | WriteChanges
    | WriteVersions
    | Merge
    | ListFolders
    | Remove
)
Steps = Generator[Step, Any, "Archived"]


@dataclass(frozen=True, slots=True)
class Plan:
    """`merge_rows` 0: merge nothing. `name` returns a new unique name, `now_ms` the time."""

    batch_revisions: int
    merge_rows: int
    keep_ms: int
    name: Callable[[], str]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Archived:
    """`changes` and `ended`: rows that this run wrote. `merged`, `removed`: folders."""

    manifest: ArchiveManifest
    changes: int
    ended: int
    merged: int
    removed: int


def archive(plan: Plan) -> Steps:
    """Extend the archive to the newest revision. Raises ArchiveRefused, Superseded, RevisionGone."""
    manifests: list[ArchiveManifest] = yield ReadManifests()
    here: Here = yield Look()
    if manifests:
        manifest = manifests[-1]
        check_lineage(manifest, here.lineage)
    else:
        manifest = ArchiveManifest(plan.name(), here.lineage, 1, plan.now_ms())
        yield from _publish(manifest)
    if manifest.last is None:
        manifest = yield from _begin(plan, manifest, here.minimal_revision)
    last = _last(manifest)
    noted: int = yield RaiseWatermark(manifest, last)
    here = yield Look()
    if last < here.revision and last + 1 < here.minimal_revision:
        manifests = yield ReadManifests()
        if manifests[-1].number > manifest.number:
            raise _superseded(manifests[-1])
        raise RevisionGone(
            f"the archive ends at revision {last}, and the changes up to {here.minimal_revision - 1} were compacted "
            "before they were archived: run the job more often or raise --retention-hold-revisions of the nodes; "
            "continue in an empty folder"
        )
    changes = ended = 0
    until = last if noted == here.revision == last + 1 else here.revision
    while last < until:
        first, last = last + 1, min(until, last + plan.batch_revisions)
        manifest = yield from _extend(plan, manifest, first, last)
        yield RaiseWatermark(manifest, last)
        changes += manifest.changes[-1].rows
        ended += manifest.versions[-1].rows
    count = 0
    if plan.merge_rows:
        manifest, count = yield from _merge(plan, manifest)
    removed = yield from _sweep(plan)
    return Archived(manifest, changes, ended, count, removed)


def _publish(manifest: ArchiveManifest) -> Generator[Step, Any, None]:
    if not (yield Publish(manifest)):
        raise _superseded(manifest)


def _superseded(manifest: ArchiveManifest) -> Superseded:
    return Superseded(
        f"another run has published manifest {manifest.number} of the archive; what this run wrote since is not "
        "part of it: run one job per archive at a time, then run it again"
    )


def _begin(plan: Plan, manifest: ArchiveManifest, base: int) -> Generator[Step, Any, ArchiveManifest]:
    yield RaiseWatermark(manifest, base)
    here: Here = yield Look()
    base = max(base, here.minimal_revision)  # compaction may have passed it before the watermark was written
    folder = folder_name("current", base, base, plan.now_ms(), plan.name())
    rows: int = yield WriteBase(base, folder)
    begun = manifest.next(plan.now_ms(), base=base, last=base, current=folder if rows else None)
    yield from _publish(begun)
    return begun


def _extend(plan: Plan, manifest: ArchiveManifest, first: int, last: int) -> Generator[Step, Any, ArchiveManifest]:
    now_ms, name = plan.now_ms(), plan.name()
    folders = {kind: folder_name(kind, first, last, now_ms, name) for kind in ("changes", "versions", "current")}
    rows: int = yield WriteChanges(first, last, folders["changes"])
    step = WriteVersions(manifest.current, folders["changes"], folders["versions"], folders["current"])
    ended, valid = yield step
    extended = manifest.next(
        plan.now_ms(),
        last=last,
        changes=(*manifest.changes, Piece(folders["changes"], first, last, rows)),
        versions=(*manifest.versions, Piece(folders["versions"], first, last, ended)),
        current=folders["current"] if valid else None,
    )
    yield from _publish(extended)
    return extended


def _merge(plan: Plan, manifest: ArchiveManifest) -> Generator[Step, Any, tuple[ArchiveManifest, int]]:
    """Publishes one manifest for all merges, so that readers see either the old folders or the new ones."""
    found, count = {"changes": manifest.changes, "versions": manifest.versions}, 0
    for kind, pieces in list(found.items()):
        for run in small_pieces(pieces, plan.merge_rows):
            folder = folder_name(kind, run[0].first, run[-1].last, plan.now_ms(), plan.name())
            yield Merge(tuple(piece.folder for piece in run if piece.rows), folder)
            found[kind] = merged(found[kind], run, folder)
            count += len(run)
    if not count:
        return manifest, 0
    smaller = manifest.next(plan.now_ms(), **found)
    yield from _publish(smaller)
    return smaller, count


def _sweep(plan: Plan) -> Generator[Step, Any, int]:
    folders: list[str] = yield ListFolders()
    manifests: list[ArchiveManifest] = yield ReadManifests()
    found = garbage(manifests, folders, plan.now_ms(), plan.keep_ms)
    if found.folders or found.manifests:
        yield Remove(found.folders, found.manifests)
    return len(found.folders)


def _last(manifest: ArchiveManifest) -> int:
    return manifest.last if manifest.last is not None else 0
