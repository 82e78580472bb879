"""Which copy of a primary/backup role may become active: only the newest one. Pure (A1 to A4, seed 004, issue 17).

Two places hold a sequence number: one *record* in the metadata store, and beside each copy of the data its *local*
sequence. Only the active copy raises them, with every event after which the copies may differ: activation, loss of the
replica, failback. One raise takes three steps, so that a crash between them heals:

1. claim: a transaction, guarded by the lock and the record's revision, writes the next sequence, state claimed.
2. The local sequence is written and synced.
3. commit: the record's state becomes committed. Guarded in the same way. Only then may the copy serve alone.

`served` is the last committed sequence, with which a copy has served. A copy is the newest if its local sequence is not
lower: a higher one was claimed only, never served with. A sequence is claimed once, by one copy; a claim that was not
committed is never resumed but followed by the next one. Thus a returning copy can't mistake another's sequence for its
own (ABA).

The guards are the lock's creation revision (the fencing token) and the record's modification revision. The transaction
itself compares both, so a copy that was paused between its look and its write changes nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from palisade.catalog.errors import BadField, NotAllowed
from palisade.catalog.row_format import FORMAT, a_choice, a_count, a_name, from_bytes, to_bytes

ROOT = b"activation/record/"
"""Outside of the keys that only nodes may write: the copies of a role write their record, with rights on these keys."""
LOCKS = b"activation/lock/"
SEQUENCE_MAX = (1 << 63) - 2


class ClaimState(enum.StrEnum):
    CLAIMED = "claimed"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class ActivationRecord:
    """The agreed record of a role. `epoch`: generation of the metadata store's history in which it was written."""

    role: str
    sequence: int
    state: ClaimState
    owner: str
    served: int
    epoch: int

    @property
    def key(self) -> bytes:
        return record_key(self.role)

    def to_bytes(self) -> bytes:
        fields = {"role": self.role, "sequence": self.sequence, "state": self.state.value, "owner": self.owner}
        return to_bytes({"format": FORMAT, **fields, "served": self.served, "epoch": self.epoch})

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> ActivationRecord:
        """Raises DamagedRow, NewerRow."""
        return from_bytes(key, packed, _read_record)


def _read_record(value: dict[str, object]) -> ActivationRecord:
    record = ActivationRecord(
        a_name(value["role"], "role"),
        a_count(value["sequence"], "sequence"),
        ClaimState(a_choice([*ClaimState])(value["state"], "state")),
        a_name(value["owner"], "owner"),
        0 if value["served"] == 0 and type(value["served"]) is int else a_count(value["served"], "served"),
        a_count(value["epoch"], "epoch"),
    )
    committed = record.state is ClaimState.COMMITTED
    if record.served > record.sequence or committed != (record.served == record.sequence):
        raise BadField(f"served: {record.served} contradicts sequence {record.sequence}, {record.state}")
    return record


def record_key(role: str) -> bytes:
    return ROOT + role.encode()


def lock_name(role: str) -> bytes:
    """The name of the lock whose holder may be active (`client/claims.py`)."""
    return LOCKS + role.encode()


@dataclass(frozen=True, slots=True)
class LocalSequence:
    """Beside one copy. A copy without it is new. While a copy is being filled, its sequence is older than `served`."""

    sequence: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClaimNext:
    """This copy is the newest: claim the next sequence, once the lock is held."""


@dataclass(frozen=True, slots=True)
class Follow:
    """This copy may be older than another: keep it, wait for an active one and be filled by it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The two records contradict each other. Only an operator can decide which copy to keep."""

    reason: str


Decision = ClaimNext | Follow | Stop


