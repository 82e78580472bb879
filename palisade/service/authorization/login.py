"""Sign-in: issues a token for a user name and password. The first sign-in of a cluster creates the signing key of its
tokens."""

from __future__ import annotations

import secrets
from typing import Any

from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put, Txn
from palisade.service.authorization.authorizer import TOKEN_KEY, Authorizer
from palisade.service.authorization.rights import UserIdentity
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import PermissionsUnknown, Unauthenticated
from palisade.wire.credentials import Password
from palisade.wire.tokens import KEY_BYTES, TTL_S, Claims, sign


class Login:
    def __init__(self, service: KeyValues, authorizer: Authorizer) -> None:
        self._service, self._authorizer = service, authorizer

    async def token(self, shown: Password, address: str, ttl_s: int = TTL_S) -> tuple[str, int]:
        """(token, its expiry in ms of the wall clock). Raises Unauthenticated, TooManyLogins, PermissionsUnknown."""
        identity = await self._authorizer.identify(shown, address)
        if not isinstance(identity, UserIdentity):
            raise Unauthenticated("tokens are issued to users only: send a user name and password")
        expires_ms = int(self._authorizer.wall_s() * 1000) + ttl_s * 1000
        key = await self._key()
        return sign(Claims(identity.user, identity.credential, expires_ms), key), expires_ms

    async def _key(self) -> bytes:
        row = await self._authorizer.row(TOKEN_KEY)
        if row is None:
            await write_own(self._service, put_if_absent(TOKEN_KEY, secrets.token_bytes(KEY_BYTES)))
            row = await self._authorizer.row(TOKEN_KEY)
        if row is None:
            raise PermissionsUnknown("the signing key of tokens is not readable on this node yet: retry")
        return row.value


def put_if_absent(key: bytes, value: bytes) -> Txn:
    absent = Compare(key, CompareTarget.VERSION, CompareResult.EQUAL, 0)
    return Txn((absent,), (Put(key, value),))


async def write_own(service: KeyValues, request: Txn) -> Any:
    """A write of the node itself to keys under palisade/."""
    return await service.write(request, caller=THIS_NODE)
