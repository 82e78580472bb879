"""The permission to join: a token that the operator gives to every node, kept by the cluster as a salted hash.

Pure: the salt is handed in. Who reads the record, or a backup of it, still can't join.
"""

from __future__ import annotations

import hmac
from hashlib import scrypt

SALT_BYTES = 16
_COST, _BLOCK, _PARALLEL, _KEY_BYTES = 1 << 12, 8, 1, 32


def token_record(token: str | None, salt: bytes) -> bytes:
    """Salt and hash; empty where no token is needed."""
    if not token:
        return b""
    return salt + _hash(token, salt)


def token_fits(token: str | None, record: bytes) -> bool:
    """Whether who shows `token` may join a cluster with this record. Takes as long for a wrong one as for the right."""
    if not record:
        return True
    salt, expected = record[:SALT_BYTES], record[SALT_BYTES:]
    return hmac.compare_digest(_hash(token or "", salt), expected)


def _hash(token: str, salt: bytes) -> bytes:
    return scrypt(token.encode(), salt=salt, n=_COST, r=_BLOCK, p=_PARALLEL, dklen=_KEY_BYTES)
