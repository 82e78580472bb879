"""Who looks at a simulated world from outside, and what it asks of that world: little, so that one rule serves several.

The worlds are a whole cluster (`tests/sim/world.py`) and a bare Raft group (`tests/support/raft_cluster.py`). Each
calls the hooks for what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class Violation(AssertionError):
    """What must never happen has."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


class Member(Protocol):
    """A member of the group. `disk`: what survives; another one where that was lost. `starts` counts from 1."""

    id: str
    disk: Any
    starts: int
    group: Any
    """None while it is not put together."""

    @property
    def failed(self) -> bool:
        """It has stopped itself."""
        ...


class View(Protocol):
    """`network.overhear` is told (sender, receiver, kind, body) of each message that leaves a member."""

    network: Any

    @property
    def members(self) -> Sequence[Any]: ...
    def by_id(self, member: str) -> Any: ...
    def fail(self, checker: str, text: str) -> None:
        """Keeps and raises a Violation."""
        ...


class Onlooker:
    """One property. Each hook may call `fail`."""

    name = "onlooker"

    def __init__(self, world: View) -> None:
        self.world: Any = world

    def looking(self) -> AbstractContextManager[None]:
        """Around the whole run."""
        return nullcontext()

    def wired(self, host: Any) -> None:
        """A start of a node has been put together."""

    def opened(self, host: Any, vault: Any) -> None:
        """Its vault is open, and nothing was done with it yet."""

    def turned(self, host: Any) -> None:
        """A process of this node has had its turn. In the simulator: one that changed `tests.sim.node.Host.state`."""

    def killed(self, host: Any) -> None:
        """Its process is about to be gone, perhaps in the middle of a turn: `turned` is not called for what it did in
        that, and others may have heard of it."""

    def applied(self, host: Any, index: int, term: int, commands: Sequence[bytes]) -> None:
        """Its state machine has applied this entry."""

    def committed(self, events: Any) -> None:
        """The first store has applied this revision."""

    def answered(self, host: Any, call: Any, since: int, answer: Any) -> None:
        """A node answers a request of the catalog, now. `since`: up to where all was committed when it began to."""

    def waited(self, host: Any, revision: int, key: bytes, item: Any) -> None:
        """A reader beside a node has waited for this revision, and is shown that."""

    def backed_up(self, backup: Any) -> None:
        """Somebody has taken it, and it is whole."""

    def restored(self, base: Any) -> None:
        """The world goes on from a backup: what this one is to know of the time before. It has seen nothing yet."""

    def settled(self) -> None:
        """Everything is whole and quiet again."""

    def ended(self) -> None:
        """The run is over, whatever it has come to."""

    def fail(self, text: str) -> None:
        self.world.fail(self.name, text)
