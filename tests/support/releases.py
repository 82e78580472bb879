"""Releases of the catalog that a test controls while the node runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palisade.service.catalog_store import at_once


@dataclass
class ControlledReleases:
    """As `service.catalog_store.CatalogReleases`, with fields that may be replaced. At first a commit is a release."""

    released: Callable[[int], Awaitable[None]] = at_once
    waiting_for: Callable[[int], list[str]] = lambda revision: []
