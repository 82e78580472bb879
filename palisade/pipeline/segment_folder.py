"""The files of ingested segments, in a folder that the driver, all workers and the data nodes reach.

    <folder>/<cluster id>/<data source>/<run>/<start>-<partition>-<digest>.parquet
    <folder>/<cluster id>/<data source>/<run>/rejects-<part of the input>.jsonl

A *run* is the fencing token of the lock under which an ingest runs, so a later run has a higher number. Only the tasks
of a run write its files, named by their content and renamed when they are complete: a repeated task replaces a file by
an equal one. An abandoned run can publish nothing once a later one holds the lock, so files of earlier runs that no
record names are deleted, without regard to their age. An attempt of a task that Spark has given up may write its file
after its run was swept: the next ingest deletes it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from palisade.base.durable_files import sync_directory, sync_file
from palisade.base.file_url import BadFileUrl, path_of_url, url_of_path
from palisade.pipeline.errors import BadOption

RUN_DIGITS = 16
PARQUET, REJECTS = ".parquet", "rejects-"


@dataclass(frozen=True, slots=True)
class SegmentFolder:
    """Of one data source in one cluster. `path` is absolute."""

    path: str

    def run(self, number: int) -> Path:
        return Path(self.path, f"{number:0{RUN_DIGITS}}")

    def has(self, url: str) -> bool:
        """Whether it is a file here."""
        return url.startswith(url_of_path(self.path) + "/") and os.path.isfile(path_of_url(url))

    def sweep(self, until: int, named: Collection[str]) -> int:
        """Deletes the segments of runs up to `until` whose URLs are not in `named`, and what their tasks and drivers
        left half done. Rejects stay. Returns the number of deleted segments."""
        return sum(_sweep_run(folder, named) for folder in self._runs() if int(folder.name) <= until)

    def _runs(self) -> Iterator[Path]:
        if os.path.isdir(self.path):
            yield from sorted(each for each in Path(self.path).iterdir() if each.name.isdecimal())


def _sweep_run(folder: Path, named: Collection[str]) -> int:
    deleted = 0
    for file in folder.iterdir():
        is_segment = file.name.endswith(PARQUET)
        if file.name.startswith(REJECTS) or (is_segment and url_of_path(str(file)) in named):
            continue
        file.unlink(missing_ok=True)
        deleted += is_segment
    if not any(folder.iterdir()):
        folder.rmdir()
    return deleted


def folder_of(to: str, cluster_id: str, data_source: str) -> SegmentFolder:
    """`to`: a `file:` URL or an absolute path. Raises BadOption."""
    try:
        path = to if to.startswith("/") else path_of_url(to)
    except BadFileUrl as error:
        raise BadOption(f"option to: {error}; give a folder that all workers and data nodes reach") from None
    return SegmentFolder(os.path.join(os.path.normpath(path), cluster_id, data_source))


def sync_run(run: Path) -> None:
    """Make the files of a run durable, and the directories above it: the first file of a cluster, of a data source or
    of a run creates them."""
    data_source, cluster, folder, *_ = run.parents
    for each in (run, data_source, cluster, folder):
        sync_directory(each)


def write_file(folder: Path, name: str, content: bytes) -> str:
    """Atomic, and durable once its run is synced. Returns the URL. Attempts of one task may run at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    incoming = folder / f".{name}.{secrets.token_hex(6)}"
    try:
        with open(incoming, "xb") as file:
            file.write(content)
            sync_file(file)
        os.replace(incoming, folder / name)
    except BaseException:
        incoming.unlink(missing_ok=True)
        raise
    return url_of_path(str(folder / name))


def remove_file(url: str) -> bool:
    """Whether it was there. Raises OSError, BadFileUrl."""
    try:
        os.unlink(path_of_url(url))
    except FileNotFoundError:
        return False
    return True
