"""Whether a command can create a file under a name, checked before its work begins.

The file is written beside its final name and then renamed. Without this check, the rename would replace a device, and
would fail for a folder after all the work. Other reasons (a read-only or full disk) are reported by the write.
"""

from __future__ import annotations

from pathlib import Path


def why_not_made(path: Path, *, overwrite: bool) -> str | None:
    """The reason and the remedy; None if nothing is known against it. Raises OSError."""
    if path.is_dir():
        return f"{path} is a folder: give a file"
    if path.exists() and not path.is_file():
        return f"{path} is not a regular file: give another one"
    if path.exists() and not overwrite:
        return f"{path} exists already: give another name, or --overwrite"
    folder = path.absolute().parent
    if not folder.exists():
        return f"there is no folder {folder}: create it, or give another file"
    if not folder.is_dir():
        return f"{folder} is not a folder: give another file"
    return None
