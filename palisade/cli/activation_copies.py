"""Copies of a role as `palisade activation` reads them: the directory of a copy, or the address of a running one."""

from __future__ import annotations

import getpass
import socket
import time
from pathlib import Path
from types import TracebackType

from palisade.base.address import Address, AddressError
from palisade.base.directory_lock import DirectoryLock
from palisade.base.durable_files import replace_file, sync_directory
from palisade.base.errors import PalisadeError
from palisade.base.network_reason import reason_of
from palisade.catalog.activation import LocalSequence
from palisade.catalog.errors import DamagedRow
from palisade.catalog.forced_activation import AUDIT_FILE, CopyReport, ForcedActivation, Operator
from palisade.journal import local_file
from palisade.journal.client import JournalClient
from palisade.journal.errors import DirectoryInUse, JournalError
from palisade.journal.local_file import LocalState

ASK_S = 3.0


def operator_now(*, older: bool = False, sequence: int | None = None) -> Operator:
    """The user of this process, for the audit record."""
    return Operator(f"{getpass.getuser()}@{socket.gethostname()}", int(time.time() * 1000), older, sequence)


async def read_copy(role: str, place: str) -> CopyReport:
    """The copy in a directory, or of the process at an address. Does not raise if a copy cannot be read."""
    address = _address(place)
    if address is None:
        return read_directory(role, Path(place))
    async with JournalClient(role, [address], timeout_s=ASK_S) as client:
        (found,) = await client.status()
    if "sequence" not in found:
        return CopyReport(place, problem=str(found.get("reason") or "no answer"))
    sequence, epoch = found["sequence"], found["epoch"]
    local = LocalSequence(sequence, epoch) if sequence else None
    return CopyReport(place, local, bool(found["filling"]), str(found["state"]).startswith("active"))


def _address(place: str) -> str | None:
    """The address of a place; None if it is a directory."""
    if Path(place).is_dir():
        return None
    try:
        return str(Address.parse(place))
    except AddressError:
        return None


def read_directory(role: str, directory: Path) -> CopyReport:
    """Refuses the directory of a running copy, which may be active without a trace in its directory."""
    try:
        state = read_state(role, directory, ", or an address")
    except (OSError, PalisadeError) as error:
        return CopyReport(str(directory), problem=reason_of(error) if isinstance(error, OSError) else str(error))
    return CopyReport(str(directory), state.local, state.filling)


def read_state(role: str, directory: Path, or_else: str = "") -> LocalState:
    """Raises OSError, JournalError: `directory` is not that of a copy. 'palisade journal serve' writes the file at its
    first start. `or_else`: what the user may give instead of a directory."""
    if not directory.is_dir():
        raise JournalError(f"{directory} is not a directory: give the --dir of 'palisade journal serve'{or_else}")
    file = directory / local_file.NAME
    if not file.exists():
        raise JournalError(
            f"{directory} is not a copy of role {role}, it has no {local_file.NAME}: give the --dir of "
            f"'palisade journal serve'{or_else}"
        )
    state = local_file.decode(file.read_bytes(), str(file))
    local_file.check_role(state, role, str(file))
    return state


class HeldCopy:
    """The directory of a stopped copy, locked against its process. Raises DirectoryInUse, OSError, JournalError."""

    def __init__(self, role: str, directory: Path) -> None:
        self.role, self.directory = role, directory
        read_state(role, directory)
        self._lock = DirectoryLock(
            directory, DirectoryInUse, what="journal directory", remedy="stop 'palisade journal serve' first"
        )

    def __enter__(self) -> HeldCopy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def report(self) -> CopyReport:
        return read_directory(self.role, self.directory)

    def write(self, sequence: LocalSequence) -> None:
        """Durable on return."""
        replica = read_state(self.role, self.directory).replica
        self._replace(local_file.NAME, local_file.encode(LocalState(self.role, sequence, replica=replica)))

    def pending(self) -> ForcedActivation | None:
        """The forced activation that is not in the metadata store yet. Raises DamagedRow, JournalError."""
        file = self.directory / AUDIT_FILE
        if not file.exists():
            return None
        found = ForcedActivation.from_bytes(str(file).encode(), file.read_bytes())
        if found.role != self.role:
            raise DamagedRow(f"{file} belongs to role {found.role}, not {self.role}: give another directory")
        return found

    def keep_pending(self, forced: ForcedActivation) -> None:
        self._replace(AUDIT_FILE, forced.to_bytes())

    def remove_pending(self) -> None:
        (self.directory / AUDIT_FILE).unlink(missing_ok=True)
        sync_directory(self.directory)

    def _replace(self, name: str, content: bytes) -> None:
        replace_file(self.directory / name, content, self.directory / f"{name}.partial")
