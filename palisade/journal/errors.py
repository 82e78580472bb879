"""Errors of the journal. One tree; each text names the role, file or address, and the remedy."""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class JournalError(PalisadeError):
    """Root."""

    code = "journal-refused"
    retry = False


class NotActive(JournalError):
    """This copy does not serve clients. Nothing was appended. `active`: the address of the active copy, if known."""

    code = "journal-not-active"
    retry = True
    active = ""


class EntryRefused(JournalError):
    """An entry or a batch is too large. Nothing was appended."""

    code = "journal-entry-refused"


class AppendUnknown(JournalError):
    """The entries may have been appended: the active copy lost its role or its connection before it answered."""

    code = "journal-append-unknown"


class DirectoryInUse(JournalError):
    """Another process has the directory, or it is not writable."""

    code = "journal-directory-in-use"


class WrongRole(JournalError):
    """The directory, the peer or the client belongs to another role."""

    code = "journal-wrong-role"


class NewerFormat(JournalError):
    """A file or a peer has a format that this version does not read."""

    code = "journal-newer-format"


class JournalDamaged(JournalError):
    """A checksum does not match in synced data, of which nothing is served. `damage`: the text without the remedy, for
    other users of the files, which have remedies of their own."""

    code = "journal-damaged"

    def __init__(self, damage: str, remedy: str = "") -> None:
        super().__init__(f"{damage}: {remedy}" if remedy else damage)
        self.damage = damage


class ActivationStopped(JournalError):
    """The agreed and the local sequence contradict each other; only an operator can decide which copy to keep."""

    code = "journal-activation-stopped"


class ReplicaRefused(JournalError):
    """The active copy accepts no replica now, or the replica sent an unexpected message."""

    code = "journal-replica-refused"
    retry = True


class NotJournalPort(JournalError):
    """The address is not that of a journal copy. The text names what listens there. Nothing was done."""

    code = "wrong-port"


class PortUnusable(JournalError):
    """Cannot listen on the address. Nothing was started."""

    code = "journal-port-unusable"
