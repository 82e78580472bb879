"""Users, roles and passwords in a store, and an authorizer over it; passwords are compared in plain text, for speed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from palisade.catalog import keys
from palisade.catalog.permissions import PermissionGrant, Subject
from palisade.metastore.requests import FROM_KEY, DeleteRange, Put
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.needs import Need
from palisade.service.authorization.rights import PermissionRow
from palisade.service.authorization.rows import StoreRows, WouldBlock
from palisade.service.callers import UNRESTRICTED
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import PermissionsUnknown
from palisade.wire.credentials import Password, header_of, node_proof
from tests.support.hand_clock import Clock

JOIN_TOKEN = "a join token"
PROOF = node_proof(JOIN_TOKEN)
AS_NODE = header_of(PROOF)


def as_user(name: str, password: str = "") -> dict[str, str]:
    return header_of(Password(name, password or f"{name}s password"))


def same(password: str, credential: Any) -> bool:
    """Instead of scrypt."""
    return isinstance(credential, dict) and credential.get("plain") == password


def covers(need: Need, key: bytes, range_end: bytes = b"") -> bool:
    """Whether it is the right on this key, or on the whole range."""
    if not need.range_end:
        return need.key == key and not range_end
    last = range_end or key + b"\0"
    return need.key <= key and (need.range_end == FROM_KEY or last <= need.range_end)


class FenceableRows(StoreRows):
    """Rows of a node that may be fenced: `try_read` raises. `cut_off`: the cluster cannot be asked either."""

    def __init__(self, service: KeyValues) -> None:
        super().__init__(service)
        self.fenced = self.cut_off = False
        self.asked_later = 0

    def try_read(self, key: bytes) -> PermissionRow | None:
        if self.fenced:
            raise WouldBlock
        return super().try_read(key)

    async def read(self, key: bytes) -> PermissionRow | None:
        self.asked_later += 1
        if self.cut_off:
            raise PermissionsUnknown("the cluster cannot be asked: retry")
        return await super().read(key)


class Users:
    """Rows of permissions, as procedures write them."""

    def __init__(self, service: KeyValues) -> None:
        self.service = service

    async def make(self, name: str, *grants: tuple[str, str], roles: tuple[str, ...] = (), password: str = "") -> None:
        user = Subject("user", name, tuple(PermissionGrant(*each) for each in grants), roles)
        credential = json.dumps({"plain": password or f"{name}s password"}).encode()
        await self.service.write(Put(user.key, user.to_bytes()), caller=UNRESTRICTED)
        await self.service.write(Put(keys.at(keys.CREDENTIALS, name), credential), caller=UNRESTRICTED)

    async def role(self, name: str, *grants: tuple[str, str]) -> None:
        role = Subject("role", name, tuple(PermissionGrant(*each) for each in grants))
        await self.service.write(Put(role.key, role.to_bytes()), caller=UNRESTRICTED)

    async def regrant(self, name: str, *grants: tuple[str, str], roles: tuple[str, ...] = ()) -> None:
        """Replaces all grants by these."""
        user = Subject("user", name, tuple(PermissionGrant(*each) for each in grants), roles)
        await self.service.write(Put(user.key, user.to_bytes()), caller=UNRESTRICTED)

    async def password(self, name: str, password: str) -> None:
        await self.service.write(
            Put(keys.at(keys.CREDENTIALS, name), json.dumps({"plain": password}).encode()), caller=UNRESTRICTED
        )

    async def drop(self, name: str) -> None:
        await self.service.write(DeleteRange(keys.at(keys.USERS, name)), caller=UNRESTRICTED)
        await self.service.write(DeleteRange(keys.at(keys.CREDENTIALS, name)), caller=UNRESTRICTED)


async def usual(users: Users) -> None:
    """root may do everything, alice reads /a/ and writes /a/x/, bob nothing."""
    await users.make("root", ("admin", ""))
    await users.role("writers", ("write", "/a/x/"))
    await users.make("alice", ("read", "/a/"), roles=("writers",))
    await users.make("bob")


def gate_over(rows: StoreRows, clock: Clock, **more: Any) -> Authorizer:
    given: Mapping[str, Any] = {"now": clock.now, "wall_s": clock.wall, "fits": same, **more}
    return Authorizer(rows, PROOF, **given)
