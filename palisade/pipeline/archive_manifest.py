"""The parts of an archive of the history: numbered manifests, each a complete list of the archive's folders. Pure.

The newest manifest alone defines the archive. A folder is written completely before a manifest names it, and is never
changed afterwards; a folder that no manifest names is not part of the archive. Manifests are numbered and created
exclusively, so one of two concurrent runs fails, and the readers of a manifest see one state of the archive.

Every change is stored once: `changes` cover the revisions `base + 1` to `last` without gap or overlap. A valid version
of a key is in `current`; once it has ended, it is in `versions`, by the revision that ended it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from palisade.metastore.lineage import Lineage
from palisade.pipeline.errors import PipelineError

FORMAT = 1


class ArchiveRefused(PipelineError):
    """The archive belongs to another cluster or history, is damaged, or is being written by another run."""

    code = "archive-refused"


class Superseded(ArchiveRefused):
    """Another run has published the next manifest: what this run wrote is not part of the archive."""

    code = "archive-superseded"
    retry = True


@dataclass(frozen=True, slots=True)
class Piece:
    """A folder of Parquet files with the rows of the revisions `first` to `last`."""

    folder: str
    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class ArchiveManifest:
    """`base`: the revision of the state that the archive begins with; None until it is written. `last`: the last
    archived revision. `current`: the folder of the versions that are valid at `last`; None if there are none."""

    archive: str
    lineage: Lineage
    number: int
    written_ms: int
    base: int | None = None
    last: int | None = None
    changes: tuple[Piece, ...] = ()
    versions: tuple[Piece, ...] = ()
    current: str | None = None

    def next(self, written_ms: int, **fields: Any) -> ArchiveManifest:
        return replace(self, number=self.number + 1, written_ms=written_ms, **fields)

    def folders(self) -> set[str]:
        named = {piece.folder for piece in (*self.changes, *self.versions)}
        return named | ({self.current} if self.current else set())


def encode(manifest: ArchiveManifest) -> bytes:
    return json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1).encode()


def decode(content: bytes, where: str) -> ArchiveManifest:
    """Raises ArchiveRefused."""
    try:
        found = json.loads(content)
        form = found.pop("format")
        if form == FORMAT:
            for name in ("changes", "versions"):
                found[name] = tuple(Piece(**each) for each in found[name])
            return ArchiveManifest(**found | {"lineage": Lineage(**found["lineage"])})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ArchiveRefused(
            f"{where} is not a manifest of an archive: restore the file, or start a new archive"
        ) from None
    raise ArchiveRefused(f"{where} has format {form}, this version reads {FORMAT}: use the version that wrote it")


def check_lineage(manifest: ArchiveManifest, lineage: Lineage) -> None:
    """Raises ArchiveRefused for an archive of another cluster, or from before a restore."""
    if manifest.lineage != lineage:
        raise ArchiveRefused(
            f"the archive belongs to generation {manifest.lineage.generation} of cluster "
            f"{manifest.lineage.cluster_id!r}; this is generation {lineage.generation} of {lineage.cluster_id!r}, "
            "whose revisions are other changes: archive into an empty folder"
        )


def small_pieces(pieces: Sequence[Piece], rows_max: int) -> list[tuple[Piece, ...]]:
    """Runs of at least two adjacent pieces with at most `rows_max` rows together, to be merged."""
    runs: list[list[Piece]] = []
    rows = 0
    for piece in pieces:
        if runs and rows + piece.rows <= rows_max:
            runs[-1].append(piece)
            rows += piece.rows
        else:
            runs.append([piece])
            rows = piece.rows
    return [tuple(run) for run in runs if len(run) > 1]


def merged(pieces: Sequence[Piece], run: Sequence[Piece], folder: str) -> tuple[Piece, ...]:
    """`pieces` with one piece in the place of `run`."""
    whole = Piece(folder, run[0].first, run[-1].last, sum(piece.rows for piece in run))
    at = pieces.index(run[0])
    return (*pieces[:at], whole, *pieces[at + len(run) :])


def folder_name(kind: str, first: int, last: int, started_ms: int, token: str) -> str:
    """Unique by `token`, so a repeated or parallel run writes to another folder."""
    return f"{kind}/{first:020d}-{last:020d}-{started_ms}-{token}"


def started_ms(folder: str) -> int | None:
    """The time at which the writer of a folder began; None if the folder is not from an archive."""
    parts = folder.rpartition("/")[2].split("-")
    return int(parts[2]) if len(parts) == 4 and parts[2].isdecimal() else None


@dataclass(frozen=True, slots=True)
class Garbage:
    manifests: tuple[int, ...]
    folders: tuple[str, ...]


def garbage(manifests: Iterable[ArchiveManifest], folders: Iterable[str], now_ms: int, keep_ms: int) -> Garbage:
    """Folders and manifests that no reader and no writer of the last `keep_ms` uses.

    A reader uses the manifest that was the newest when it began, a writer the folders that it began.
    """
    known = sorted(manifests, key=lambda each: each.number)
    pairs = pairwise(known)
    old = {before.number for before, after in pairs if after.written_ms < now_ms - keep_ms}
    used = {folder for each in known if each.number not in old for folder in each.folders()}
    abandoned = []
    for folder in folders:
        began = started_ms(folder)
        if folder not in used and began is not None and began < now_ms - keep_ms:
            abandoned.append(folder)
    return Garbage(tuple(sorted(old)), tuple(sorted(abandoned)))


def pieces_at(manifest: ArchiveManifest, revision: int) -> list[str]:
    """The folders with the versions that were valid at `revision`; others ended before it. Raises ArchiveRefused."""
    if manifest.base is None or manifest.last is None or not manifest.base <= revision <= manifest.last:
        raise ArchiveRefused(f"the archive has the revisions {manifest.base} to {manifest.last}, not {revision}")
    found = [piece.folder for piece in manifest.versions if piece.last > revision and piece.rows]
    return found + ([manifest.current] if manifest.current else [])
