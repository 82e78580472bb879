"""Passwords as salted scrypt hashes (RFC 7914). Pure: the salt is an argument.

The hash of a strong password cannot be reversed; its cost (16 MiB and about 50 ms per attempt) slows down guessing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from palisade.catalog.errors import BadField
from palisade.catalog.row_format import text_up_to

COST, BLOCK, PARALLEL = 1 << 14, 8, 1
HASH_BYTES = 32
SALT_BYTES = 16
LEAST = 8
MOST = 256
MEMORY_BYTES_MAX = 64 * 1024 * 1024
a_password = text_up_to(MOST, LEAST)


def sealed(password: str, salt: bytes) -> dict[str, Any]:
    """The credential to store."""
    return {
        "scheme": "scrypt",
        "cost": COST,
        "block": BLOCK,
        "parallel": PARALLEL,
        "salt": salt.hex(),
        "hash": _hash(password, salt, COST, BLOCK, PARALLEL).hex(),
    }


def fits(password: str, credential: Mapping[str, Any]) -> bool:
    """Whether the password is the credential's, in constant time. An unreadable credential fits no password."""
    try:
        salt, known = bytes.fromhex(credential["salt"]), bytes.fromhex(credential["hash"])
        cost, block, parallel = (int(credential[name]) for name in ("cost", "block", "parallel"))
        return credential["scheme"] == "scrypt" and hmac.compare_digest(
            _hash(password, salt, cost, block, parallel), known
        )
    except (KeyError, ValueError, TypeError, OverflowError):
        return False


def a_credential(value: Any, field: str) -> dict[str, Any]:
    """Raises BadField with a text that does not include the value."""
    names = {"scheme", "cost", "block", "parallel", "salt", "hash"}
    if type(value) is not dict or value.keys() != names or value["scheme"] != "scrypt":
        raise BadField(f"{field}: invalid credential")
    return dict(value)


def _hash(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=MEMORY_BYTES_MAX, dklen=HASH_BYTES
    )
