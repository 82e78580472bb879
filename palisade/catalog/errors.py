"""Why the catalog refuses something. One tree; each text names the object or field and what to do.

`code` is stable and travels on the wire; `retry` says whether the same request may help later.
"""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class CatalogError(PalisadeError):
    """Root. Nothing was changed, or what was changed was taken back."""

    code = "catalog-refused"
    retry = False


class BadField(CatalogError):
    """A field of an operation is missing, too many, or has a value that it can't have."""

    code = "catalog-bad-field"


class NotThere(CatalogError):
    code = "catalog-not-there"


class AlreadyThere(CatalogError):
    code = "catalog-already-there"


class NotAllowed(CatalogError):
    """The object is not in a state in which this could be done."""

    code = "catalog-not-allowed"


class Busy(CatalogError):
    """Another procedure works on the object, or too many are open: the text names it."""

    code = "catalog-busy"
    retry = True


class RolledBack(CatalogError):
    """The change could not be released to every node, or somebody has cancelled it: it was taken back."""

    code = "catalog-rolled-back"
    retry = True


class DamagedRow(CatalogError):
    """A row below palisade/ is not what the catalog writes: somebody else wrote it."""

    code = "catalog-damaged"


class NoSuchProcedure(CatalogError):
    code = "catalog-no-such-procedure"


class ProcedureDiffers(CatalogError):
    """The id belongs to another operation already."""

    code = "catalog-procedure-differs"


class NotCancellable(CatalogError):
    """It has ended, or stands behind the point from which it only goes forward (F8, F9)."""

    code = "catalog-not-cancellable"
