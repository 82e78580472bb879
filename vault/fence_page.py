"""The fence page: whether this vault may be trusted, until when, and the released revision; read by any process. Pure.

`<data>/vault/fence`, 128 bytes under one CRC, over any buffer: a file that readers map (`fence_file.py`), or memory in
a simulation. The node is the only writer; it sets FENCED before it opens the vault for writing and when it closes it.
A crashed node need not: the deadline expires by itself, on a clock that continues while the machine is suspended (F1).

Each write has its own sequence number, above all earlier ones, over restarts too. If the sequence equals that of a
verified copy, the page has not changed since, or a change is unfinished and its writer has not acknowledged anything
yet. Otherwise the reader copies the page and checks the CRC, and repeats while it does not match, because a write may
be in progress. The vault is not trusted if no copy matches (the writer died midway), or if the page is of another boot
or of other clocks than the reader's.
"""

from __future__ import annotations

import enum
from struct import Struct
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from palisade.vault.errors import VaultForeign, VaultNewer

MAGIC = b"PLSDFNCE"
VERSION = 1
FIELDS = Struct("=8sHBBxxxxQQQQQQQQ8s")
"""Magic, version, state, cause; sequence, deadline, term, released, LV, commits, pending, incarnation; boot. Earlier
versions write a cause of 0 and do not read it."""
SUM = Struct("=I")
SEQUENCE_WORD = 2
"""The position of the sequence, in words of 8 bytes: comparing it shows whether anything has changed."""
FENCE_BYTES = 128
COPY_BYTES = FIELDS.size + SUM.size
BOOT_BYTES = 8
_U64 = (1 << 64) - 1


class FenceState(enum.IntEnum):
    FENCED = 0
    RECOVERING = 1
    ACTIVE = 2


WHY_NOT = {
    FenceState.FENCED: "the node is fenced: it has no lease",
    FenceState.RECOVERING: "the node is recovering: it has no lease yet",
}
"""Why a vault in this state must not be trusted."""


class FenceCause(enum.IntEnum):
    """Why the page is FENCED, where a reader can act on that."""

    NONE = 0
    REMOVED = 1
    """The node was removed from the cluster."""


class Fence(NamedTuple):
    """The content of the page. `deadline_ns`: on the clock of `fence_file.clock_ns`; 0 unless ACTIVE. `commits`: the
    number of commits visible to readers since the vault was opened. `pending`: rows in VaultTable.PENDING. `boot`:
    identifies the boot of the machine. `sequence`: increases with each publication.
    """

    state: FenceState
    deadline_ns: int
    term: int
    released: int
    lv: int
    commits: int
    pending: int
    incarnation: int
    boot: bytes
    sequence: int = 0
    cause: int = FenceCause.NONE

    def serves(self, now_ns: int, boot: bytes) -> bool:
        """Whether the vault may be trusted at that time."""
        return self.state is FenceState.ACTIVE and now_ns < self.deadline_ns and self.boot == boot

    def refusal(self, now_ns: int, boot: bytes) -> str:
        """The reason why it must not be trusted."""
        if self.boot != boot:
            return "the node has not started since the machine did, or the reader uses other clocks"
        if self.state is FenceState.FENCED and self.cause == FenceCause.REMOVED:
            return (
                "the node is fenced, because it was removed from the cluster: read at another node, or let this one "
                "join again with an empty data directory"
            )
        if self.state is not FenceState.ACTIVE:
            return WHY_NOT[self.state]
        return f"the node's lease expired {(now_ns - self.deadline_ns) / 1e9:.3f} s ago"


class Buffer(Protocol):
    """The storage of a page: a file, or memory (a bytearray)."""

    def __setitem__(self, index: slice, value: bytes, /) -> None: ...


class TornPage(Exception):
    """The CRC does not match: copy the page again."""


