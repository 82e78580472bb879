"""A leader and a follower that transfer a snapshot in simulated time, over a link with all kinds of faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgpack

from palisade.base.snapshots import SnapshotMeta
from palisade.raftgroup.snapshot_receiver import SnapshotReceiver
from palisade.raftgroup.snapshot_sender import SnapshotSender, TransferOutcome
from palisade.raftgroup.snapshot_transfer import (
    AbortWriter,
    CloseReader,
    Install,
    OpenWriter,
    ReadChunk,
    SendMessage,
    TransferTiming,
    WriteChunk,
)
from tests.support.simulation import Simulation

INDEX, TERM = 700, 6
MEMBERSHIP = [["n1", "n2"], 3]


@dataclass(slots=True)
class Line:
    """Probabilities for each message, but for `delay_s`, the shortest and the longest way."""

    delay_s: tuple[float, float] = (0.001, 0.02)
    lose: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0


@dataclass(slots=True)
class Disk:
    """The follower's disk: pieces by transfer, over restarts, and the installed snapshot."""

    pieces: dict[str, list[bytes]] = field(default_factory=dict)
    installed: list[list[bytes]] = field(default_factory=list)
    commit_index: int = 5


class World:
    """`receiver` is replaced by a restart; `sender` by `offer_again`."""

    def __init__(self, seed: int, pieces: list[bytes], *, line: Line | None = None) -> None:
        self.sim = Simulation(seed)
        self.line = line or Line()
        self.timing = TransferTiming()
        self.pieces = pieces
        self.disk = Disk()
        self.restarts = 0
        self.reads: list[int] = []
        self.aborted: list[str] = []
        self.reader_closed = 0
        self.membership: Any = None
        self.connection = 1
        self.up = True
        self.install_s = 0.5
        self._arrival = {"n1": 0.0, "n2": 0.0}
        self._writing = ""
        self.receiver = SnapshotReceiver(self.timing)
        self.sender = self._new_sender("snapshot-1")

    def _new_sender(self, transfer: str, index: int = INDEX, term: int = TERM) -> SnapshotSender:
        self.meta = SnapshotMeta(transfer, index, 5, None)
        return SnapshotSender("n2", self.meta, MEMBERSHIP, term, self.timing, self.sim.now, connected=self.up)

    # Driving.

    def start(self) -> None:
        self.do(self.sender.start(self.sim.now))
        self.sim.after(0.1, self._tick)

    def offer_again(self, transfer: str, index: int = INDEX, term: int = TERM) -> None:
        self.sender = self._new_sender(transfer, index, term)
        self.do(self.sender.start(self.sim.now))

    def run_until(self, condition: Callable[[], bool], within_s: float = 600.0) -> None:
        self.sim.run_until(condition, within_s=within_s)

    def run_to_the_end(self, within_s: float = 600.0) -> None:
        self.run_until(lambda: self.sender.outcome is not None, within_s)

    @property
    def committed(self) -> int:
        return self.disk.commit_index

    def _tick(self) -> None:
        self.do(self.sender.tick(self.sim.now))
        self.do(self.receiver.tick(self.sim.now))
        self.sim.after(0.25, self._tick)

    # Faults.

    def break_connection(self, for_s: float) -> None:
        if self.up:
            self.up = False
            self.connection += 1
            self.do(self.sender.disconnected(self.sim.now))
            self.sim.after(for_s, self._reconnect)

    def _reconnect(self) -> None:
        self.up = True
        self.do(self.sender.connected(self.sim.now))

    def restart_follower(self, keep: float) -> None:
        """Its process dies; a part of the pieces of an unfinished transfer is still on its disk."""
        self.restarts += 1
        self.receiver = SnapshotReceiver(self.timing)
        for transfer, pieces in self.disk.pieces.items():
            self.disk.pieces[transfer] = pieces[: round(len(pieces) * keep)]
        self.break_connection(0.3)

    # Carrying out effects.

    def do(self, effects: list[Any]) -> None:
        for effect in effects:
            if not self._do_one(effect):
                return

    def _do_one(self, effect: Any) -> bool:
        match effect:
            case SendMessage(member, body):
                self._send(member, body)
            case ReadChunk(number):
                self.reads.append(number)
                self.sim.after(0.002, lambda: self._read(number))
            case CloseReader():
                self.reader_closed += 1
            case OpenWriter(meta):
                self._writing = meta.id
                self.do(self.receiver.opened(len(self.disk.pieces.setdefault(meta.id, []))))
            case WriteChunk(number, data):
                return self._write(number, data)
            case Install(meta, membership):
                self.membership = membership
                restarts = self.restarts
                self.sim.after(self.install_s, lambda: self._finish(meta, restarts))
            case AbortWriter():
                self.aborted.append(self._writing)
                self.disk.pieces.pop(self._writing, None)
            case _:
                raise AssertionError(f"not an effect: {effect!r}")
        return True

    def _read(self, number: int) -> None:
        data = self.pieces[number] if number < len(self.pieces) else None
        self.do(self.sender.read(number, data, self.sim.now))

    def _write(self, number: int, data: bytes) -> bool:
        pieces = self.disk.pieces[self._writing]
        if number != len(pieces):
            self.do(self.receiver.invalid(f"piece {number} comes after {len(pieces)}", self.sim.now))
            return False
        pieces.append(data)
        return True

    def _finish(self, meta: SnapshotMeta, restarts: int) -> None:
        """The whole becomes visible at once; a restart before that leaves nothing."""
        if restarts != self.restarts:
            return
        pieces = self.disk.pieces.pop(meta.id)
        if pieces != self.pieces:
            self.do(self.receiver.invalid("the pieces do not make up a whole", self.sim.now))
            return
        self.disk.installed.append(pieces)
        self.disk.commit_index = max(meta.index, self.disk.commit_index)
        self.do(self.receiver.installed(self.sim.now))

    # The link.

    def _send(self, member: str, body: list[Any]) -> None:
        lot = self.sim.random.random
        if not self.up or lot() < self.line.lose:
            return
        if lot() < self.line.corrupt:
            body = corrupted(body, int(lot() * 1000))
        self._carry(member, msgpack.packb(body))
        if lot() < self.line.repeat:
            self._carry(member, msgpack.packb(body))

    def _carry(self, member: str, packed: bytes) -> None:
        lot = self.sim.random.random
        shortest, longest = self.line.delay_s
        arrival = self.sim.now + shortest + (longest - shortest) * lot()
        late = lot() < self.line.reorder
        if late:
            arrival += 3.0 * lot() ** 3
        else:
            arrival = self._arrival[member] = max(arrival, self._arrival[member])
        connection = self.connection
        self.sim.after(arrival - self.sim.now, lambda: self._arrive(member, packed, None if late else connection))

    def _arrive(self, member: str, packed: bytes, connection: int | None) -> None:
        if connection not in (None, self.connection):
            return
        body = msgpack.unpackb(packed)
        if member == "n2":
            self.do(self.receiver.receive("n1", body, self.sim.now, term=TERM, commit_index=self.disk.commit_index))
        else:
            self.do(self.sender.receive(body, self.sim.now))

    def check(self) -> None:
        """Required at the end of every schedule."""
        assert self.sender.outcome in (TransferOutcome.INSTALLED, TransferOutcome.NOT_NEEDED), self.sender.reason
        assert self.disk.installed == [self.pieces], f"{len(self.disk.installed)} installs"
        assert self.membership == MEMBERSHIP
        assert self.reader_closed == 1


def corrupted(body: list[Any], at: int) -> list[Any]:
    """One bit of a piece is flipped; other messages pass unchanged (frames have a checksum of their own)."""
    if len(body) != 6 or not isinstance(body[4], bytes) or not body[4]:
        return body
    data = bytearray(body[4])
    data[at % len(data)] ^= 1 << at % 8
    return [*body[:4], bytes(data), body[5]]
