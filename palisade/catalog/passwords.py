"""Passwords as salted scrypt hashes (RFC 7914). Pure: the salt is handed in.

Who has the hash of a good password can't go back from it; its cost (16 MiB and about 50 ms a try) makes guessing slow.
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
    """What is stored."""
    return {
        "scheme": "scrypt",
        "cost": COST,
        "block": BLOCK,
        "parallel": PARALLEL,
        "salt": salt.hex(),
        "hash": _hash(password, salt, COST, BLOCK, PARALLEL).hex(),
    }


def fits(password: str, credential: Mapping[str, Any]) -> bool:
    """Takes the same time whether it fits or not. A credential that can't be read fits nobody."""
    try:
        salt, known = bytes.fromhex(credential["salt"]), bytes.fromhex(credential["hash"])
        cost, block, parallel = (int(credential[name]) for name in ("cost", "block", "parallel"))
        return credential["scheme"] == "scrypt" and hmac.compare_digest(
            _hash(password, salt, cost, block, parallel), known
        )
    except (KeyError, ValueError, TypeError, OverflowError):
        return False


def a_credential(value: Any, field: str) -> dict[str, Any]:
    """Raises BadField, and shows nothing of it."""
    names = {"scheme", "cost", "block", "parallel", "salt", "hash"}
    if type(value) is not dict or value.keys() != names or value["scheme"] != "scrypt":
        raise BadField(f"{field}: is no credential")
    return dict(value)


def _hash(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=MEMORY_BYTES_MAX, dklen=HASH_BYTES
    )
