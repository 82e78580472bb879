"""The configuration of a node as its vault stores it beside the projection of the cluster's state (R1; seed 001). Pure.

Stored by the names of the options, so no name is a key of the cluster, and each value parses back to the same value.
The join token and the metrics token are not stored: a vault is copied, inspected and sent to others for support.
"""

from __future__ import annotations

from typing import Any

from palisade.node.config import NodeConfig
from palisade.node.options import GROUPS, OPTIONS

SECRET = {"join-token", "metrics-token"}


def local_configuration(config: NodeConfig) -> dict[str, str]:
    """Every option that has a value, including defaults."""
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
