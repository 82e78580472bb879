"""Folders that options name by a path or a file: URL. They are checked before Spark starts, which takes seconds."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from palisade.base.durable_files import make_directory
from palisade.base.network_reason import reason_of
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


def require_folder(path: Path) -> None:
    """Creates the folder of option `to` if it is missing. Raises BadOption if that fails, or if it is not writable."""
    try:
        make_directory(path)
    except OSError as error:
        raise BadOption(
            f"option to: the folder {path} cannot be created: {reason_of(error)}; give another one"
        ) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise BadOption(f"option to: the folder {path} is not writable; make it writable, or give another one")
