"""What a vault refuses and why: one tree, each error with what to do.

A vault can always be made again from the cluster: so the last remedy is to put it aside and take a snapshot.
"""

from __future__ import annotations

RESET = "put it aside (palisade vault reset) and start the node: it takes a snapshot from the cluster, nothing is lost"


class VaultError(Exception):
    """Root. `retry` says whether the same call may help later, with nothing changed by hand."""

    retry = False


class VaultDamaged(VaultError):
    """Stored bytes are not what was written. They are never served."""


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
