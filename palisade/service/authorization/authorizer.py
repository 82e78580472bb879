"""The gate of a node: who asks, and what may they do, at this moment.

What is guaranteed: behind the answer to a REVOKE, a DROP USER or another password, no node lets a request in that it
forbids. For each request the rows are read anew, from the vault through its fence or linearizably from the cluster
(`rows.py`); kept are only the meaning of rows, and that a password fits a row. A password is checked by scrypt once for
each version of its row; after that showing it again costs an HMAC.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any, TypeVar

from palisade.catalog import keys
from palisade.catalog.passwords import BLOCK, COST, HASH_BYTES, MOST, PARALLEL, SALT_BYTES, fits
from palisade.catalog.row_format import NAME
from palisade.service.authorization.attempts import Attempts
from palisade.service.authorization.audit import Audit
from palisade.service.authorization.rights import (
    Meaning,
    NodeIdentity,
    NodeRights,
    PermissionRow,
    Rights,
    UserIdentity,
    course,
)
from palisade.service.authorization.rows import PermissionRows, WouldBlock
from palisade.wire.auth_errors import NoCredentials, TooManyLogins, Unauthenticated, WrongPassword
from palisade.wire.credentials import Credentials, NodeProof, Password, Token, from_header
from palisade.wire.tokens import Claims, claims_of

CHECKS_AT_A_TIME = 2
"""Each takes 16 MiB and 50 ms of a core."""
WAITING_MAX = 128
WAIT_S_MAX = 15.0
KEPT_MAX = 4096
TOKEN_KEY = keys.PERMISSIONS + b"tokens/key"
NO_CREDENTIALS = "this node asks who you are: give user and password, or a token"
WRONG = "user and password do not belong together"

T = TypeVar("T")


class Authorizer:
    """`proof`: what nodes of this cluster show, None where there is no join token. `now` in seconds."""

    def __init__(
        self,
        rows: PermissionRows,
        proof: NodeProof | None,
        *,
        now: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        fits: Callable[[str, Any], bool] = fits,
    ) -> None:
        self.rows = rows
        self.audit = Audit(now)
        self.wall_ms = wall_ms
        self.refusals: dict[str, int] = {}
        self.logins: dict[str, int] = {}
        self._proof, self._now, self._fits = proof, now, fits
        self._meaning = Meaning()
        self._attempts = Attempts()
        self._own_key = secrets.token_bytes(32)
        self._checked: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self._shown: dict[bytes, tuple[object, int | None, tuple[UserIdentity | NodeIdentity, Rights]]] = {}
        """By a keyed hash of the header: (state of the rows, end of the token, caller and rights)."""
        self._rights: dict[UserIdentity, tuple[object, Rights]] = {}
        """(state of the rows, rights)."""
        self._waiting = 0
        self._turn = asyncio.Semaphore(CHECKS_AT_A_TIME)
        self._threads = ThreadPoolExecutor(CHECKS_AT_A_TIME, "scrypt")
        self._nobody = credential_of_nobody()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # Who.

    async def identify(self, shown: Credentials | None, where: str) -> UserIdentity | NodeIdentity:
        """Does not wait for what was checked before. `where`: the address of who asks.

        Raises Unauthenticated, PermissionsUnknown, TooManyLogins."""
        if isinstance(shown, Password):
            return await self._by_password(shown, where)
        if isinstance(shown, Token):
            return await self._by_token(shown)
        if isinstance(shown, NodeProof):
            return self._by_proof(shown)
        raise NoCredentials(NO_CREDENTIALS)

    def identify_now(self, shown: Credentials | None) -> UserIdentity | NodeIdentity | None:
        """As `identify`; None where it takes waiting."""
        if isinstance(shown, NodeProof):
            return self._by_proof(shown)
        try:
            if isinstance(shown, Token):
                return self._identity_in(shown, self.rows.now(TOKEN_KEY))
            if isinstance(shown, Password):
                return self._known_password(shown, self._mark(shown), self._password_row_now(shown))
        except WouldBlock:
            return None
        raise NoCredentials(NO_CREDENTIALS)

    def _by_proof(self, shown: NodeProof) -> NodeIdentity:
        if self._proof is None or not hmac.compare_digest(shown.text.encode(), self._proof.text.encode()):
            raise Unauthenticated("the join token is not that of this cluster")
        return NodeIdentity()

    def _password_row_now(self, shown: Password) -> PermissionRow | None:
        return self.rows.now(keys.at(keys.CREDENTIALS, shown.user)) if NAME.fullmatch(shown.user) else None

    def _mark(self, shown: Password) -> bytes:
        return hmac.digest(self._own_key, shown.password.encode("utf-8", "surrogatepass"), "sha256")

    def _known_password(self, shown: Password, mark: bytes, row: PermissionRow | None) -> UserIdentity | None:
        if row is None:
            return None
        revision, known = self._checked.get(shown.user, (0, b""))
        right = revision == row.mod_revision and hmac.compare_digest(known, mark)
        return UserIdentity(shown.user, row.mod_revision) if right else None

    async def _by_password(self, shown: Password, where: str) -> UserIdentity:
        row = await self.row(keys.at(keys.CREDENTIALS, shown.user)) if NAME.fullmatch(shown.user) else None
        mark = self._mark(shown)
        known = self._known_password(shown, mark, row)
        if known is not None:
            return known
        await self._check_slowly(shown, row, (shown.user[:64], where))
        if row is None:
            raise WrongPassword(WRONG)
        self._checked[shown.user] = row.mod_revision, mark
        if len(self._checked) > KEPT_MAX:
            self._checked.popitem(last=False)
        return UserIdentity(shown.user, row.mod_revision)

    async def _check_slowly(self, shown: Password, row: PermissionRow | None, who: tuple[str, str]) -> None:
        """Takes as long for a user who is not there. Raises WrongPassword, TooManyLogins."""
        wait_s = self._attempts.wait_s(who, self._now())
        if wait_s > WAIT_S_MAX or self._waiting >= WAITING_MAX:
            self._count(self.logins, "turned-away")
            raise TooManyLogins("passwords were wrong too often, or too many are being checked: wait, then try again")
        self._waiting += 1
        try:
            if wait_s:
                await asyncio.sleep(wait_s)
            async with self._turn:
                credential = credential_of(row) or self._nobody
                password = shown.password[: MOST + 1]
                right = await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._fits, password, credential
                )
        finally:
            self._waiting -= 1
        if row is None or not right:
            self._attempts.failed(who, self._now())
            self._count(self.logins, "wrong")
            raise WrongPassword(WRONG)
        self._attempts.succeeded(who)
        self._count(self.logins, "right")

    async def _by_token(self, shown: Token) -> UserIdentity:
        return self._identity_in(shown, await self.row(TOKEN_KEY))

    def _identity_in(self, shown: Token, key: PermissionRow | None) -> UserIdentity:
        claims = None if key is None else claims_of(shown.text, key.value)
        if claims is None or claims.expires_ms <= self.wall_ms():
            raise Unauthenticated("the token is not valid, or its time is over: sign in again")
        return identity_of(claims)

    # What.

    def known_now(self, header: str | None) -> tuple[UserIdentity | NodeIdentity, Rights] | None:
        """Of the caller with this header `Authorization`. None where it takes waiting.

        What was found before holds as long as no row can have changed (`PermissionRows.state`).
        Raises AuthorizationError."""
        state, text = self.rows.state(), (header or "").encode("utf-8", "surrogateescape")
        mark = blake2b(text, key=self._own_key, digest_size=16).digest()
        found = self._shown.get(mark)
        if found is not None and found[0] is state and (found[1] is None or found[1] > self.wall_ms()):
            return found[2]
        identity = self.identify_now(from_header(header))
        rights = None if identity is None else self.rights_now(identity)
        if identity is None or rights is None:
            return None
        known = identity, rights
        if state is None or state is not self.rows.state():
            return known
        if len(self._shown) >= KEPT_MAX:
            self._shown.clear()
        self._shown[mark] = state, identity.expires_ms if isinstance(identity, UserIdentity) else None, known
        return known

    def rights_now(self, identity: UserIdentity | NodeIdentity) -> Rights | None:
        """None if they can't be known without waiting. Raises Unauthenticated, PermissionsUnknown.

        Rights stay valid as long as no row can have changed (`PermissionRows.state`)."""
        if isinstance(identity, NodeIdentity):
            return NodeRights()
        self._check_unexpired(identity)
        state, found = self.rows.state(), self._rights.get(identity)
        if found is not None and found[0] is state:
            return found[1]
        try:
            rights = self._told(course(identity, self._meaning), self.rows.now)
        except WouldBlock:
            return None
        if state is not None and state is self.rows.state():
            if len(self._rights) >= KEPT_MAX:
                self._rights.clear()
            self._rights[identity] = state, rights
        return rights

    async def rights(self, identity: UserIdentity | NodeIdentity) -> Rights:
        """Raises Unauthenticated, PermissionsUnknown."""
        found = self.rights_now(identity)
        if found is not None or isinstance(identity, NodeIdentity):
            return found or NodeRights()
        self._check_unexpired(identity)
        running = course(identity, self._meaning)
        try:
            wanted = next(running)
            while True:
                wanted = running.send(await self.rows.later(wanted))
        except StopIteration as end:
            rights: Rights = end.value
            return rights

    def _check_unexpired(self, identity: UserIdentity) -> None:
        if identity.expires_ms is not None and identity.expires_ms <= self.wall_ms():
            raise Unauthenticated("the time of the token is over: sign in again")

    @staticmethod
    def _told(running: Generator[bytes, PermissionRow | None, T], read: Callable[[bytes], PermissionRow | None]) -> T:
        try:
            wanted = next(running)
            while True:
                wanted = running.send(read(wanted))
        except StopIteration as end:
            found: T = end.value
            return found

    async def row(self, key: bytes) -> PermissionRow | None:
        """Raises PermissionsUnknown."""
        try:
            return self.rows.now(key)
        except WouldBlock:
            return await self.rows.later(key)

    # What is told of it.

    def refused(self, error: Exception, who: str, where: str, action: str) -> None:
        self._count(self.refusals, reason_of(error))
        self.audit.refused(who, where, action, str(error))

    @staticmethod
    def _count(counts: dict[str, int], name: str) -> None:
        counts[name] = counts.get(name, 0) + 1


def reason_of(error: Exception) -> str:
    """no-credentials, permission-denied and so on."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()


def identity_of(claims: Claims) -> UserIdentity:
    return UserIdentity(claims.user, claims.credential, claims.expires_ms)


def credential_of_nobody() -> dict[str, Any]:
    """So that a user who is not there takes as long as one who is; no password is known to fit it."""
    drawn = {"salt": secrets.token_hex(SALT_BYTES), "hash": secrets.token_hex(HASH_BYTES)}
    return {"scheme": "scrypt", "cost": COST, "block": BLOCK, "parallel": PARALLEL, **drawn}


def credential_of(row: PermissionRow | None) -> Any:
    """None for one that can't be read: it fits nobody."""
    try:
        found = None if row is None else json.loads(row.value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def who_shows(shown: Credentials | None) -> str:
    """For the log."""
    if isinstance(shown, Password):
        return f"user {shown.user}"
    return {Token: "a token", NodeProof: "a node"}.get(type(shown), "nobody")
