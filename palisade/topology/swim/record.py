"""The record of one node, and the order of two records of it. Pure.

The records of one name are totally ordered by (incarnation, instance, state), and every node keeps the greatest one it
has received. Thus order, number and route of their arrival do not matter: all nodes converge. A report that a live node
is dead only makes it a suspect, which becomes dead unless it refutes in time.

`instance` is drawn at process start. `incarnation` grows: by one when a node refutes its failure, and above every known
value when a node returns under its name. Thus a returning node is always newer, and rumours about its former process do
not affect it (R9).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

NAME_BYTES_MAX = 63
INSTANCE_BYTES_MAX = 32
ADDRESS_BYTES_MAX = 261
TAGS_BYTES_MAX = 400
TAGS_MAX = 8
INCARNATION_MAX = (1 << 63) - 1


class SwimState(enum.IntEnum):
    """The order decides between two records of one incarnation of one instance."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


@dataclass(frozen=True, slots=True)
class SwimIdentity:
    """One process of a node: the same name with another instance is another process."""

    name: str
    instance: str


@dataclass(frozen=True, slots=True)
class Record:
    """`address`: 'host:port' of its SWIM socket. `tags`: advertised by the node, sorted by name."""

    name: str
    address: str
    instance: str
    incarnation: int = 0
    state: SwimState = SwimState.ALIVE
    tags: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a record that does not fit a message."""
        for what, text, most in (
            ("name", self.name, NAME_BYTES_MAX),
            ("address", self.address, ADDRESS_BYTES_MAX),
            ("instance", self.instance, INSTANCE_BYTES_MAX),
        ):
            if not 1 <= len(text.encode()) <= most:
                raise ValueError(f"{what} {text[:64]!r} must have 1 to {most} bytes")
        size = sum(len(name.encode()) + len(value.encode()) for name, value in self.tags)
        if size > TAGS_BYTES_MAX or len(self.tags) > TAGS_MAX:
            raise ValueError(
                f"{self.name} has {len(self.tags)} tags of {size} bytes; the limit is {TAGS_MAX} tags of "
                f"{TAGS_BYTES_MAX} bytes"
            )
        if not 0 <= self.incarnation <= INCARNATION_MAX:
            raise ValueError(f"incarnation {self.incarnation} of {self.name} is not in 0 to {INCARNATION_MAX}")

    @property
    def identity(self) -> SwimIdentity:
        return SwimIdentity(self.name, self.instance)

    @property
    def is_live(self) -> bool:
        """Whether it belongs to the physical topology; a suspect does."""
        return self.state <= SwimState.SUSPECT

    def tag(self, name: str) -> str | None:
        return dict(self.tags).get(name)

    def supersedes(self, other: Record) -> bool:
        return self.order > other.order

    @property
    def order(self) -> tuple[int, str, int]:
        return (self.incarnation, self.instance, self.state)

    def become(self, state: SwimState) -> Record:
        return replace(self, state=state)


def sorted_tags(tags: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(tags.items()))
