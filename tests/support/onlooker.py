"""Observers of a simulated world, and the small interface that they need of it, so that one rule serves several worlds.

The worlds are a whole cluster (`tests/sim/world.py`) and a bare Raft group (`tests/support/raft_cluster.py`). Each
calls the hooks that apply to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class Violation(AssertionError):
    """A property that must always hold was violated."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


class Member(Protocol):
    """A member of the group. `disk`: what survives a crash; replaced if it was lost. `starts` counts from 1."""

    id: str
    disk: Any
    starts: int
    group: Any
    """None while it is not constructed."""

    @property
    def failed(self) -> bool:
        """It has stopped itself."""
        ...


class View(Protocol):
    """`network.overhear` gets (sender, receiver, kind, body) of each message that leaves a member."""

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
        """A start of a node has been constructed."""

    def opened(self, host: Any, vault: Any) -> None:
        """Its vault is open and unused so far."""

    def turned(self, host: Any) -> None:
        """A process of this node has had its turn. In the simulator: one that changed `tests.sim.node.Host.state`."""

    def killed(self, host: Any) -> None:
        """Its process is about to be killed, perhaps in the middle of a turn: `turned` is not called for that turn, and
        other nodes may have seen its effects."""

    def applied(self, host: Any, index: int, term: int, commands: Sequence[bytes]) -> None:
        """Its state machine has applied this entry."""

    def committed(self, events: Any) -> None:
        """The first store has applied this revision."""

    def answered(self, host: Any, call: Any, since: int, answer: Any) -> None:
        """A node responds to a request of the catalog, now. `since`: the last revision committed when it began to."""

    def waited(self, host: Any, revision: int, key: bytes, item: Any) -> None:
        """A reader beside a node gets this value as of this revision, for which it waited or which the result names."""

    def backed_up(self, backup: Any) -> None:
        """A complete backup was taken."""

    def restored(self, base: Any) -> None:
        """The world continues from a backup; the argument is this observer's state of the time before. It has seen
        nothing yet."""

    def settled(self) -> None:
        """Every node has recovered and is quiet again."""

    def ended(self) -> None:
        """The run is over, whatever its result."""

    def fail(self, text: str) -> None:
        self.world.fail(self.name, text)
