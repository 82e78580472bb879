"""Credentials of a client and their encoding: in the header Authorization, and in HELLO of the stream. Pure.

Nodes authenticate with a proof derived from the join token; the proof does not allow joining.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palisade.wire.auth_errors import Unauthenticated
from palisade.wire.tokens import MARK

NODE_SCHEME = "Palisade-Node"
SHOWN_MAX = 2048
UNREADABLE = "the credentials can't be read: send Authorization: Basic (user and password) or Bearer (a token)"


@dataclass(frozen=True, slots=True)
class Password:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Token:
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredToken(Token):
    """A token of a file. It may be sent only to the cluster `cluster_id`, which issued it."""

    cluster_id: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class NodeProof:
    text: str = field(repr=False)


Credentials = Password | Token | NodeProof


def node_proof(join_token: str) -> NodeProof:
    return NodeProof(hmac.digest(join_token.encode(), b"palisade: a node of the cluster", "sha256").hex())


def header_of(shown: Credentials | None) -> dict[str, str]:
    """For every request to a node with authorization."""
    if shown is None:
        return {}
    if isinstance(shown, Password):
        pair = f"{shown.user}:{shown.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    scheme = "Bearer" if isinstance(shown, Token) else NODE_SCHEME
    return {"Authorization": f"{scheme} {shown.text}"}


def from_header(text: str | None) -> Credentials | None:
    """None without credentials. Raises Unauthenticated. A token may stand alone, as etcd's clients send it."""
    if text is None or not text.strip():
        return None
    scheme, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if len(text) > SHOWN_MAX or not text.isascii():
        raise Unauthenticated(UNREADABLE)
    if scheme.lower() == "basic":
        return _password(rest)
    if scheme.lower() == "bearer" and rest:
        return Token(rest)
    if scheme.lower() == NODE_SCHEME.lower() and rest:
        return NodeProof(rest)
    if scheme.startswith(f"{MARK}.") and not rest:
        return Token(scheme)
    raise Unauthenticated(UNREADABLE)


def _password(text: str) -> Password:
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except ValueError:
        raise Unauthenticated(UNREADABLE) from None
    if not colon:
        raise Unauthenticated(UNREADABLE)
    return Password(user, password)


def to_hello(shown: Credentials | None) -> dict[str, Any]:
    """The fields to add to HELLO."""
    if isinstance(shown, Password):
        return {"user": shown.user, "password": shown.password}
    if isinstance(shown, Token):
        return {"token": shown.text}
    return {"node": shown.text} if isinstance(shown, NodeProof) else {}


def from_hello(body: Mapping[str, Any]) -> Credentials | None:
    """Raises Unauthenticated."""
    known = {name: body[name] for name in ("user", "password", "token", "node") if body.get(name) is not None}
    if not known:
        return None
    if any(type(each) is not str or len(each) > SHOWN_MAX for each in known.values()):
        raise Unauthenticated("the credentials in HELLO are not texts")
    if known.keys() == {"user", "password"}:
        return Password(known["user"], known["password"])
    if known.keys() == {"token"}:
        return Token(known["token"])
    if known.keys() == {"node"}:
        return NodeProof(known["node"])
    raise Unauthenticated("HELLO: give user and password, or token, or node")
