"""Lookups needed to determine the rights of a request: the keys of a lease, the operation of a procedure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from palisade.api.services import NodeServices
from palisade.catalog.errors import NoSuchProcedure
from palisade.service.authorization.needs import LeaseKeys


@dataclass(frozen=True, slots=True)
class Lookups:
    """`procedure`: the operation and the fields with which it was begun."""

    lease_keys: LeaseKeys
    procedure: Callable[[str], Awaitable[tuple[str, Any]]]


def lookups_of(services: NodeServices) -> Lookups:
    """The keys of a lease as this node knows them: a client that attaches a key accepts that any client that may end
    the lease deletes it."""

    async def procedure(id_: str) -> tuple[str, Any]:
        """Raises NoSuchProcedure."""
        if services.catalog is None:
            return await no_procedure(id_)
        found = await services.catalog.procedure(id_)
        return found["kind"], found["request"]

    return Lookups(services.key_values.lease_keys, procedure)


async def no_procedure(_: str) -> tuple[str, Any]:
    raise NoSuchProcedure("this node keeps no catalog: ask a member of the cluster")


NOTHING = Lookups(lambda _: (), no_procedure)
"""At a node that is no member."""
