"""The interfaces of a Raft group to its environment: clock, random source, journal, network, state machine.

The real ones are wired in `node/`; tests and the simulator pass their own. Every implementation of a port passes the
same contract tests (`tests/contracts/`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from palisade.base.snapshots import SnapshotMeta, SnapshotReader, SnapshotWriter


class Clock(Protocol):
    """Elapsed time that also runs while the machine is suspended (CLOCK_BOOTTIME), and wall time for stamps."""

    def now(self) -> float:
        """Seconds since an arbitrary start; monotonic. The only clock that safety depends on."""
        ...

    def wall_ns(self) -> int:
        """Unix time in nanoseconds; may jump, so only the labels of revisions depend on it."""
        ...


class Random(Protocol):
    """A random source that is handed in, so that a run can be repeated from its seed."""

    def random(self) -> float: ...


BATCH, NO_OP, MEMBERSHIP = b"\x00", b"\x01", b"\x02"
"""The kinds of entries: the first byte of `Entry.command`, as in PySyncObj."""


class Entry(NamedTuple):
    """One entry of the Raft log, in the order of fields that PySyncObj expects."""

    command: bytes
    index: int  # type: ignore[assignment]  # shadows tuple.index, as PySyncObj does
    term: int


class Journal(Protocol):
    """Log, term and vote on disk.

    Everything but `sync` is immediate and in memory. Unsynced changes may be lost in a crash, from the end; a crash
    never leaves a part of an entry. `entries` is contiguous; the first one is the *base*: an entry that is known to be
    committed and applied, kept for its index and term only.
    """

    @property
    def first(self) -> Entry: ...
    @property
    def last(self) -> Entry: ...
    @property
    def term(self) -> int: ...
    @property
    def vote(self) -> str | None: ...
    @property
    def synced_index(self) -> int:
        """Every entry up to this index is on disk."""
        ...

    @property
    def written(self) -> int:
        """The number of changes made since the start; the first `saved` of them are on disk."""
        ...

    @property
    def saved(self) -> int: ...
    @property
    def dirty(self) -> bool:
        """Whether changes wait for a sync."""
        ...

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`, or None if the journal does not have it."""
        ...

    def slice(self, start: int, stop: int) -> Sequence[Entry]:
        """The existing entries with start <= index < stop.

        Raises JournalCorrupt if a stored entry fails its checksum.
        """
        ...

    def append(self, entry: Entry) -> None: ...
    def truncate_from(self, index: int) -> None:
        """Remove every entry at or above `index` (a conflict)."""
        ...

    def compact_to(self, index: int) -> None:
        """Make `index` the base: remove every entry below it."""
        ...

    def reset(self, index: int, term: int) -> None:
        """Drop the whole log; the base is now (index, term), from a snapshot."""
        ...

    def set_term(self, term: int, vote: str | None) -> None: ...
    def get_meta(self, name: str) -> bytes | None: ...
    def set_meta(self, name: str, value: bytes) -> None:
        """A small durable value (membership at the base, storage incarnation); synced with the rest."""
        ...

    async def sync(self) -> None:
        """Return when everything written before the call is on disk. Raises NodeFailed on failure."""
        ...

    def begin_sync(self, ended: Callable[[Exception | None], None]) -> None:
        """As `sync`, without a task: calls `ended` once, with None or with what `sync` would raise, perhaps before
        this returns. After a crash of the node it is not called."""
        ...

    def close(self) -> None: ...


class StateMachine(Protocol):
    """The replicated state machine. `apply` is called in log order, exactly once per index and process."""

    @property
    def applied(self) -> tuple[int, int]:
        """(index, term) of the last applied entry."""
        ...

    @property
    def durable(self) -> tuple[int, int]:
        """(index, term) of the last applied entry that is on disk: the log may be compacted up to it."""
        ...

    def lead(self, now: float, wall_ms: int) -> None:
        """This node has become leader: `stamp` is called on it from now on. Times are of the node's clock."""
        ...

    def stamp(self, now: float, wall_ms: int) -> Any:
        """What the leader adds to every batch so that replicas need no clock (msgpack types only)."""
        ...

    def apply(self, index: int, term: int, stamp: Any, commands: Sequence[bytes]) -> list[Any]:
        """Apply one batch; one result (msgpack types only) per command. Any exception stops the node."""
        ...

    def skip(self, index: int, term: int) -> None:
        """The entry at `index` has no command (no-op, membership)."""
        ...

    async def open_snapshot(self) -> SnapshotReader: ...
    def receive_snapshot(self, meta: SnapshotMeta) -> SnapshotWriter: ...


class Peers(Protocol):
    """The network between the members. Delivery is best effort, in order per connection, and authenticated."""

    def send(self, member: str, kind: int, body: Any) -> bool:
        """Queue a message (msgpack types). False if there is no connection; never raises, never blocks."""
        ...

    def queued_bytes(self, member: str) -> int: ...
    def connected(self) -> frozenset[str]: ...
    def answering(self) -> frozenset[str]:
        """The connected members that have sent something recently, if only the answer to a ping: not a frozen one."""
        ...

    def set_members(self, addresses: dict[str, str]) -> None:
        """The members to keep connected: id -> 'host:port'. Connections to and from others are closed; a node that
        dials again is judged again."""
        ...

    async def start(self, receiver: MessageReceiver) -> None: ...
    async def close(self) -> None: ...


class MessageReceiver(Protocol):
    """The transport's callbacks to the group."""

    def greeting(self) -> dict[str, Any]:
        """This node's greeting in the handshake: cluster, member, incarnation, and further fields of the group."""
        ...

    def greet(self, greeting: dict[str, Any]) -> str | None:
        """Judge the greeting of the other side: None to accept it, or the reason of the refusal."""
        ...

    def on_connected(self, member: str, greeting: dict[str, Any]) -> None: ...
    def on_disconnected(self, member: str) -> None: ...
    def on_message(self, member: str, kind: int, body: Any) -> None: ...
    def on_refused(self, member: str, reason: str) -> None:
        """The other side refused our greeting, with this reason."""
        ...


Schedule = Callable[[], None]
Chunks = AsyncIterator[bytes]
