"""Every operation by its name. Pure."""

from __future__ import annotations

from palisade.catalog.errors import BadField
from palisade.catalog.operations import databases, devices, permissions, resources, tables, templates, ttl, views
from palisade.catalog.operations.operation_kind import OperationKind
from palisade.catalog.row_format import shown

KINDS: dict[str, OperationKind] = {
    kind.name: kind
    for module in (databases, tables, devices, templates, views, resources, ttl, permissions)
    for kind in module.KINDS
}


def kind_named(name: object) -> OperationKind:
    """Raises BadField."""
    found = KINDS.get(name) if isinstance(name, str) else None
    if found is None:
        raise BadField(f"there is no operation {shown(name)}; there are {', '.join(KINDS)}")
    return found
