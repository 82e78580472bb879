"""The *marker* of a data folder: a small JSON file that names its owner.

A folder with content but no marker belongs to another program and is refused before anything in it changes. The marker
is replaced atomically (written to a second file, synced, renamed): after a crash it is the old one or the new one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from palisade.base.durable_files import make_directory, replace_file
from palisade.base.errors import PalisadeError
from palisade.base.network_reason import reason_of

FORMAT = 1
OURS = {"LOCK"}


class FolderError(PalisadeError):
    """The folder cannot be used; the text names the folder, the reason and the remedy."""

    code = "bad-data-dir"


class Marker:
    """The marker `name` of the folder `path`, which is created if it does not exist."""

    def __init__(self, path: Path, name: str) -> None:
        """Raises FolderError if the folder cannot be used, or has content but no such marker."""
        self._file = path / name
        try:
            make_directory(path)
            found = sorted(entry.name for entry in path.iterdir() if entry.name not in OURS | {self._beside.name})
        except OSError as error:
            reason = "it is a file" if isinstance(error, FileExistsError) else reason_of(error)
            raise FolderError(
                f"{path} can't be used as a data folder: {reason}; fix that, or give another one"
            ) from None
        if found and name not in found:
            shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
            raise FolderError(
                f"{path} is not empty and has no {name}, so it is not a data folder of Palisade (found: {shown}); "
                "give an empty or new folder"
            )

    @property
    def _beside(self) -> Path:
        return self._file.with_suffix(".new")

    def read(self) -> dict[str, Any] | None:
        """Its content, None in a new folder. Raises FolderError if it cannot be parsed."""
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise FolderError(f"{self._file} can't be read: {error}; restore it, or give another folder") from None
        if not isinstance(content, dict) or not isinstance(content.get("format"), int):
            raise FolderError(f"{self._file} is not one of Palisade's files; give another folder")
        if content["format"] > FORMAT:
            raise FolderError(
                f"{self._file} has format {content['format']}, and this version knows up to {FORMAT}; "
                "start the newer version that wrote it"
            )
        return content

    def write(self, content: dict[str, Any]) -> None:
        """Replaces it; on disk when this returns. Raises FolderError."""
        try:
            text = json.dumps({"format": FORMAT, **content}, indent=2) + "\n"
            replace_file(self._file, text.encode(), self._beside)
        except OSError as error:
            raise FolderError(
                f"{self._file} can't be written: {reason_of(error)}; make it writable, or give another folder"
            ) from None
