"""Creates the first administrator from a password file, in a cluster that has no user yet (docs/security.md).

One transaction creates the user `root` with ADMIN on every key, on condition that no user exists. Thus of several nodes
with such a file only one creates it, and a cluster that has users is not changed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from pathlib import Path

from palisade.base.errors import ConfigError
from palisade.base.network_reason import reason_of
from palisade.catalog import keys
from palisade.catalog.passwords import LEAST, MOST, SALT_BYTES, sealed
from palisade.catalog.permissions import PermissionGrant, Privilege, Subject
from palisade.catalog.row_format import to_bytes
from palisade.metastore.errors import MetastoreError
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put, Range, Txn, prefix_end
from palisade.raftgroup.errors import RaftError
from palisade.service.authorization.login import write_own
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import PermissionsUnknown
from palisade.wire.fencing_errors import ReleaseError

log = logging.getLogger(__name__)

ROOT = "root"
RETRY_S = 0.25
NO_USER = (
    "authorization is on, but there is no user: only /livez and /readyz are served. Start a node with "
    "--root-password-file, or with --authorization=off on loopback to create users"
)


def password_in(path: Path) -> str:
    """Raises ConfigError; its text does not contain the password."""
    try:
        found = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {reason_of(error)}", option="root-password-file") from None
    if not LEAST <= len(found) <= MOST:
        raise ConfigError(f"the password in {path} must have {LEAST} to {MOST} characters", option="root-password-file")
    return found


def first_user(credential: dict[str, object]) -> Txn:
    root = Subject("user", ROOT, (PermissionGrant(Privilege.ADMIN.value, ""),))
    no_user = Compare(keys.USERS, CompareTarget.VERSION, CompareResult.EQUAL, 0, prefix_end(keys.USERS))
    return Txn((no_user,), (Put(root.key, root.to_bytes()), Put(keys.at(keys.CREDENTIALS, ROOT), to_bytes(credential))))


class FirstUser:
    """Run once per node. `password` None: a missing user is only reported."""

    def __init__(self, service: KeyValues, password: str | None) -> None:
        self._service, self._password = service, password
        self._exists = False

    def not_ready(self) -> list[str]:
        """Why this node should not get requests yet. Until the user exists, its sign-in would be refused as a wrong
        password; a client that waits for a ready node is admitted."""
        waits = self._password is not None and not self._exists
        return [f"the first user {ROOT} is not created yet"] if waits else []

    async def run(self) -> None:
        """Creates the user if there is none, or logs a warning with the remedy; then waits until cancelled."""
        warned = False
        while not self._exists:
            try:
                self._exists = await self._find()
                if not self._exists and self._password is not None:
                    self._exists = await self._create(self._password)
                    continue
                if not self._exists and not warned:
                    log.warning(NO_USER)
                    warned = True
            except (RaftError, MetastoreError, ReleaseError) as error:
                log.debug("not known yet whether a user exists: error=%s", error)
            if not self._exists:
                await asyncio.sleep(RETRY_S)
        await asyncio.get_running_loop().create_future()

    async def no_user(self) -> bool:
        """Asks the leader until the cluster has a user. Raises PermissionsUnknown."""
        if not self._exists:
            try:
                self._exists = await self._find()
            except (RaftError, MetastoreError, ReleaseError) as error:
                raise PermissionsUnknown(
                    f"this node could not determine whether the cluster has a user yet ({error}): retry"
                ) from error
        return not self._exists

    async def _find(self) -> bool:
        users = Range(keys.USERS, prefix_end(keys.USERS), limit=1, keys_only=True)
        return bool((await self._service.range(users, caller=THIS_NODE)).kvs)

    async def _create(self, password: str) -> bool:
        """False: another node was faster."""
        credential = await asyncio.to_thread(sealed, password, secrets.token_bytes(SALT_BYTES))
        created = bool((await write_own(self._service, first_user(credential))).succeeded)
        if created:
            log.warning("first user created with the password of --root-password-file: user=%s", ROOT)
        return created
