"""The OpenAPI document of each kind of node. `openapi.json` lists the paths of each kind; a test compares it with the
servers.

`x-served-by` of an operation names the kinds of node that serve it; without it, members of the Raft group alone do. The
document that a node returns has only the operations that this node serves.
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
    """The document of this kind of node, as JSON. A member returns the complete document."""
    whole = resources.files("palisade.api").joinpath("openapi.json").read_bytes()
    if kind is DocumentKind.MEMBER:
        return whole
    return json.dumps(only(json.loads(whole), kind)).encode()


def only(document: dict[str, Any], kind: DocumentKind) -> dict[str, Any]:
    """The document reduced to what a node of this kind serves."""
    paths = {path: serves(item, kind) for path, item in document["paths"].items()}
    info = document["info"]
    said = (
        f"This is a node of the kind `{kind.value}`. It serves these paths; a member of the cluster serves the others."
    )
    return {
        **document,
        "info": {**info, "description": said},
        "paths": {path: item for path, item in paths.items() if item},
    }


def serves(item: dict[str, Any], kind: DocumentKind) -> dict[str, Any]:
    return {
        method: each for method, each in item.items() if kind.value in each.get(SERVED_BY, [DocumentKind.MEMBER.value])
    }
