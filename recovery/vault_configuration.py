"""Keeps the node's configuration in its vault up to date. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def changes(kept: Mapping[str, bytes], now: Mapping[str, str]) -> dict[str, bytes | None]:
    """The changes to write to a vault that has `kept`; None removes a value."""
    gone: dict[str, bytes | None] = {name: None for name in kept if name not in now}
    return gone | {name: text.encode() for name, text in now.items() if kept.get(name) != text.encode()}
