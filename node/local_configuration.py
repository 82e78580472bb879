"""What a node is told, as its vault keeps it beside the projection of the cluster's state (R1; seed 001). Pure.

By the names of the options, so none of them is a key of the cluster's, and each reads back as it was given. The
permission to join is not among them: a vault is copied, shown and sent to whoever helps.
"""

from __future__ import annotations

from typing import Any

from palisade.node.config import NodeConfig
from palisade.node.options import GROUPS, OPTIONS

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
