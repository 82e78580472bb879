"""Rights that each call of the stream needs: one line per call. A call that is not listed needs every right, and a test
fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from palisade.api.permission_lookups import Lookups
from palisade.catalog.segment import RECORDS
from palisade.metastore.command_codec import decode_command
from palisade.metastore.requests import prefix_end
from palisade.service.authorization.callers import Access
from palisade.service.authorization.needs import EVERYTHING, Needs, needs_of, reading
from palisade.service.authorization.operations import needs_of_object, needs_of_objects, needs_of_operation
from palisade.vault.regions import REGIONS_END, REGIONS_PREFIX

Reads = Callable[[Sequence[Any], Lookups], Awaitable[Needs]]
"""(arguments, lookups) -> needs. Raises IndexError, TypeError for wrong arguments."""


async def regions(_: Sequence[Any], __: Lookups) -> Needs:
    return (reading(REGIONS_PREFIX, REGIONS_END),)


async def lease_info(arguments: Sequence[Any], look: Lookups) -> Needs:
    return tuple(map(reading, look.lease_keys(_typed(arguments[0], int))))


async def catalog_do(arguments: Sequence[Any], _: Lookups) -> Needs:
    return needs_of_operation(arguments[0], arguments[1])


async def catalog_objects(arguments: Sequence[Any], _: Lookups) -> Needs:
    return needs_of_objects(arguments[0], arguments[1])


async def catalog_object(arguments: Sequence[Any], _: Lookups) -> Needs:
    return needs_of_object(arguments[0], arguments[1])


async def key_range(arguments: Sequence[Any], _: Lookups) -> Needs:
    """A call whose first arguments are the range that is read."""
    return (reading(_typed(arguments[0], bytes), _typed(arguments[1], bytes)),)


async def procedure(arguments: Sequence[Any], look: Lookups) -> Needs:
    return needs_of_operation(*await look.procedure(_typed(arguments[0], str)))


async def segments_txn(arguments: Sequence[Any], look: Lookups) -> Needs:
    request, _ = decode_command(_typed(arguments[0], bytes))
    return needs_of(request, look.lease_keys)


async def segments_of(arguments: Sequence[Any], _: Lookups) -> Needs:
    """The records of the data source, which a name of a segment begins with; without one, all records."""
    source = _typed(arguments[0], str).split("/")[0]
    start = RECORDS + f"{source}/".encode("utf-8", "replace") if source else RECORDS
    return (reading(start, prefix_end(start)),)


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.60} is not of type {kind.__name__}")
    return value


CALL_RULES: dict[str, Access | Reads] = {
    "ping": Access.AUTHENTICATED,
    "status": Access.AUTHENTICATED,
    "members": Access.AUTHENTICATED,
    "topology": Access.AUTHENTICATED,
    "leases": Access.AUTHENTICATED,
    "digest": Access.AUTHENTICATED,
    "fencing": Access.AUTHENTICATED,
    "regions": regions,
    "lease_info": lease_info,
    "catalog_do": catalog_do,
    "catalog_objects": catalog_objects,
    "catalog_object": catalog_object,
    "scan_count": key_range,
    "scan_windows": key_range,
    "scan_rows": key_range,
    "scan_changes": key_range,
    "scan_since": key_range,
    "scan_bytes": key_range,
    "pin": key_range,
    "unpin": key_range,
    "procedure": procedure,
    "procedure_cancel": procedure,
    "procedures": Access.ADMINS,
    "member_add": Access.ADMINS,
    "member_promote": Access.ADMINS,
    "member_remove": Access.ADMINS,
    "transfer": Access.ADMINS,
    "region_set": Access.ADMINS,
    "region_change": Access.ADMINS,
    "region_delete": Access.ADMINS,
    "segments_txn": segments_txn,
    "segments_announce": Access.NODES,
    "segments_lease": Access.NODES,
    "segments_lookup": segments_of,
    "segments_list": segments_of,
    "segment": segments_of,
}


def is_for_nodes(name: Any) -> bool:
    return type(name) is str and CALL_RULES.get(name) is Access.NODES


async def needs_of_call(name: Any, arguments: Any, look: Lookups) -> Needs:
    """Raises the errors of the lookup of a procedure, and NotThere for an unknown collection."""
    rule = CALL_RULES.get(name) if type(name) is str else None
    if rule is Access.AUTHENTICATED:
        return ()
    if rule is None or isinstance(rule, Access):
        return (EVERYTHING,)
    try:
        return await rule(arguments if type(arguments) is list else (), look)
    except (IndexError, TypeError):
        return (EVERYTHING,)
