"""Folders that options name by a path or a file: URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from palisade.pipeline.errors import BadOption


def local_folder(text: str, reached: str) -> Path:
    """The absolute path. `reached`: which machines must reach it, for the error. Raises BadOption."""
    url = urlsplit(text)
    if url.scheme not in ("", "file") or url.netloc not in ("", "localhost"):
        raise BadOption(f"{text!r} is not a folder: give a path or a file:///path {reached}")
    path = Path(unquote(url.path) if url.scheme else text)
    if not text or (not path.is_absolute() and url.scheme):
        raise BadOption(f"{text!r} is not an absolute file:/// URL")
    return path.absolute()
