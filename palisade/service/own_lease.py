"""The lease of this node as the write and read path sees it: opened by the component that holds it, read for every
write."""

from __future__ import annotations

from typing import Protocol

from palisade.service.strict_commands import Prefixes


class LeaseHolder(Protocol):
    @property
    def prefixes(self) -> Prefixes:
        """The strict prefixes that the vault of this node knows."""
        ...

    @property
    def serves(self) -> bool:
        """Whether a lease is held."""
        ...


class OwnLease:
    """`holder`: None until the vault of this node is open."""

    __slots__ = ("holder",)

    def __init__(self, holder: LeaseHolder | None = None) -> None:
        self.holder = holder

    def opened(self, holder: LeaseHolder) -> None:
        """The vault of this node is open."""
        self.holder = holder
