"""What each call of the stream needs: one line per call. A call without a line needs everything, and a test fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from palisade.api.permission_lookups import Lookups
from palisade.service.authorization.callers import Who
from palisade.service.authorization.needs import EVERYTHING, Needs, reading
from palisade.service.authorization.operations import needs_of_object, needs_of_objects, needs_of_operation
from palisade.vault.regions import REGIONS_END, REGIONS_PREFIX

Reads = Callable[[Sequence[Any], Lookups], Awaitable[Needs]]
"""(arguments, lookups) -> needs. Raises IndexError, TypeError for arguments that a call does not have."""


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


async def procedure(arguments: Sequence[Any], look: Lookups) -> Needs:
    return needs_of_operation(*await look.procedure(_typed(arguments[0], str)))


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.60} is no {kind.__name__}")
    return value


CALL_RULES: dict[str, Who | Reads] = {
    "ping": Who.SIGNED_IN,
    "status": Who.SIGNED_IN,
    "members": Who.SIGNED_IN,
    "topology": Who.SIGNED_IN,
    "leases": Who.SIGNED_IN,
    "digest": Who.SIGNED_IN,
    "fencing": Who.SIGNED_IN,
    "regions": regions,
    "lease_info": lease_info,
    "catalog_do": catalog_do,
    "catalog_objects": catalog_objects,
    "catalog_object": catalog_object,
    "procedure": procedure,
    "procedure_cancel": procedure,
    "procedures": Who.ADMINS,
    "member_add": Who.ADMINS,
    "member_promote": Who.ADMINS,
    "member_remove": Who.ADMINS,
    "transfer": Who.ADMINS,
    "region_set": Who.ADMINS,
    "region_change": Who.ADMINS,
    "region_delete": Who.ADMINS,
}


async def needs_of_call(name: Any, arguments: Any, look: Lookups) -> Needs:
    """Raises what the lookup of a procedure and an unknown collection raise."""
    rule = CALL_RULES.get(name) if type(name) is str else None
    if rule is Who.SIGNED_IN:
        return ()
    if rule is None or isinstance(rule, Who):
        return (EVERYTHING,)
    try:
        return await rule(arguments if type(arguments) is list else (), look)
    except (IndexError, TypeError):
        return (EVERYTHING,)
