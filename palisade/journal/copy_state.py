"""One copy: its files, its entries, and its local state, which is durable before it takes effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from palisade.catalog.activation import LocalSequence
from palisade.catalog.forced_activation import Operator
from palisade.journal.agreed import LockHolder
from palisade.journal.aside import AsideReport, rotate_aside
from palisade.journal.blocks import JournalEnd
from palisade.journal.errors import JournalDamaged
from palisade.journal.files import JournalFiles
from palisade.journal.local_file import NAME, LocalState, check_role, decode, encode
from palisade.journal.log import JournalLog


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """`primary`: the configured primary, which alone begins a role without a record. `allow_failback`: as active copy,
    return the role to the configured primary once that is in sync. `ttl_s`: the lease of the lock.
    `replica_timeout_s`: without a message for this time, the replica counts as lost. `forced_by`: if the metadata store
    does not answer at the start, the copy is forced, and serves without it."""

    role: str
    own: LockHolder
    primary: bool
    allow_failback: bool = False
    ttl_s: float = 1.0
    replica_timeout_s: float = 1.0
    forced_by: Operator | None = None


@dataclass(slots=True)
class CopyTally:
    """Counts since the start of the process. `refused`: by error code."""

    activations: int = 0
    replicas_lost: int = 0
    entries_aside: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class CopyState:
    """`settled`: whether the log in memory equals the files; False during a cut, and after an interrupted one.
    `on_aside` is called when stale entries were moved aside."""

    def __init__(
        self,
        files: JournalFiles,
        options: CopyOptions,
        log: JournalLog | None = None,
        on_aside: Callable[[AsideReport], None] = lambda _report: None,
    ) -> None:
        self.files = files
        self.options = options
        self.log = log or JournalLog(files, preallocates=True)
        self.state = LocalState(options.role)
        self.settled = False
        self.tally = CopyTally()
        self._on_aside = on_aside

    async def load(self) -> None:
        """Read the directory. Raises WrongRole, NewerFormat, JournalDamaged, OSError."""
        names = await self.files.names()
        if NAME in names:
            self.state = decode(await self.files.read(NAME), NAME)
            check_role(self.state, self.options.role, NAME)
        else:
            if any(name.endswith(".journal") for name in names):
                raise JournalDamaged(
                    f"{NAME} is missing beside journal files: restore it, or move the directory aside and start empty"
                )
            await self.save(LocalState(self.options.role))
        if not self.settled:
            await self.log.open(replica=self.state.replica)
            self.settled = True

    async def settle(self) -> None:
        """Sync everything that was written."""
        if self.log.has_file:
            await self.log.sync()

    async def save(self, state: LocalState) -> None:
        await self.files.replace(NAME, encode(state))
        self.state = state

    async def adopt(self, sequence: LocalSequence, *, replica: bool = False) -> None:
        """Store a sequence, with which this copy may become active without the other one. `replica`: the copy remains a
        replica; otherwise everything that was written must be synced."""
        await self.save(LocalState(self.options.role, sequence, replica=replica))

    async def begin_filling(self, common: JournalEnd, agreed: int) -> None:
        """Keep only the part that is equal to the active copy; move the rest aside."""
        await self.save(replace(self.state, filling=True, replica=True))
        self.settled = False
        report = await rotate_aside(self.log, self.files, self.state, common, agreed)
        self.settled = True
        if report is not None:
            self.tally.entries_aside += report.entries
            self._on_aside(report)
