"""What is known of one node, and which of two records of it is the newer one. Pure.

Records of one name are totally ordered, by (incarnation, instance, state), and every node keeps the greatest that it
has heard. So it does not matter in which order, how often or by which way records arrive: all nodes end with the same.
That somebody is dead is not taken on hearsay: it is suspected then, and dead if it does not refute that in time.

`instance` is drawn when the process starts, `incarnation` grows: by one when a node refutes that it failed, and above
whatever is known when a node comes back under its name. So a returning node is always a newer one, and what is
still said of its former life can't harm it (R9).
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


class State(enum.IntEnum):
    """The order decides between two records of one incarnation of one instance."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """A node as it is now: the same name with another instance is another process."""

    name: str
    instance: str


@dataclass(frozen=True, slots=True)
class Record:
    """`address`: 'host:port' of its SWIM socket. `tags`: what the node wants others to know, sorted by name."""

    name: str
    address: str
    instance: str
    incarnation: int = 0
    state: State = State.ALIVE
    tags: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a record that could not be sent."""
        for what, text, most in (
            ("name", self.name, NAME_BYTES_MAX),
            ("address", self.address, ADDRESS_BYTES_MAX),
            ("instance", self.instance, INSTANCE_BYTES_MAX),
        ):
            if not 1 <= len(text.encode()) <= most:
                raise ValueError(f"the {what} {text[:64]!r} has to have 1 to {most} bytes")
        size = sum(len(name.encode()) + len(value.encode()) for name, value in self.tags)
        if size > TAGS_BYTES_MAX or len(self.tags) > TAGS_MAX:
            raise ValueError(
                f"{self.name} has {len(self.tags)} tags of {size} bytes, {TAGS_MAX} of {TAGS_BYTES_MAX} are the limit"
            )
        if not 0 <= self.incarnation <= INCARNATION_MAX:
            raise ValueError(f"the incarnation {self.incarnation} of {self.name} is out of range")

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.instance)

    @property
    def is_live(self) -> bool:
        """Whether it belongs to the physical topology: a node that is only suspected still does."""
        return self.state <= State.SUSPECT

    def tag(self, name: str) -> str | None:
        return dict(self.tags).get(name)

    def supersedes(self, other: Record) -> bool:
        return self.order > other.order

    @property
    def order(self) -> tuple[int, str, int]:
        return (self.incarnation, self.instance, self.state)

    def become(self, state: State) -> Record:
        return replace(self, state=state)


def sorted_tags(tags: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(tags.items()))
