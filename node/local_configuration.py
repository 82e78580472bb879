"""What a node is told, as its vault keeps it beside the projection of the cluster's state (R1; seed 001). Pure.

By the names of the options, so none of them is a key of the cluster's, and each reads back as it was given. The
permission to join is not among them: a vault is copied, shown and sent to whoever helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node.config import NodeConfig
from node.options import GROUPS, OPTIONS

SECRET = {"join-token"}


def local_configuration(config: NodeConfig) -> dict[str, str]:
    """Every option that has a value, those with their default among them."""
    found: dict[str, str] = {}
    for option in OPTIONS:
        owner = getattr(config, GROUPS[option.group]) if option.group else config
        value = getattr(owner, option.field)
        if option.name not in SECRET and value not in (None, ()):
            found[option.name] = _text(value)
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def changes(kept: Mapping[str, bytes], now: Mapping[str, str]) -> dict[str, bytes | None]:
    """What to write where `kept` is there; None: it is not said any more."""
    gone: dict[str, bytes | None] = {name: None for name in kept if name not in now}
    return gone | {name: text.encode() for name, text in now.items() if kept.get(name) != text.encode()}
