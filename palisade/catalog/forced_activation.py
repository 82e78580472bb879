"""An operator decides which copy of a role counts, where `activation.decide` stops or waits. Pure (A4, seed 004).

The forced copy gets a sequence above the agreed one and above that of every copy that was compared. Thus it is the
newest, and every other copy follows it. No number is lowered, hence no earlier decision becomes valid again.

The steps are those of `activation.py`: the record is claimed, the local sequence is written, the record is committed.
Until the commit, only a copy that is as new as all compared ones may claim instead; then the commit changes nothing.

Without a majority of the metadata store, only the local sequence is written, with an audit record beside it. The record
follows when the store is back (`reconciled`), unless another copy was activated meanwhile: then two copies may have
served, and an operator decides again. A copy that served alone has raised the agreed sequence before, so this is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from palisade.catalog.activation import SEQUENCE_MAX, ActivationRecord, ClaimState, LocalSequence
from palisade.catalog.errors import NotAllowed
from palisade.catalog.row_format import a_count, a_flag, a_name, from_bytes, list_of, text_up_to, to_bytes

AUDIT = b"activation/audit/"
AUDIT_FILE = "forced-activation.json"
"""Beside the copy, from a forced activation without the metadata store until it is reconciled."""
OLDER_OPTION = "--use-older-copy"
COMPARED_MAX = 16
PLACE_CHARACTERS_MAX = 1024


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The state that one copy reports. `place`: its directory or address. `problem`: why it could not be read, or "".

    `filling`: its entries are being replaced, and are no complete copy."""

    place: str
    local: LocalSequence | None = None
    filling: bool = False
    active: bool = False
    problem: str = ""

    @property
    def age(self) -> tuple[int, int]:
        """Greater is newer; a copy without a sequence is the oldest."""
        return (self.local.epoch, self.local.sequence) if self.local is not None else (0, 0)

    def __str__(self) -> str:
        if self.problem:
            return f"{self.place}: {self.problem}"
        state = "active" if self.active else "being filled" if self.filling else ""
        sequence = f"sequence {self.local.sequence} (epoch {self.local.epoch})" if self.local else "no sequence"
        return f"{self.place}: {sequence}{', ' if state else ''}{state}"


@dataclass(frozen=True, slots=True)
class AgreedView:
    """The record of the role, and the present epoch of the metadata store."""

    record: ActivationRecord | None
    epoch: int


@dataclass(frozen=True, slots=True)
class ForcedActivation:
    """The audit record. `agreed`: the sequence of the record before; 0 without a record, None if the store had no
    majority. `by`: the operator. `owner`: the name of the copy."""

    role: str
    owner: str
    place: str
    sequence: int
    epoch: int
    local: int
    agreed: int | None
    older: bool
    compared: tuple[str, ...]
    gives_up: tuple[str, ...]
    by: str
    at_ms: int

    @property
    def key(self) -> bytes:
        return audit_prefix(self.role) + b"%020d" % self.sequence

    @property
    def new_local(self) -> LocalSequence:
        return LocalSequence(self.sequence, self.epoch)

    def claim(self) -> ActivationRecord:
        """`served` excludes every copy that is older than one of the compared ones, until the commit."""
        return ActivationRecord(self.role, self.sequence, ClaimState.CLAIMED, self.owner, self.sequence - 1, self.epoch)

    def commit(self) -> ActivationRecord:
        return ActivationRecord(self.role, self.sequence, ClaimState.COMMITTED, self.owner, self.sequence, self.epoch)

    def to_bytes(self) -> bytes:
        return to_bytes(asdict(self))

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> ForcedActivation:
        """Raises DamagedRow."""
        return from_bytes(key, packed, _read)


def _read(value: dict[str, object]) -> ForcedActivation:
    texts = list_of(text_up_to(2 * PLACE_CHARACTERS_MAX), COMPARED_MAX, 0)
    return ForcedActivation(
        a_name(value["role"], "role"),
        a_name(value["owner"], "owner"),
        text_up_to(PLACE_CHARACTERS_MAX, 1)(value["place"], "place"),
        a_count(value["sequence"], "sequence"),
        a_count(value["epoch"], "epoch"),
        _count_or_0(value["local"], "local"),
        None if value["agreed"] is None else _count_or_0(value["agreed"], "agreed"),
        a_flag(value["older"], "older"),
        tuple(texts(value["compared"], "compared")),
        tuple(texts(value["gives_up"], "gives_up")),
        text_up_to(PLACE_CHARACTERS_MAX)(value["by"], "by"),
        _count_or_0(value["at_ms"], "at_ms"),
    )


def _count_or_0(value: object, field: str) -> int:
    return 0 if type(value) is int and value == 0 else a_count(value, field)


def audit_prefix(role: str) -> bytes:
    return AUDIT + role.encode() + b"/"


