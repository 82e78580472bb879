"""What a vault refuses and why: one tree, each error with what to do.

A vault can always be made again from the cluster: so the last remedy is to put it aside and take a snapshot.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError

RESET = "put it aside (palisade vault reset) and start the node: it takes a snapshot from the cluster, nothing is lost"


class VaultError(PalisadeError):
    """Root. `retry` says whether the same call may help later, with nothing changed by hand."""

    code = "vault-unusable"
    retry = False


class VaultDamaged(VaultError):
    """Stored bytes are not what was written. They are never served."""

    code = "corrupt"


class VaultForeign(VaultError):
    """Not a vault, or that of another node or cluster."""


class VaultNewer(VaultError):
    """Written by a newer program, in a format that this one does not know."""


class VaultUnusable(VaultError):
    """The file can't be used now: in use, no permission, disk full, I/O error. What it holds is unchanged."""

    retry = True


class VaultGap(VaultError):
    """A revision that does not follow the last applied one. The caller is wrong; the vault is unchanged."""


class VaultDiverged(VaultError):
    """A change does not fit what the vault holds: vault and cluster do not share their history."""


class VaultRecovering(VaultError):
    """The content is between two revisions: a snapshot was begun and not finished. It is not to be read."""


class VaultUngated(VaultError):
    """A change that is not released was to be applied while the vault is served. The caller is wrong."""


class ReadRefused(VaultError):
    """A fenced read (`reader.py`) that was not answered: never with something that may be stale."""


class Fenced(ReadRefused):
    """The vault must not be trusted now: its node has no lease, recovers, or is down. It comes back by itself."""

    code = "fenced"
    retry = True


class Pending(ReadRefused):
    """The key has a change that is committed and not released everywhere yet, and the wait for it was too long."""

    code = "read-pending"
    retry = True


class Denied(ReadRefused):
    """The region says that what can't be known is refused (F7): to be taken for a no."""

    code = "fenced-denied"


class NotReached(ReadRefused):
    """The vault has not come to the revision in the time given."""

    code = "not-reached"
    retry = True
