"""Tokens: what a login gives, so that the password need not be shown each time. Pure; key and time are handed in.

A token says who, with which password (by the revision of its row), and until when, under an HMAC with a key that is
itself a row of the permissions. So any node can check one in microseconds, without a session to be written for each
login; and with a dropped user or another password all of its tokens end at once on every node, since that row is read
through the fence each time. What a token may do is looked up when it is used. *Price*: one token can't be taken
back by itself, only with the password, so its life is bounded.
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
    """None for what was not signed with this key. Whether its time is over is for the caller to see."""
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
