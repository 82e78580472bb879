"""Selects the cluster that a command connects to, by one rule for all commands.

The first of these applies:

1. the option: `--endpoints` (streams of any nodes) or, where a command has it, `--at` (HTTP of one node)
2. `PALISADE_ENDPOINTS`
3. the local cluster in the folder `.palisade` of the working directory, as `palisade up` has formatted it
4. the ports of `palisade up`: 127.0.0.1:7601, 7602, 7603

The local cluster is used even if it is stopped: then the command fails, and never reaches another cluster. While its
`palisade up` runs, commands wait for nodes that do not listen yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from palisade.base.address import STREAM_EXAMPLE, Address, AddressError
from palisade.base.directory_lock import is_locked
from palisade.base.network_reason import reason_of

if TYPE_CHECKING:
    from palisade.node.local_layout import Layout

VARIABLE = "PALISADE_ENDPOINTS"
LOCAL_FOLDER = ".palisade"
LAYOUT_FILE = "cluster.json"
DEFAULT = ("127.0.0.1:7601", "127.0.0.1:7602", "127.0.0.1:7603")
DEFAULT_HTTP = "127.0.0.1:7401"


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """`endpoints`: 'host:port' of streams. `http`: an HTTP address if one is known without a request.

    `source`: where they come from, for error messages. `up_runs`: they are those of a `palisade up` that runs, so a
    node that does not listen may be starting."""

    endpoints: tuple[str, ...]
    source: str
    http: str | None = None
    up_runs: bool = False


def find_target(given: tuple[str, ...] | None, environ: Mapping[str, str], folder: Path) -> ClusterTarget:
    """`given`: the option. `folder`: the working directory. Raises click.UsageError."""
    if given:
        return ClusterTarget(given, "--endpoints")
    text = environ.get(VARIABLE)
    if text:
        try:
            return ClusterTarget(read_endpoints(text), VARIABLE)
        except click.BadParameter as error:
            raise click.UsageError(f"{VARIABLE}: {error.message}") from None
    local = local_layout(folder / LOCAL_FOLDER)
    if local is not None:
        members = local.members()
        streams = tuple(str(member.stream) for member in members)
        up_runs = is_locked(folder / LOCAL_FOLDER)
        return ClusterTarget(streams, f"the cluster in {LOCAL_FOLDER}", str(members[0].http), up_runs)
    return ClusterTarget(DEFAULT, "the default", DEFAULT_HTTP)


def local_layout(folder: Path) -> Layout | None:
    """The layout of the cluster that `palisade up` keeps in `folder`; None without one. Raises click.UsageError."""
    from palisade.base.errors import ConfigError
    from palisade.node.local_layout import layout_from_json

    file = folder / LAYOUT_FILE
    try:
        return layout_from_json(json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, AttributeError, ConfigError) as error:
        raise click.UsageError(
            f"{file} cannot be read: {reason_of(error)}; give --endpoints, or restore the file"
        ) from None


def read_endpoints(text: str) -> tuple[str, ...]:
    """'host:port,host:port', each validated. Raises click.BadParameter."""
    try:
        found = tuple(str(Address.parse(part.strip(), STREAM_EXAMPLE)) for part in text.split(",") if part.strip())
    except AddressError as error:
        raise click.BadParameter(str(error)) from None
    if not found:
        raise click.BadParameter("is empty; give host:port of at least one node")
    return found
