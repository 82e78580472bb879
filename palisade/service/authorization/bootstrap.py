"""The first administrator: made from a password file, in a cluster that has no user yet (docs/security.md).

One transaction makes the user `root` with ADMIN on every key, and compares that there is no user at all; so of several
nodes with that file one makes it, and who has users already is never given another one.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from pathlib import Path

from palisade.base.errors import ConfigError
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
from palisade.wire.fencing_errors import ReleaseError

log = logging.getLogger(__name__)

ROOT = "root"
AGAIN_S = 1.0
NOBODY = (
    "authorization is on, and there is no user: only /livez and /readyz are answered. Start a node with "
    "--root-password-file, or with --authorization=off on loopback to create users"
)


def password_in(path: Path) -> str:
    """Raises ConfigError, without the password."""
    try:
        found = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"root-password-file: {path} can't be read: {error}") from None
    if not LEAST <= len(found) <= MOST:
        raise ConfigError(f"root-password-file: the password in {path} has to have {LEAST} to {MOST} characters")
    return found


def first_user(credential: dict[str, object]) -> Txn:
    root = Subject("user", ROOT, (PermissionGrant(Privilege.ADMIN.value, ""),))
    nobody = Compare(keys.USERS, CompareTarget.VERSION, CompareResult.EQUAL, 0, prefix_end(keys.USERS))
    return Txn((nobody,), (Put(root.key, root.to_bytes()), Put(keys.at(keys.CREDENTIALS, ROOT), to_bytes(credential))))


async def have_a_user(service: KeyValues, password: str | None) -> None:
    """Until there is one: made here if there is a password, else a warning says what to do."""
    warned = False
    while True:
        try:
            found = await service.range(
                Range(keys.USERS, prefix_end(keys.USERS), limit=1, keys_only=True), caller=THIS_NODE
            )
            if found.kvs:
                break
            if password is not None:
                credential = await asyncio.to_thread(sealed, password, secrets.token_bytes(SALT_BYTES))
                if (await write_own(service, first_user(credential))).succeeded:
                    log.warning("there was no user: %s was made, with the password of --root-password-file", ROOT)
                continue
            if not warned:
                log.warning(NOBODY)
                warned = True
        except (RaftError, MetastoreError, ReleaseError) as error:
            log.debug("whether there is a user can't be seen yet: %s", error)
        await asyncio.sleep(AGAIN_S)
    await asyncio.get_running_loop().create_future()
