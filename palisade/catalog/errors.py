"""Errors of the catalog. One tree; each text names the object or field and the remedy.

`code` is stable and sent to clients. `retry`: the same request may succeed later.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class CatalogError(PalisadeError):
    """Root. Nothing was changed, or the change was rolled back."""

    code = "catalog-refused"
    retry = False


class BadField(CatalogError):
    """A field of an operation is missing, unknown or invalid."""

    code = "catalog-bad-field"


class NotThere(CatalogError):
    code = "catalog-not-there"


class AlreadyThere(CatalogError):
    code = "catalog-already-there"


class NotAllowed(CatalogError):
    """The state of the object does not permit the operation."""

    code = "catalog-not-allowed"


class Busy(CatalogError):
    """Another procedure, named in the text, has locked the object, or too many procedures are open."""

    code = "catalog-busy"
    retry = True


class RolledBack(CatalogError):
    """The change could not be released to every node, or was cancelled; it was rolled back."""

    code = "catalog-rolled-back"
    retry = True


class DamagedRow(CatalogError):
    """A row below palisade/ is invalid: it was not written by the catalog."""

    code = "catalog-damaged"


class NewerRow(DamagedRow):
    """A row below palisade/ has a format of a newer version. Nothing is served from it, and nothing is removed because
    of it."""

    code = "catalog-newer-row"


class NoSuchProcedure(CatalogError):
    code = "catalog-no-such-procedure"


class ProcedureDiffers(CatalogError):
    """The ID is already used by another operation."""

    code = "catalog-procedure-differs"


class NotCancellable(CatalogError):
    """The procedure has ended, or has passed the point from which it only goes forward (F8, F9)."""

    code = "catalog-not-cancellable"


class BadRows(CatalogError):
    """A file of rows is damaged, incomplete, too large, or has a column of a type that is not supported."""

    code = "bad-rows"