def decide(
    record: ActivationRecord | None, local: LocalSequence | None, *, configured_primary: bool, epoch: int
) -> Decision:
    """What a copy does when no other is active. `epoch`: the present generation of the metadata store."""
    if record is None:
        return _decide_without_record(local, configured_primary=configured_primary)
    if record.epoch != epoch:
        return Stop(
            f"the agreed sequence {record.sequence} is of epoch {record.epoch}, the metadata store of {epoch}: "
            "it was restored, and may have forgotten a later activation"
        )
    if local is None and not record.served:
        return _decide_first(configured_primary=configured_primary)
    if local is None:
        return Follow(f"it has no sequence; the newest copy has {record.served} or more")
    if local.epoch == epoch and local.sequence > record.sequence:
        return Stop(f"its sequence {local.sequence} is higher than the agreed one, {record.sequence}")
    if local.epoch != epoch or local.sequence < record.served:
        return Follow(
            f"its sequence {local.sequence} (epoch {local.epoch}) is older than {record.served} (epoch {epoch})"
        )
    return ClaimNext()


def _decide_without_record(local: LocalSequence | None, *, configured_primary: bool) -> Decision:
    if local is not None:
        return Stop(f"it has sequence {local.sequence}, but the metadata store has no record of the role")
    return _decide_first(configured_primary=configured_primary)


def _decide_first(*, configured_primary: bool) -> ClaimNext | Follow:
    """No copy has served yet, at most a first claim was interrupted. One copy alone may begin without a sequence."""
    return ClaimNext() if configured_primary else Follow("the role was never active; its configured primary begins")


def claimed(record: ActivationRecord | None, role: str, owner: str, epoch: int) -> ActivationRecord:
    """The record of a claim. Raises NotAllowed at the last sequence number."""
    before, served = (0, 0) if record is None else (record.sequence, record.served)
    if before >= SEQUENCE_MAX:
        raise NotAllowed(f"role {role}: sequence {before} is the last one")
    return ActivationRecord(role, before + 1, ClaimState.CLAIMED, owner, served, epoch)


def committed(claim: ActivationRecord) -> ActivationRecord:
    return replace(claim, state=ClaimState.COMMITTED, served=claim.sequence)


class ReplicaState(enum.Enum):
    """The replica as the active copy sees it."""

    NONE = "none"
    CATCHING_UP = "catching up"
    IN_SYNC = "in sync"
    """From before the active copy sends its sequence: from then on the replica may take over."""
    LOST = "lost"
    """It was in sync. The sequence must be raised before an entry is acknowledged without it."""


class ReplicaEvent(enum.Enum):
    ATTACHED = "attached"
    CAUGHT_UP = "caught up"
    DETACHED = "detached"
    SEQUENCE_RAISED = "sequence raised"


TRANSITIONS: dict[tuple[ReplicaState, ReplicaEvent], ReplicaState] = {
    (ReplicaState.NONE, ReplicaEvent.ATTACHED): ReplicaState.CATCHING_UP,
    (ReplicaState.NONE, ReplicaEvent.SEQUENCE_RAISED): ReplicaState.NONE,
    (ReplicaState.CATCHING_UP, ReplicaEvent.CAUGHT_UP): ReplicaState.IN_SYNC,
    (ReplicaState.CATCHING_UP, ReplicaEvent.DETACHED): ReplicaState.NONE,
    (ReplicaState.IN_SYNC, ReplicaEvent.DETACHED): ReplicaState.LOST,
    (ReplicaState.LOST, ReplicaEvent.DETACHED): ReplicaState.LOST,
    (ReplicaState.LOST, ReplicaEvent.SEQUENCE_RAISED): ReplicaState.NONE,
}


def after(replica: ReplicaState, event: ReplicaEvent) -> ReplicaState:
    """Raises NotAllowed: the event is impossible in this state."""
    try:
        return TRANSITIONS[replica, event]
    except KeyError:
        raise NotAllowed(f"a replica that is {replica.value} can't become {event.value}") from None


def acknowledgement_needs(replica: ReplicaState) -> frozenset[str] | None:
    """The copies that must have synced an entry before it is acknowledged; None: no entry is acknowledged now."""
    if replica is ReplicaState.LOST:
        return None
    return frozenset({"active", "replica"} if replica is ReplicaState.IN_SYNC else {"active"})
