"""Keeps the node's configuration in its vault up to date. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def changes(kept: Mapping[str, bytes], now: Mapping[str, str]) -> dict[str, bytes | None]:
    """What to write where `kept` is there; None: it is not said any more."""
    gone: dict[str, bytes | None] = {name: None for name in kept if name not in now}
    return gone | {name: text.encode() for name, text in now.items() if kept.get(name) != text.encode()}
