"""What the node's APIs need of a Raft group: `raftgroup.group.Group` has it, and so has the fake of the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from raftgroup.errors import RaftError
from raftgroup.membership import Member, Membership
from raftgroup.proposals import Applied
from raftgroup.role import Role
from raftgroup.status import GroupStatus
from service.fencing_errors import FencingError

Outcome = Applied | RaftError | FencingError
"""Of a proposal; FencingError: it is applied, and not released in time."""
Done = Callable[[Outcome], None]


class GroupFace(Protocol):
    def submit(self, command: bytes, done: Done, *, timeout_s: float = 5.0) -> None:
        """Have `done` called exactly once, in a later turn of the loop. Raises RaftError where nothing began."""
        ...

    def submit_all(
        self, commands: Sequence[bytes], done: Done, *, timeout_s: float = 5.0, weight: int | None = None
    ) -> None:
        """As `submit`, for commands that come to one end together. `weight`: as how many they count."""
        ...

    async def propose(self, command: bytes, *, timeout_s: float = 5.0) -> Applied: ...
    def try_read_barrier(self) -> bool:
        """Whether a read of the local state is linearizable right now."""
        ...

    async def read_barrier(self, *, timeout_s: float = 5.0) -> int: ...
    async def add(self, member: Member) -> None: ...
    async def promote(self, member_id: str) -> None: ...
    async def remove(self, member_id: str) -> None: ...
    async def transfer(self, target: str | None) -> str: ...
    def status(self) -> GroupStatus: ...

    @property
    def leader(self) -> str | None: ...
    @property
    def leads(self) -> bool: ...
    @property
    def term(self) -> int: ...
    @property
    def role(self) -> Role: ...
    @property
    def members(self) -> Membership: ...
    @property
    def generation(self) -> int: ...
