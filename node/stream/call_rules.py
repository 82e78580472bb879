"""Which rights the calls of the stream need. One that has no line here needs everything. Lookups are handed in."""

from __future__ import annotations

from typing import Any

from node.authorization.lookups import Lookups
from node.authorization.operations import needs_of_object, needs_of_objects, needs_of_operation
from service.authorization.needs import EVERYTHING, Needs, reading
from vault.regions import REGIONS_END, REGIONS_PREFIX

SIGNED_IN = frozenset({"ping", "status", "members", "topology", "leases", "digest", "fencing"})
ADMINS = frozenset(
    {
        "member_add",
        "member_promote",
        "member_remove",
        "transfer",
        "procedures",
        "region_set",
        "region_change",
        "region_delete",
    }
)
NAMED = frozenset(
    {"regions", "lease_info", "catalog_do", "catalog_objects", "catalog_object", "procedure", "procedure_cancel"}
)
"""Those whose needs are in their arguments."""


async def needs_of_call(name: Any, arguments: Any, look: Lookups) -> Needs:
    if type(name) is not str:
        return (EVERYTHING,)
    if name in SIGNED_IN:
        return ()
    given = [*arguments, None, None][:2] if type(arguments) is list else [None, None]
    if name == "lease_info" and type(given[0]) is int:
        return tuple(map(reading, look.lease_keys(given[0])))
    if name == "regions":
        return (reading(REGIONS_PREFIX, REGIONS_END),)
    if name == "catalog_do":
        return needs_of_operation(*given)
    if name == "catalog_objects":
        return needs_of_objects(*given)
    if name == "catalog_object":
        return needs_of_object(*given)
    if name in ("procedure", "procedure_cancel") and type(given[0]) is str:
        return needs_of_operation(*await look.procedure(given[0]))
    return (EVERYTHING,)
