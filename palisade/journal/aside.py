"""Moves the entries of a stale copy that are not in the agreed journal to a separate file, with a report.

The report is written last and names the file. A file without a report is from an interrupted attempt, and is written
again. The entries are removed from the journal only after the report is durable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from palisade.journal.blocks import JournalEnd, file_header
from palisade.journal.files import JournalFiles
from palisade.journal.local_file import LocalState
from palisade.journal.log import JournalLog

SHOWN_ENTRIES = 10


@dataclass(frozen=True, slots=True)
class AsideReport:
    """`first` to `last`: the entries that are in `file` only. `sequence`: of the stale copy; `agreed_sequence`: of the
    copy that replaces it. `sample`: the beginnings of the first entries."""

    role: str
    file: str
    first: int
    last: int
    sequence: int
    agreed_sequence: int
    sample: list[str]

    @property
    def entries(self) -> int:
        return self.last - self.first + 1


async def rotate_aside(
    log: JournalLog, files: JournalFiles, state: LocalState, common: JournalEnd, agreed: int
) -> AsideReport | None:
    """Move everything after `common` aside. None if there is nothing. Can be repeated after a crash at any step."""
    if log.end.last <= common.last:
        return None
    name = f"aside-{common.last + 1}-{log.end.last}-{log.end.chain:016x}.journal"
    report_name = f"{name.removesuffix('.journal')}.json"
    sample: list[str] = []
    await files.create(name, file_header(common))
    async for block in log.blocks_after(common.last):
        files.write(name, block.data)
        for _, content in block.entries():
            if len(sample) < SHOWN_ENTRIES:
                sample.append(content[:80].decode("utf-8", "backslashreplace"))
    await files.sync(name)
    sequence = state.local.sequence if state.local else 0
    report = AsideReport(state.role, name, common.last + 1, log.end.last, sequence, agreed, sample)
    await files.replace(report_name, json.dumps({**asdict(report), "entries": report.entries}, indent=1).encode())
    await log.cut(common)
    return report


async def reports(files: JournalFiles) -> Iterator[dict[str, object]]:
    """The reports in the directory, oldest entries first."""
    names = [name for name in await files.names() if name.startswith("aside-") and name.endswith(".json")]
    found = [json.loads(await files.read(name)) for name in names]
    return iter(sorted(found, key=lambda report: (report["first"], report["last"])))
