"""The join token: configured on every node, stored by the cluster as a salted hash.

Pure: the salt is an argument. Read access to the record, or to a backup of it, does not permit joining.
"""

from __future__ import annotations

import hmac
from hashlib import scrypt

SALT_BYTES = 16
_COST, _BLOCK, _PARALLEL, _KEY_BYTES = 1 << 12, 8, 1, 32


def token_record(token: str | None, salt: bytes) -> bytes:
    """Salt and hash; empty if no token is required."""
    if not token:
        return b""
    return salt + _hash(token, salt)


def token_fits(token: str | None, record: bytes) -> bool:
    """Whether `token` permits joining a cluster with this record. Compares in constant time."""
    if not record:
        return True
    salt, expected = record[:SALT_BYTES], record[SALT_BYTES:]
    return hmac.compare_digest(_hash(token or "", salt), expected)


def _hash(token: str, salt: bytes) -> bytes:
    return scrypt(token.encode(), salt=salt, n=_COST, r=_BLOCK, p=_PARALLEL, dklen=_KEY_BYTES)
