"""What has to be looked up to know which rights a request needs: the keys of a lease, what a procedure does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from palisade.api.services import NodeServices
from palisade.catalog.errors import NoSuchProcedure
from palisade.service.authorization.needs import LeaseKeys


@dataclass(frozen=True, slots=True)
class Lookups:
    """`procedure`: the operation and the fields that it was begun with."""

    lease_keys: LeaseKeys
    procedure: Callable[[str], Awaitable[tuple[str, Any]]]


def lookups_of(services: NodeServices) -> Lookups:
    """The keys of a lease as this node knows them: who attaches a key leaves its fate to whoever may end the lease."""

    async def procedure(id_: str) -> tuple[str, Any]:
        """Raises NoSuchProcedure."""
        if services.catalog is None:
            return await no_procedure(id_)
        found = await services.catalog.procedure(id_)
        return found["kind"], found["request"]

    return Lookups(services.key_values.lease_keys, procedure)


async def no_procedure(_: str) -> tuple[str, Any]:
    raise NoSuchProcedure("this node keeps no catalog: ask a member")


NOTHING = Lookups(lambda _: (), no_procedure)
"""At a node that is no member."""
