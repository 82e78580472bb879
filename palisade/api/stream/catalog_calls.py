"""The calls of the stream about the catalog: name -> function. Arguments and results are msgpack values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from palisade.api.services import NodeServices
from palisade.catalog.errors import BadField
from palisade.metastore.errors import InvalidRequest
from palisade.service.catalog import LIMIT, Catalog

Call = Callable[..., Awaitable[Any]]


class CatalogCalls:
    def __init__(self, services: NodeServices) -> None:
        self._services = services

    def by_name(self) -> dict[str, Call]:
        return {
            "catalog_do": self._do,
            "catalog_objects": self._objects,
            "catalog_object": self._object,
            "procedures": self._procedures,
            "procedure": self._procedure,
            "procedure_cancel": self._cancel,
        }

    @property
    def _catalog(self) -> Catalog:
        found = self._services.catalog
        if found is None:
            raise InvalidRequest("this node keeps no catalog: ask a member of the cluster")
        return found

    async def _do(self, kind: str, fields: Any, procedure: str, wait_s: float) -> dict[str, Any]:
        """Never raises after the operation has begun: the result shows its progress."""
        outcome = await self._catalog.do(kind, fields, procedure, a_number(wait_s))
        return self._catalog.view(outcome.procedure, released=outcome.released)

    async def _objects(self, collection: str, below: str, after: str) -> dict[str, Any]:
        return await self._catalog.objects(collection, below=a_text(below), after=a_text(after), limit=LIMIT)

    async def _object(self, collection: str, name: str) -> dict[str, Any]:
        return await self._catalog.object(collection, a_text(name))

    async def _procedures(self, open_only: bool, limit: int) -> list[dict[str, Any]]:
        if type(limit) is not int or not 1 <= limit <= LIMIT:
            raise BadField(f"limit: {limit!r:.60} is not a whole number from 1 to {LIMIT}")
        return await self._catalog.procedures(open_only=bool(open_only), limit=limit)

    async def _procedure(self, id_: str, wait_s: float) -> dict[str, Any]:
        return await self._catalog.procedure(a_text(id_), a_number(wait_s))

    async def _cancel(self, id_: str) -> dict[str, Any]:
        return await self._catalog.cancel(a_text(id_))


def a_text(value: Any) -> str:
    if type(value) is not str:
        raise BadField(f"{value!r:.60} is not a text")
    return value


def a_number(value: Any) -> float:
    if type(value) not in (int, float):
        raise BadField(f"{value!r:.60} is not a number")
    number: float = value
    return number
