"""A data folder says whose it is, in a small JSON file: the *marker*.

A folder that holds something but no marker is somebody else's, and is refused before anything is changed in it. The
marker is replaced as a whole (written beside, synced, renamed), so a crash leaves the old or the new one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from palisade.base.durable_files import replace_file
from palisade.base.errors import PalisadeError

FORMAT = 1
OURS = {"LOCK"}


class FolderError(PalisadeError):
    """The folder can't be used: which, why, and what to do."""

    code = "bad-data-dir"


class Marker:
    """The marker `name` of the folder `path`, which is made if it is not there."""

    def __init__(self, path: Path, name: str) -> None:
        """Raise FolderError when the folder can't be used, or is not empty and has no such marker."""
        self._file = path / name
        try:
            path.mkdir(parents=True, exist_ok=True)
            found = sorted(entry.name for entry in path.iterdir() if entry.name not in OURS | {self._beside.name})
        except OSError as error:
            raise FolderError(
                f"{path} can't be used as a data folder: {error.strerror}; mend that, or give another one"
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
        """What it says, None in a new folder. Raises FolderError when it can't be understood."""
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
        """Replace it; on disk when this returns. Raises FolderError."""
        try:
            text = json.dumps({"format": FORMAT, **content}, indent=2) + "\n"
            replace_file(self._file, text.encode(), self._beside)
        except OSError as error:
            raise FolderError(
                f"{self._file} can't be written: {error.strerror}; mend that, or give another folder"
            ) from None