@dataclass(frozen=True, slots=True)
class Operator:
    """What the operator asked for. `older`: use the copy even if another one is newer. `sequence`: the new one, None
    for the next."""

    by: str
    at_ms: int
    older: bool = False
    sequence: int | None = None


def forced(
    role: str,
    owner: str,
    chosen: CopyReport,
    others: Sequence[CopyReport],
    agreed: AgreedView | None,
    operator: Operator,
) -> ForcedActivation:
    """`agreed`: None if the metadata store has no majority. Changes nothing; `gives_up` of the result has to be shown
    before it is executed. Raises NotAllowed.
    """
    if chosen.problem:
        raise NotAllowed(f"role {role}: {chosen.place} can't be read ({chosen.problem}): nothing was forced")
    if running := [copy.place for copy in (chosen, *others) if copy.active]:
        raise NotAllowed(f"role {role} is active at {running[0]}: stop that process first; nothing was forced")
    newer = _newer(chosen, others, agreed)
    if newer and not operator.older:
        raise NotAllowed(
            f"role {role}: {chosen.place} is not the newest copy: {'; '.join(newer)}. Force the newest one, or give up "
            f"the entries that only it has with {OLDER_OPTION}"
        )
    record = agreed.record if agreed is not None else None
    local = chosen.local.sequence if chosen.local is not None else 0
    reached = [copy for copy in others if not copy.problem]
    highest = max([record.sequence if record else 0, *(copy.age[1] for copy in (chosen, *reached))])
    sequence = highest + 1 if operator.sequence is None else operator.sequence
    if not highest < sequence <= SEQUENCE_MAX:
        raise NotAllowed(
            f"role {role}: sequence {sequence} is not above {highest}, the highest known one: it can be raised, never "
            f"lowered; the highest possible one is {SEQUENCE_MAX}"
        )
    return ForcedActivation(
        role=role,
        owner=owner,
        place=chosen.place,
        sequence=sequence,
        epoch=agreed.epoch if agreed is not None else max(1, *(copy.age[0] for copy in (chosen, *reached))),
        local=local,
        agreed=None if agreed is None else record.sequence if record else 0,
        older=bool(newer),
        compared=tuple(str(copy) for copy in (chosen, *others)),
        gives_up=(*newer, *_unknown(others, agreed)),
        by=operator.by,
        at_ms=operator.at_ms,
    )


def _newer(chosen: CopyReport, others: Sequence[CopyReport], agreed: AgreedView | None) -> tuple[str, ...]:
    """What is newer than the chosen copy. Its entries would be lost."""
    found = [
        f"{copy} is newer: entries that only it has are lost"
        for copy in others
        if not copy.problem and copy.age > chosen.age
    ]
    if chosen.filling:
        found.append(f"{chosen.place} was being filled and is no complete copy: entries are missing in it")
    record = agreed.record if agreed is not None else None
    if record is not None and (chosen.local is None or chosen.age < (record.epoch, record.served)):
        found.append(
            f"a copy has served with sequence {record.served} (epoch {record.epoch}): entries that only it has are lost"
        )
    return tuple(found)


def _unknown(others: Sequence[CopyReport], agreed: AgreedView | None) -> tuple[str, ...]:
    """Copies that cannot be compared now."""
    found = [
        f"{copy.place} was not compared ({copy.problem}): if it is newer, entries that only it has are lost"
        for copy in others
        if copy.problem
    ]
    if agreed is None:
        found += [
            "the metadata store was not asked: a copy that is not named here may be newer; its entries are lost",
            "no lock protects the role until the metadata store is back: keep every other copy stopped, because two "
            "active copies would both acknowledge entries",
        ]
    elif agreed.record is None:
        found.append("the metadata store has no record of the role: a copy that is not named here may be newer")
    elif agreed.record.epoch != agreed.epoch:
        found.append(
            f"the metadata store was restored (epoch {agreed.record.epoch}, now {agreed.epoch}): a copy that is not "
            "named here may be newer"
        )
    return tuple(found)


def reconciled(forced_one: ForcedActivation, agreed: AgreedView) -> ForcedActivation:
    """What to commit for a forced activation that the metadata store does not know yet, in its present epoch.

    Raises NotAllowed if another copy was activated meanwhile.
    """
    record = agreed.record
    if record is not None and record.sequence >= forced_one.sequence:
        raise NotAllowed(
            f"role {forced_one.role}: {forced_one.place} was forced to sequence {forced_one.sequence} without the "
            f"metadata store, and {record.owner} has {record.state} sequence {record.sequence} meanwhile: both may "
            "have served. Stop both, compare them with 'palisade activation show', and force the copy to keep with "
            f"'palisade activation force {forced_one.role} --copy ... {OLDER_OPTION}'"
        )
    fields = {name: getattr(forced_one, name) for name in forced_one.__slots__}
    return ForcedActivation(**{**fields, "epoch": agreed.epoch})
