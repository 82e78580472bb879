"""Names of nodes and clusters."""

from __future__ import annotations

import re

from palisade.base.errors import ConfigError

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def check_id(option: str, value: str) -> None:
    """Raise ConfigError unless `value` may name a node or a cluster."""
    if not ID.fullmatch(value):
        raise ConfigError(
            f"{value!r} is not a name; use 1 to 63 letters, digits, '.', '_' or '-', and begin with a letter or digit",
            option=option,
        )
