"""The messages between copies, and between clients and copies. Bodies are lists of plain values. Pure.

A connection begins with HELLO [format, role]; the other side answers WELCOME [format, role, name] or REFUSED.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from palisade.journal import errors
from palisade.journal.errors import JournalError, NewerFormat, NotJournalPort, ReplicaRefused, WrongRole
from palisade.journal.history import Run

FORMAT = 1
RUNS_MAX = 1000
"""Maximum number of runs that a replica sends, the newest ones; entries of older runs are sent again."""


class JournalMessageKind(enum.IntEnum):
    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    """[request id, code, text, retry, address of the active copy or ""]"""

    APPEND = 10
    """[request id, [content, ...]]"""
    APPENDED = 11
    """[request id, first, last]"""
    READ = 12
    """[request id, first, bytes]"""
    ENTRIES = 13
    """[request id, [[number, content], ...], last acknowledged]"""
    STATUS = 14
    """[request id]"""
    STATE = 15
    """[request id, {...}]"""

    ATTACH = 20
    """[name, configured as primary, [[sequence, last, chain], ...]]"""
    ATTACHED = 21
    """[sequence, last common entry, chain there]"""
    MATCHED = 22
    """[last common entry]: the end of the replica's journal now."""
    BLOCKS = 23
    """[bytes of blocks]"""
    SYNCED = 24
    """[last synced entry]"""
    ADOPT = 25
    """[sequence, epoch, entry]: adopt once this entry is synced."""
    ADOPTED = 26
    """[sequence]"""
    HEARD = 27
    """[]: sent periodically, so that the replica notices a dead connection."""


@dataclass(frozen=True, slots=True)
class AppendRefusal:
    request: int
    code: str
    text: str
    retry: bool
    active: str = ""

    def body(self) -> list[object]:
        return [self.request, self.code, self.text, self.retry, self.active]

    def error(self) -> JournalError:
        """The error that the other side raised."""
        kinds = [getattr(errors, name) for name in dir(errors)]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, JournalError) and kind.code == self.code:
                return kind(self.text)
        return JournalError(self.text)


def read_refusal(body: Any) -> AppendRefusal:
    """Of a REFUSED message. A node of Palisade has another body there: NotJournalPort."""
    if isinstance(body, list) and len(body) == 5:
        return AppendRefusal(*body)
    reason = body.get("reason") if isinstance(body, dict) else body
    return AppendRefusal(
        0, NotJournalPort.code, f"this is not the port of a journal copy, its answer is: {reason}", False
    )


def refusal_of(error: JournalError, request: int = 0, active: str = "") -> AppendRefusal:
    return AppendRefusal(request, error.code, str(error), error.retry, active)


def check_hello(body: object, role: str) -> None:
    """Raises ReplicaRefused, NewerFormat, WrongRole."""
    if not isinstance(body, list) or len(body) != 2:
        raise ReplicaRefused("the first message is not the HELLO [format, role] of a client of a journal")
    version, theirs = body
    if version != FORMAT:
        raise NewerFormat(f"the peer speaks journal protocol {version}, this copy {FORMAT}: install the same version")
    if theirs != role:
        raise WrongRole(f"this is a copy of role {role}, not {theirs}: check the role and the addresses")


def runs_body(runs: list[Run]) -> list[list[int]]:
    return [[run.sequence, run.last, run.chain] for run in runs[-RUNS_MAX:]]


def runs_from(body: list[list[int]]) -> list[Run]:
    return [Run(*each) for each in body]
