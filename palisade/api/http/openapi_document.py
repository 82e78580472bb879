"""The OpenAPI document of each kind of node: which paths it serves is in `openapi.json`, and tested against its server.

An operation says who serves it by `x-served-by`; without that it is a member of the Raft group alone. The document that
a node gives out has the operations that it serves itself, so it never promises what would be refused.
"""

from __future__ import annotations

import enum
import json
from functools import cache
from importlib import resources
from typing import Any

SERVED_BY = "x-served-by"


class DocumentKind(enum.Enum):
    MEMBER = "member"
    FOLLOWER = "follower"
    STANDALONE = "standalone"


@cache
def document_of(kind: DocumentKind) -> bytes:
    """As JSON. That of a member is the whole one that is in the distribution."""
    whole = resources.files("palisade.api").joinpath("openapi.json").read_bytes()
    if kind is DocumentKind.MEMBER:
        return whole
    return json.dumps(only(json.loads(whole), kind)).encode()


def only(document: dict[str, Any], kind: DocumentKind) -> dict[str, Any]:
    """What a node of this kind serves."""
    paths = {path: serves(item, kind) for path, item in document["paths"].items()}
    info = document["info"]
    said = f"This is a node of the kind `{kind.value}`: it serves these paths; for others ask a member of the cluster."
    return {
        **document,
        "info": {**info, "description": said},
        "paths": {path: item for path, item in paths.items() if item},
    }


def serves(item: dict[str, Any], kind: DocumentKind) -> dict[str, Any]:
    return {
        method: each for method, each in item.items() if kind.value in each.get(SERVED_BY, [DocumentKind.MEMBER.value])
    }
