"""Executes the steps of `archiving.py`: the client, the folder of the archive and Spark."""

from __future__ import annotations

from typing import Any

from palisade.base.counted import counted, revision_range
from palisade.client.sync_client import SyncClient
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put
from palisade.metastore.watermarks import PREFIX, watermark_of, watermark_value
from palisade.pipeline.archive_folder import ArchiveFolder
from palisade.pipeline.archive_frames import Frames
from palisade.pipeline.archive_manifest import ArchiveManifest
from palisade.pipeline.archiving import (
    Archived,
    ListFolders,
    Look,
    Merge,
    Publish,
    RaiseWatermark,
    ReadManifests,
    Remove,
    Step,
    Steps,
    WriteBase,
    WriteChanges,
    WriteVersions,
)
from palisade.pipeline.cluster import current
from palisade.pipeline.job import Progress
from palisade.pipeline.options import ReadOptions

ROWS_PER_FILE = 1_000_000


class ArchiveRun:
    def __init__(
        self, client: SyncClient, read: ReadOptions, folder: ArchiveFolder, frames: Frames, progress: Progress
    ) -> None:
        self._client, self._read, self._folder, self._frames = client, read, folder, frames
        self._progress = progress

    def run(self, steps: Steps) -> Archived:
        """Raises PipelineError, OSError and the errors of the client."""
        step = next(steps)
        while True:
            answer = self._do(step)
            try:
                step = steps.send(answer)
            except StopIteration as end:
                found: Archived = end.value
                return found

    def _do(self, step: Step) -> Any:
        match step:
            case Look():
                return current(self._client, self._read)
            case ReadManifests():
                return self._folder.manifests()
            case Publish(manifest):
                return self._folder.publish(manifest)
            case RaiseWatermark(manifest, revision):
                return raise_watermark(self._client, manifest, revision)
            case ListFolders():
                return self._folder.folders()
            case Remove(folders, manifests):
                return self._folder.remove(folders, manifests)
        return self._write(step)

    def _write(self, step: Step) -> Any:
        frames = self._frames
        match step:
            case WriteBase(revision, folder):
                self._progress(f"archive the state at revision {revision}")
                rows = frames.write_base(revision, folder)
                self._folder.finish(folder)
                return rows
            case WriteChanges(first, last, folder):
                self._progress(f"archive the changes of {revision_range(first, last)}")
                rows = frames.write_changes(first, last, folder)
                self._folder.finish(folder)
                return rows
            case WriteVersions(before, changes, ended, valid):
                counts = frames.write_versions(before, changes, ended, valid)
                self._folder.finish(ended)
                self._folder.finish(valid)
                return counts
            case Merge(folders, folder):
                self._progress(f"merge {counted(len(folders), 'folder')}")
                frames.merge(folders, folder, ROWS_PER_FILE)
                self._folder.finish(folder)
                return None
        raise TypeError(f"no step of an archive: {step}")


def raise_watermark(client: SyncClient, manifest: ArchiveManifest, revision: int) -> int:
    """Raises the watermark, never lowers it. Returns the revision of the last write of its key."""
    key = PREFIX + manifest.archive.encode()
    while True:
        held = client.get(key)
        if held is not None and (watermark_of(held.value, manifest.lineage) or 0) >= revision:
            return held.mod_revision
        unchanged = Compare(key, CompareTarget.MOD, CompareResult.EQUAL, held.mod_revision if held else 0)
        done = client.txn([unchanged], [Put(key, watermark_value(revision, manifest.lineage).encode())])
        if done.succeeded:
            return done.revision
