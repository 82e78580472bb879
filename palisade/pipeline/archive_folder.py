"""The folder of an archive: manifests, which appear completely or not at all, and folders of Parquet files.

It must be one file system that the driver and every worker mount at the same path: manifests are created by a hard
link, which fails if the number exists, and files are synced by the driver before a manifest names them. Object stores
support neither.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from palisade.base.durable_files import make_directory, sync_directory, sync_tree, write_synced
from palisade.pipeline.archive_manifest import ArchiveManifest, ArchiveRefused, decode, encode
from palisade.pipeline.local_folder import local_folder

KINDS = ("changes", "versions", "current")
MANIFESTS = "manifests"


def local_path(text: str) -> Path:
    """The folder of a path or file:// URL. Raises BadOption."""
    return local_folder(
        text, "that the driver and all workers can reach; object stores cannot create a manifest exclusively"
    )


class ArchiveFolder:
    """Every method raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Raises ArchiveRefused for a folder that has other content."""
        for name in (*KINDS, MANIFESTS):
            make_directory(self.path / name)
        others = {each.name for each in self.path.iterdir()} - {*KINDS, MANIFESTS}
        if others:
            raise ArchiveRefused(f"{self.path} has other content ({sorted(others)[0]}): give an empty folder")

    def manifests(self) -> list[ArchiveManifest]:
        """All manifests, oldest first. Raises ArchiveRefused for a damaged one."""
        found = []
        for path in self._manifest_files():
            with suppress(FileNotFoundError):
                found.append(decode(path.read_bytes(), str(path)))
        return found

    def newest(self) -> ArchiveManifest:
        """Raises ArchiveRefused."""
        found = self.manifests()
        if not found:
            raise ArchiveRefused(f"{self.path} has no archive: `palisade pipeline run history --to FOLDER` makes one")
        return found[-1]

    def publish(self, manifest: ArchiveManifest) -> bool:
        """False if a manifest of this number or a later one exists: it belongs to another run."""
        for folder in manifest.folders():
            if not self.is_complete(folder):
                raise ArchiveRefused(f"{self.path / folder} is missing: another program removed it")
        directory = self.path / MANIFESTS
        path = directory / f"{manifest.number:012d}.json"
        partial = directory / f".{path.name}-{os.getpid()}-{manifest.written_ms}"
        write_synced(partial, encode(manifest))
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
        finally:
            partial.unlink()
        sync_directory(directory)
        return self._manifest_files()[-1] == path

    def is_complete(self, folder: str) -> bool:
        return (self.path / folder).is_dir()

    def finish(self, folder: str) -> None:
        """Make a written folder durable."""
        sync_tree(self.path / folder)
        sync_directory((self.path / folder).parent)

    def folders(self) -> list[str]:
        return [f"{kind}/{each.name}" for kind in KINDS for each in sorted((self.path / kind).iterdir())]

    def remove(self, folders: tuple[str, ...], manifests: tuple[int, ...]) -> None:
        """Removes manifests first, so that no manifest names a removed folder."""
        for number in manifests:
            (self.path / MANIFESTS / f"{number:012d}.json").unlink(missing_ok=True)
        sync_directory(self.path / MANIFESTS)
        for folder in folders:
            shutil.rmtree(self.path / folder, ignore_errors=True)

    def _manifest_files(self) -> list[Path]:
        return sorted(self._visible())

    def _visible(self) -> Iterator[Path]:
        with suppress(FileNotFoundError):
            yield from (self.path / MANIFESTS).glob("[0-9]*.json")
