"""`role.json` beside the entries: the role, this copy's activation sequence, and whether it is being filled. Pure.

Replaced completely or not at all. Every format has `format` and `checksum`. A copy without a sequence has the file too,
so that it can't serve another role.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from xxhash import xxh3_64_hexdigest

from palisade.catalog.activation import LocalSequence
from palisade.journal.errors import JournalDamaged, NewerFormat, WrongRole

NAME = "role.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class LocalState:
    """`filling`: the entries are being replaced by those of the active copy, so the journal is incomplete. `replica`:
    this copy was a replica last, so its last blocks may have been written without a sync between them."""

    role: str
    local: LocalSequence | None = None
    filling: bool = False
    replica: bool = False


def encode(state: LocalState) -> bytes:
    sequence, epoch = (state.local.sequence, state.local.epoch) if state.local else (0, 0)
    value = {"format": FORMAT, "role": state.role, "sequence": sequence, "epoch": epoch, "filling": state.filling}
    value |= {"replica": True} if state.replica else {}
    return json.dumps({**value, "checksum": _checksum(value)}, indent=1).encode() + b"\n"


def decode(packed: bytes, where: str) -> LocalState:
    """Raises NewerFormat, JournalDamaged."""
    try:
        value = json.loads(packed)
        version, checksum = value["format"], value.pop("checksum")
        if checksum != _checksum(value):
            raise ValueError("the checksum does not match")
        if type(version) is int and version > FORMAT:
            raise NewerFormat(f"{where} has format {version}, this version reads {FORMAT}: install a newer version")
        local = LocalSequence(value["sequence"], value["epoch"]) if value["sequence"] else None
        return LocalState(value["role"], local, value["filling"], value.get("replica", False))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise JournalDamaged(
            f"{where} is damaged ({error}): if the other copy is complete, move this directory aside and start empty"
        ) from None


def check_role(state: LocalState, role: str, where: str) -> None:
    """Raises WrongRole."""
    if state.role != role:
        raise WrongRole(f"{where} belongs to role {state.role}, not {role}: give another directory or role")


def _checksum(value: dict[str, object]) -> str:
    return xxh3_64_hexdigest(json.dumps(value, sort_keys=True).encode())
