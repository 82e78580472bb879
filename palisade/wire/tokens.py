"""Tokens: the result of a login, so that the password need not be sent each time. Pure; key and time are parameters.

A token contains the user, the password's revision and an expiry, under an HMAC whose key is a row of the permissions.
Thus every node checks a token in microseconds, without a stored session per login. Dropping a user or changing its
password invalidates all of its tokens on every node at once, because the password row is read through the fence each
time. Rights are looked up on use. *Price*: a single token cannot be revoked, only all tokens of a password, so the
lifetime is bounded.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from dataclasses import dataclass

MARK = "pt1"
KEY_BYTES = 32
TTL_S, TTL_S_MAX = 3600, 86_400
TOKEN_CHARACTERS_MAX = 1024


@dataclass(frozen=True, slots=True)
class Claims:
    """`credential`: revision of the row of the password. `expires_ms`: of the wall clock."""

    user: str
    credential: int
    expires_ms: int


def sign(claims: Claims, key: bytes) -> str:
    body = _text(json.dumps([claims.user, claims.credential, claims.expires_ms], separators=(",", ":")).encode())
    return f"{MARK}.{body}.{_text(_mac(body, key))}"


def claims_of(token: str, key: bytes) -> Claims | None:
    """None if the token was not signed with this key. The caller checks the expiry."""
    mark, _, rest = token.partition(".")
    body, dot, mac = rest.partition(".")
    if mark != MARK or not dot or len(token) > TOKEN_CHARACTERS_MAX or not token.isascii():
        return None
    if not hmac.compare_digest(mac, _text(_mac(body, key))):
        return None
    try:
        user, credential, expires_ms = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, TypeError, binascii.Error):
        return None
    if type(user) is not str or type(credential) is not int or type(expires_ms) is not int:
        return None
    return Claims(user, credential, expires_ms)


def _mac(body: str, key: bytes) -> bytes:
    return hmac.digest(key, f"palisade {MARK} {body}".encode(), "sha256")


def _text(packed: bytes) -> str:
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()
