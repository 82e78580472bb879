"""Reads across the archive of the job `history` and the live store, with one answer.

from palisade.pipeline import history

state = history.at(spark, "/data/archive", revision, endpoints="127.0.0.1:7601")
"""

from __future__ import annotations

from typing import Any

from palisade.pipeline.archive_folder import ArchiveFolder, local_path
from palisade.pipeline.archive_frames import Frames, state_at
from palisade.pipeline.archive_manifest import ArchiveRefused, check_lineage, pieces_at
from palisade.pipeline.cluster import connect, current
from palisade.pipeline.options import read_options


def at(spark: Any, folder: str, revision: int, endpoints: str = "", **options: str) -> Any:
    """A DataFrame of the state at `revision`: key, value (bytes), revision, create_revision, version, lease.

    Up to the last archived revision it is read from the archive, else from the cluster. `endpoints` empty: from the
    archive only. `options`: credentials, as of `format("palisade")`. Raises ArchiveRefused for a revision that neither
    has, and for an archive of another cluster or history; the errors of the client."""
    archive = ArchiveFolder(local_path(folder))
    manifest = archive.newest()
    source = options | ({"endpoints": endpoints} if endpoints else {})
    if endpoints:
        read = read_options(source)
        with connect(read.access) as client:
            check_lineage(manifest, current(client, read).lineage)
    if not endpoints or revision <= (manifest.last or 0):
        return state_at(Frames(spark, archive.path, source), pieces_at(manifest, revision), revision)
    if revision < 1:
        raise ArchiveRefused(f"{revision} is no revision: they begin with 1")
    live = {"revision": str(revision), "keyType": "binary", "valueType": "binary"}
    return spark.read.format("palisade").options(**source, **live).load()


def versions(spark: Any, folder: str) -> Any:
    """All versions of all keys from the base of the archive on: `valid_from_revision`, `valid_to_revision` (exclusive,
    null while valid), and their times."""
    archive = ArchiveFolder(local_path(folder))
    manifest = archive.newest()
    frames = Frames(spark, archive.path, {})
    ended = frames.read("versions", [piece.folder for piece in manifest.versions if piece.rows])
    valid = frames.read("current", [manifest.current] if manifest.current else [])
    return ended.unionByName(valid, allowMissingColumns=True)


def changes(spark: Any, folder: str) -> Any:
    """All archived changes, with the columns of the history."""
    archive = ArchiveFolder(local_path(folder))
    manifest = archive.newest()
    return Frames(spark, archive.path, {}).read("changes", [each.folder for each in manifest.changes if each.rows])
