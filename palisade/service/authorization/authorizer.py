"""Authenticates callers and determines their rights, for every request anew.

Guarantee: after REVOKE, DROP USER or a change of password is acknowledged, no node admits a request that it forbids.
The permission rows are read for each request, from the vault through its fence or linearizably from the cluster
(`rows.py`), unless no permission row can have changed. A result is cached only together with the rows that it was
computed from. scrypt runs once for each version of a user's password row.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any, TypeVar

from palisade.catalog import keys
from palisade.catalog.passwords import BLOCK, COST, HASH_BYTES, MOST, PARALLEL, SALT_BYTES, fits
from palisade.catalog.row_format import NAME
from palisade.service.authorization.attempts import Attempts
from palisade.service.authorization.audit import Audit
from palisade.service.authorization.rights import (
    NodeIdentity,
    NodeRights,
    PermissionCache,
    PermissionRow,
    Rights,
    RightsReads,
    UserIdentity,
    read_rights,
)
from palisade.service.authorization.rows import Computed, FromRows, PermissionRows, Read, WouldBlock
from palisade.wire.auth_errors import (
    WRONG_PASSWORD,
    NoCredentials,
    NoUserYet,
    PermissionsUnknown,
    TooManyLogins,
    Unauthenticated,
    WrongPassword,
)
from palisade.wire.credentials import Credentials, NodeProof, Password, Token, from_header
from palisade.wire.tokens import Claims, claims_of

CHECKS_AT_A_TIME = 2
"""Each check takes 16 MiB and 50 ms of a core."""
WAITING_MAX = 128
WAIT_S_MAX = 15.0
KEPT_MAX = 4096
TOKEN_KEY = keys.PERMISSIONS + b"tokens/key"
Authenticated = Computed[tuple[UserIdentity | NodeIdentity, Rights]]
NO_CREDENTIALS = "no credentials: send a user name and password, or a token"
NO_USER_YET = (
    "the cluster has no user yet: retry until a node with --root-password-file has created the first one; if no node "
    "has this option, start one with it"
)
NoUser = Callable[[], Awaitable[bool]]
T = TypeVar("T")


async def some_user() -> bool:
    """For a node that cannot know whether the cluster has a user."""
    return False


class Authorizer:
    """`proof`: the join token of this cluster as nodes present it; None without one. `now`, `wall_s` in seconds.

    `metrics_token`: the token that permits reading the metrics of this node and nothing else; None for none.
    `no_user`: whether the cluster has no user yet; raises PermissionsUnknown if that cannot be determined now."""

    def __init__(
        self,
        rows: PermissionRows,
        proof: NodeProof | None,
        *,
        now: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
        fits: Callable[[str, Any], bool] = fits,
        metrics_token: str | None = None,
        no_user: NoUser = some_user,
    ) -> None:
        self.rows, self.state = rows, rows.state
        self._no_user, self._has_user = no_user, False
        self._metrics_header = None if metrics_token is None else f"Bearer {metrics_token}".encode()
        self.audit = Audit(now)
        self.wall_s = wall_s
        self.refusals: dict[str, int] = {}
        self.logins: dict[str, int] = {}
        self._proof, self._now, self._fits = proof, now, fits
        self._cache = PermissionCache()
        self._attempts = Attempts()
        self._own_key = secrets.token_bytes(32)
        self._checked: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self._authenticated: FromRows[tuple[UserIdentity | NodeIdentity, Rights]] = FromRows(rows, KEPT_MAX)
        """By a keyed hash of the header."""
        self._rights: FromRows[Rights] = FromRows(rows, KEPT_MAX)
        """By identity."""
        self._waiting = 0
        self._turn = asyncio.Semaphore(CHECKS_AT_A_TIME)
        self._threads = ThreadPoolExecutor(CHECKS_AT_A_TIME, "scrypt")
        self._dummy_credential = dummy_credential()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # Authentication.

    def permits_metrics(self, header: str | None) -> bool:
        """Whether the header Authorization has the token for metrics."""
        expected = self._metrics_header
        return expected is not None and hmac.compare_digest((header or "").encode("utf-8", "replace"), expected)

    async def identify(
        self, shown: Credentials | None, address: str, patience_s: float | None = None
    ) -> UserIdentity | NodeIdentity:
        """Does not wait where the credentials were checked before. `address`: of the client. `patience_s`: how long
        each row of the permissions may take to read.

        Raises Unauthenticated, PermissionsUnknown, TooManyLogins.
        """
        if isinstance(shown, Password):
            return await self._by_password(shown, address, patience_s)
        if isinstance(shown, Token):
            return self._identity_in(shown, await self.row(TOKEN_KEY, patience_s))
        if isinstance(shown, NodeProof):
            return self._by_proof(shown)
        raise NoCredentials(NO_CREDENTIALS)

    def _try_identify(self, shown: Credentials | None, read: Read) -> UserIdentity | NodeIdentity | None:
        """As `identify`; None for a password that was not checked before. Also raises WouldBlock."""
        if isinstance(shown, NodeProof):
            return self._by_proof(shown)
        if isinstance(shown, Token):
            return self._identity_in(shown, read(TOKEN_KEY))
        if isinstance(shown, Password):
            row = read(keys.at(keys.CREDENTIALS, shown.user)) if NAME.fullmatch(shown.user) else None
            return self._known_password(shown, self._mark(shown), row)
        raise NoCredentials(NO_CREDENTIALS)

    def _by_proof(self, shown: NodeProof) -> NodeIdentity:
        if self._proof is None or not hmac.compare_digest(shown.text.encode(), self._proof.text.encode()):
            raise Unauthenticated("wrong join token: use the token of this cluster")
        return NodeIdentity()

    def _mark(self, shown: Password) -> bytes:
        return hmac.digest(self._own_key, shown.password.encode("utf-8", "surrogatepass"), "sha256")

    def _known_password(self, shown: Password, mark: bytes, row: PermissionRow | None) -> UserIdentity | None:
        if row is None:
            return None
        revision, known = self._checked.get(shown.user, (0, b""))
        right = revision == row.mod_revision and hmac.compare_digest(known, mark)
        return UserIdentity(shown.user, row.mod_revision) if right else None

    async def _by_password(self, shown: Password, address: str, patience_s: float | None) -> UserIdentity:
        row = await self._password_row(shown.user, patience_s)
        mark = self._mark(shown)
        known = self._known_password(shown, mark, row)
        if known is not None:
            return known
        await self._check_slowly(shown, row, (shown.user[:64], address))
        if row is None:
            raise WrongPassword(WRONG_PASSWORD)
        self._checked[shown.user] = row.mod_revision, mark
        if len(self._checked) > KEPT_MAX:
            self._checked.popitem(last=False)
        return UserIdentity(shown.user, row.mod_revision)

    async def _password_row(self, user: str, patience_s: float | None) -> PermissionRow | None:
        """The first user may be created after its row was read and before the cluster is found to have a user.
        Therefore a missing row is read again, unless the cluster was known to have a user before the first read.

        Raises PermissionsUnknown, also as NoUserYet."""
        key = keys.at(keys.CREDENTIALS, user) if NAME.fullmatch(user) else None
        had_user = self._has_user
        row = None if key is None else await self.row(key, patience_s)
        if row is not None or had_user:
            return row
        if await self._within(patience_s, self._no_user()):
            raise NoUserYet(NO_USER_YET)
        self._has_user = True
        return None if key is None else await self.row(key, patience_s)

    async def _check_slowly(self, shown: Password, row: PermissionRow | None, source: tuple[str, str]) -> None:
        """Takes equally long for a user that does not exist. Raises WrongPassword, TooManyLogins."""
        wait_s = self._attempts.wait_s(source, self._now())
        if wait_s > WAIT_S_MAX or self._waiting >= WAITING_MAX:
            self._count(self.logins, "turned-away")
            raise TooManyLogins("too many wrong passwords, or too many concurrent sign-ins: wait, then retry")
        self._waiting += 1
        try:
            if wait_s:
                await asyncio.sleep(wait_s)
            async with self._turn:
                credential = credential_of(row) or self._dummy_credential
                password = shown.password[: MOST + 1]
                right = await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._fits, password, credential
                )
        finally:
            self._waiting -= 1
        if row is None or not right:
            self._attempts.failed(source, self._now())
            self._count(self.logins, "wrong")
            raise WrongPassword(WRONG_PASSWORD)
        self._attempts.succeeded(source)
        self._count(self.logins, "right")

    def _identity_in(self, shown: Token, key: PermissionRow | None) -> UserIdentity:
        claims = None if key is None else claims_of(shown.text, key.value)
        if claims is None or claims.expires_ms <= self.wall_s() * 1000:
            raise Unauthenticated("the token is invalid or expired: sign in again")
        return identity_of(claims)

    # Authorization.

    def try_authenticate(self, header: str | None) -> Authenticated | None:
        """Identity and rights of the caller with this Authorization header; None if they require waiting.

        Raises AuthorizationError.
        """
        text = (header or "").encode("utf-8", "surrogateescape")
        mark = blake2b(text, key=self._own_key, digest_size=16).digest()
        found = self._authenticated.find(mark)
        if found is not None and not self._is_expired(found.value[0]):
            return found

        def authenticate(read: Read) -> tuple[UserIdentity | NodeIdentity, Rights] | None:
            identity = self._try_identify(from_header(header), read)
            return None if identity is None else (identity, self._rights_by(identity, read))

        try:
            return self._authenticated.compute(mark, authenticate)
        except WouldBlock:
            return None

    def try_rights(self, identity: UserIdentity | NodeIdentity) -> Rights | None:
        """None if the rights require waiting. Raises Unauthenticated, PermissionsUnknown."""
        found = self._rights.find(identity)
        if found is not None and not self._is_expired(identity):
            return found.value
        try:
            found = self._rights.compute(identity, lambda read: self._rights_by(identity, read))
        except WouldBlock:
            return None
        return None if found is None else found.value

    def _rights_by(self, identity: UserIdentity | NodeIdentity, read: Read) -> Rights:
        if isinstance(identity, NodeIdentity):
            return NodeRights()
        reads = self._read_rights(identity)
        try:
            wanted = next(reads)
            while True:
                wanted = reads.send(read(wanted))
        except StopIteration as end:
            rights: Rights = end.value
            return rights

    async def rights(self, identity: UserIdentity | NodeIdentity, patience_s: float | None = None) -> Rights:
        """Raises Unauthenticated, PermissionsUnknown. `patience_s` as for `identify`."""
        found = self.try_rights(identity)
        if found is not None or isinstance(identity, NodeIdentity):
            return found or NodeRights()
        reads = self._read_rights(identity)
        try:
            wanted = next(reads)
            while True:
                wanted = reads.send(await self._read(wanted, patience_s))
        except StopIteration as end:
            rights: Rights = end.value
            return rights

    def _is_expired(self, identity: UserIdentity | NodeIdentity) -> bool:
        expires_ms = identity.expires_ms
        return expires_ms is not None and expires_ms <= self.wall_s() * 1000

    def _read_rights(self, identity: UserIdentity) -> RightsReads:
        if self._is_expired(identity):
            raise Unauthenticated("the token is expired: sign in again")
        return read_rights(identity, self._cache)

    async def row(self, key: bytes, patience_s: float | None = None) -> PermissionRow | None:
        """Raises PermissionsUnknown."""
        try:
            return self.rows.try_read(key)
        except WouldBlock:
            return await self._read(key, patience_s)

    async def _read(self, key: bytes, patience_s: float | None) -> PermissionRow | None:
        return await self._within(patience_s, self.rows.read(key))

    async def _within(self, patience_s: float | None, reading: Awaitable[T]) -> T:
        """Raises PermissionsUnknown, and what `reading` raises."""
        try:
            async with asyncio.timeout(patience_s):
                return await reading
        except TimeoutError:
            raise PermissionsUnknown(
                f"this node could not read the permissions in time: {self.rows.trouble()}; retry"
            ) from None

    # Refusals.

    def refused(self, error: Exception, caller: str, address: str, action: str) -> None:
        self._count(self.refusals, reason_of(error))
        self.audit.refused(caller, address, action, str(error))

    @staticmethod
    def _count(counts: dict[str, int], name: str) -> None:
        counts[name] = counts.get(name, 0) + 1


def reason_of(error: Exception) -> str:
    """The error class in kebab case: no-credentials, permission-denied and so on."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()


def identity_of(claims: Claims) -> UserIdentity:
    return UserIdentity(claims.user, claims.credential, claims.expires_ms)


def dummy_credential() -> dict[str, Any]:
    """Checked for unknown users, so that they take as long as known ones; no password matches it."""
    drawn = {"salt": secrets.token_hex(SALT_BYTES), "hash": secrets.token_hex(HASH_BYTES)}
    return {"scheme": "scrypt", "cost": COST, "block": BLOCK, "parallel": PARALLEL, **drawn}


def credential_of(row: PermissionRow | None) -> Any:
    """None for a row that cannot be parsed: no password matches it."""
    try:
        found = None if row is None else json.loads(row.value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def claimed_identity(shown: Credentials | None) -> str:
    """The caller as it claims to be, for the log."""
    if isinstance(shown, Password):
        return f"user {shown.user}"
    return {Token: "a token", NodeProof: "a node"}.get(type(shown), "unauthenticated client")
