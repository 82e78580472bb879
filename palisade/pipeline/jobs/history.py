"""The change feed becomes an archive: changes, and a table of all versions of each key (issue 18, P4)."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any

from palisade.base.counted import counted
from palisade.pipeline.archive_folder import ArchiveFolder, local_path
from palisade.pipeline.archive_frames import Frames
from palisade.pipeline.archive_run import ArchiveRun
from palisade.pipeline.archiving import Archived, Plan, archive
from palisade.pipeline.cluster import connect
from palisade.pipeline.errors import BadOption
from palisade.pipeline.job import Job, Progress, Report, option, source_options
from palisade.pipeline.local_folder import require_folder
from palisade.pipeline.options import ClusterAccess, read_options

MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    to: str = option("Folder of the archive, a path or file:///...; the driver and all workers must reach it.")
    batch_revisions: int = option(
        "Maximum revisions of one step; after each step the archive is complete up to its end.", 100_000
    )
    merge_rows: int = option(
        "Merge adjacent folders with at most this number of rows in total; 0: do not merge.", 100_000
    )
    keep_hours: float = option(
        "Hours for which replaced files are kept, for readers that began before the replacement.", 24.0
    )

    def __post_init__(self) -> None:
        """Raises BadOption."""
        local_path(self.to)
        if self.batch_revisions < 1 or self.merge_rows < 0 or self.keep_hours < 0:
            raise BadOption("option batch_revisions is at least 1, merge_rows and keep_hours at least 0")


def check(access: ClusterAccess, options: HistoryOptions) -> None:
    folder = local_path(options.to)
    require_folder(folder)
    ArchiveFolder(folder).prepare()


def run(spark: Any, access: ClusterAccess, options: HistoryOptions, progress: Progress) -> Report:
    folder = ArchiveFolder(local_path(options.to))
    folder.prepare()
    frames = Frames(spark, folder.path, source_options(access))
    plan = Plan(
        options.batch_revisions,
        options.merge_rows,
        round(options.keep_hours * MS_PER_HOUR),
        lambda: secrets.token_hex(4),
        lambda: time.time_ns() // 1_000_000,
    )
    with connect(access) as client:
        archived = ArchiveRun(client, read_options(source_options(access)), folder, frames, progress).run(archive(plan))
    return report_of(archived, str(folder.path))


def report_of(archived: Archived, folder: str) -> Report:
    manifest = archived.manifest
    fields = {
        "folder": folder,
        "archive": manifest.archive,
        "base": manifest.base,
        "last": manifest.last,
        "changes": archived.changes,
        "versions_ended": archived.ended,
        "merged": archived.merged,
        "removed": archived.removed,
    }
    text = (
        f"{folder} has the state at revision {manifest.base} and the changes up to revision {manifest.last}: "
        f"{counted(archived.changes, 'new change')}, {counted(archived.ended, 'version')} ended"
    )
    return Report(fields, text)


JOB = Job(
    "history",
    "Archive the history to Parquet.\n\nEach run extends the archive in --to up to the newest revision. A watermark in "
    "the store keeps automatic compaction from passing the archive, up to the nodes' --retention-hold-revisions. "
    "`palisade.pipeline.history.at` reads the state at any archived revision.",
    HistoryOptions,
    run,
    check=check,
)
