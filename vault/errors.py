"""The errors of a vault: one tree, each error with its remedy.

A vault can always be rebuilt from the cluster, so the last remedy is to put it aside and take a snapshot.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError

RESET = "put it aside (palisade vault reset) and start the node: it takes a snapshot from the cluster, nothing is lost"


class VaultError(PalisadeError):
    """Root. `retry`: whether the same call may succeed later without intervention."""

    code = "vault-unusable"
    retry = False


class VaultDamaged(VaultError):
    """Stored bytes were altered. They are never served."""

    code = "corrupt"


class VaultForeign(VaultError):
    """Not a vault, or the vault of another node or cluster."""


class VaultNewer(VaultError):
    """Written by a newer program, in a format that this version does not know."""


class UnknownPages(VaultError):
    """Pages of the file do not have the format that `page_keys.py` knows. LMDB itself can read them."""


class VaultUnusable(VaultError):
    """The file cannot be used: in use, no permission, disk full, I/O error. Its content is unchanged."""

    retry = True


class VaultGap(VaultError):
    """A revision that does not follow the last applied one. An error of the caller; the vault is unchanged."""


class VaultDiverged(VaultError):
    """A change does not fit the content of the vault: vault and cluster have different histories."""


class VaultRecovering(VaultError):
    """The content is between two revisions: a snapshot was begun and not finished. It cannot be read."""


class VaultUngated(VaultError):
    """An unreleased change was to be applied while the vault is served. An error of the caller."""


class ReadRefused(VaultError):
    """A fenced read (`reader.py`) without an answer: nothing possibly stale is returned."""


class Fenced(ReadRefused):
    """The vault must not be trusted now: its node has no lease, is recovering, or is down. Temporary."""

    code = "fenced"
    retry = True


class Pending(ReadRefused):
    """The key has a committed change that is not released on every node, and the wait for it timed out."""

    code = "read-pending"
    retry = True


class Denied(ReadRefused):
    """The policy of the region refuses reads that cannot be verified (F7): treat it as denial."""

    code = "fenced-denied"


class NotReached(ReadRefused):
    """The vault did not reach the revision in the given time."""

    code = "not-reached"
    retry = True
