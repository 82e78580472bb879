"""The options of an audit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from palisade.pipeline.errors import BadOption
from palisade.pipeline.job import option
from palisade.pipeline.local_folder import local_folder
from palisade.wire.recorded_history import SUFFIX


@dataclass(frozen=True, slots=True)
class AuditOptions:
    to: str = option(
        "Folder of the report, a path or file:///...: report.html and one Parquet file per table. Older files are "
        "replaced."
    )
    histories: str = option("Folders with recorded histories, separated by commas; each worker reads them.", "")
    copies: str = option("Running copies of roles, as ROLE=HOST:PORT, separated by commas.", "")
    gap_ms: int = option("Report times without a successful request that are longer than this.", 5_000)
    clock_error_ms: int = option("Largest error of the wall clocks of different machines.", 1_000)
    all_writers: bool = option(
        "The histories contain every writer, and no key has a lease: more cases are decided.", False
    )
    history_only: bool = option("Do not connect to a cluster.", False)

    def __post_init__(self) -> None:
        if self.gap_ms < 1 or self.clock_error_ms < 0:
            raise BadOption("--gap-ms must be at least 1, and --clock-error-ms at least 0")
        if self.history_only and not self.histories:
            raise BadOption("--history-only needs --histories")
        copies_in(self.copies)
        _ = self.folder

    @property
    def folder(self) -> Path:
        """Raises BadOption."""
        return local_folder(self.to, "of this machine")

    @property
    def copy_list(self) -> list[tuple[str, str]]:
        return copies_in(self.copies)


def copies_in(text: str) -> list[tuple[str, str]]:
    """(role, address). Raises BadOption."""
    found = []
    for each in filter(None, text.split(",")):
        role, equals, address = each.strip().partition("=")
        if not (role and equals and ":" in address):
            raise BadOption(f"--copies: {each!r} is not ROLE=HOST:PORT")
        found.append((role, address))
    return found


def files_in(folders: str) -> list[str]:
    """Raises BadOption for a folder without histories."""
    found: list[str] = []
    for folder in filter(None, (each.strip() for each in folders.split(","))):
        files = sorted(str(path) for path in Path(folder).absolute().glob(f"*{SUFFIX}"))
        if not files:
            raise BadOption(f"--histories: {folder} has no file *{SUFFIX}; record one with Client(..., record=FOLDER)")
        found += files
    return found
