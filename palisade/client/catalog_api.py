"""The operations of the catalog: the part of `client.store_api` that needs a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class CatalogApi(ABC):
    @abstractmethod
    async def _call(self, name: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """Execute one of `api.stream.calls`."""

    async def catalog_do(
        self,
        operation: str,
        fields: dict[str, Any],
        *,
        procedure: str,
        wait_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Begin an operation (docs/catalog.md), or find the one with this id, and wait up to `wait_s` for its end.

        Returns the procedure, which is complete if `ended` and `released` are true. Raises the error it failed with.
        """
        view: dict[str, Any] = await self._call("catalog_do", operation, fields, procedure, wait_s, timeout_s=timeout_s)
        return view

    async def catalog_objects(self, collection: str, *, below: str = "") -> list[dict[str, Any]]:
        """Every object of a collection, or the objects at and below a path."""
        found: list[dict[str, Any]] = []
        page: dict[str, Any] = {"more": True, "last": ""}
        while page["more"]:
            page = await self._call("catalog_objects", collection, below, page["last"] or "")
            found += page["objects"]
        return found

    async def catalog_object(self, collection: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._call("catalog_object", collection, name)
        return found

    async def procedures(self, *, open_only: bool = False, limit: int = 100) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._call("procedures", open_only, limit)
        return found

    async def procedure(self, procedure: str, *, wait_s: float = 0.0) -> dict[str, Any]:
        """Its current state; with `wait_s`, waits up to that long until it has ended and is released."""
        found: dict[str, Any] = await self._call("procedure", procedure, wait_s)
        return found

    async def procedure_cancel(self, procedure: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._call("procedure_cancel", procedure)
        return found