class FencePage:
    """The writer. Each buffer has at most one."""

    def __init__(self, buffer: Buffer, boot: bytes, *, first_sequence: int = 1) -> None:
        """Publishes FENCED. `first_sequence`: above all published before; use a clock of this boot in ns."""
        self.buffer = buffer
        self._whole = True
        self.fence = Fence(FenceState.FENCED, 0, 0, 0, 0, 0, 0, 0, boot, first_sequence)
        self._publish()

    def identify(self, incarnation: int) -> None:
        """Publish the incarnation of the node in the topology."""
        self._publish(incarnation=incarnation)

    def serve(self, deadline_ns: int, term: int) -> None:
        """ACTIVE until the deadline; call it for each renewal. While ACTIVE, the deadline never decreases.

        Raises RuntimeError while the vault is between two revisions.
        """
        if not self._whole:
            raise RuntimeError("the vault is between two revisions: it can't be served until its snapshot is finished")
        now = self.fence
        if now.state is FenceState.ACTIVE:
            self._publish(deadline_ns=max(deadline_ns, now.deadline_ns), term=term)
            return
        self._publish(state=FenceState.ACTIVE, deadline_ns=deadline_ns, term=term)

    def removed(self) -> None:
        """FENCED at once: the node was removed from the cluster. It never serves from this page again."""
        self._publish(state=FenceState.FENCED, deadline_ns=0, cause=FenceCause.REMOVED)

    def refuse(self, state: FenceState = FenceState.FENCED) -> None:
        """Takes effect at once; FENCED or RECOVERING."""
        if state is FenceState.ACTIVE:
            raise ValueError("only serve() makes a page ACTIVE")
        self._publish(state=state, deadline_ns=0)

    def release(self, revision: int) -> None:
        """Every strict revision up to `revision` is released. It never decreases."""
        if revision > self.fence.released:
            self._publish(released=revision)

    def committed(self, lv: int, pending: int, *, whole: bool = True) -> None:
        """A commit that readers can see was made; `whole`: it left the vault at one revision."""
        self._whole = whole
        commits = self.fence.commits + 1
        if whole or self.fence.state is not FenceState.ACTIVE:
            self._publish(lv=lv, pending=pending, commits=commits)
        else:
            self._publish(lv=lv, pending=pending, commits=commits, state=FenceState.FENCED, deadline_ns=0)

    def opened(self, lv: int, pending: int, *, whole: bool) -> None:
        """Publish the content of the opened vault."""
        self._whole = whole
        self._publish(lv=lv, pending=pending)

    def _publish(self, **changes: Any) -> None:
        fence = self.fence._replace(sequence=self.fence.sequence + 1, **changes)
        self.buffer[:COPY_BYTES] = pack_fence(fence)
        self.fence = fence


def pack_fence(fence: Fence) -> bytes:
    packed = FIELDS.pack(
        MAGIC,
        VERSION,
        fence.state,
        fence.cause,
        fence.sequence,
        min(fence.deadline_ns, _U64),
        fence.term,
        fence.released,
        fence.lv,
        fence.commits,
        fence.pending,
        fence.incarnation,
        fence.boot,
    )
    return packed + SUM.pack(crc32(packed))


def unpack_fence(copy: bytes) -> Fence:
    """From the first COPY_BYTES. Raises TornPage, VaultForeign (no fence page), VaultNewer."""
    if len(copy) < COPY_BYTES or copy[:8] != MAGIC:
        raise VaultForeign("it is not a fence page: stop the node, remove the file, and start the node again")
    (said,) = SUM.unpack_from(copy, FIELDS.size)
    if said != crc32(copy[: FIELDS.size]):
        raise TornPage
    _, version, state, cause, sequence, deadline, term, released, lv, commits, pending, incarnation, boot = (
        FIELDS.unpack_from(copy)
    )
    if version != VERSION or state > FenceState.ACTIVE:
        raise VaultNewer(
            f"the fence page has version {version}; this program knows {VERSION}: use the reader of the node's version"
        )
    return Fence(FenceState(state), deadline, term, released, lv, commits, pending, incarnation, boot, sequence, cause)


NO_FENCE = Fence(FenceState.FENCED, 0, 0, 0, 0, 0, 0, 0, bytes(BOOT_BYTES))
"""A page that must not be trusted."""
