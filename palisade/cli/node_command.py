"""palisade node: one process."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palisade.base.network_reason import reason_of
from palisade.cli.given_path import GivenPath
from palisade.cli.node_exit_codes import EXIT_FAILED, EXIT_LOST, EXIT_MUST_JOIN, EXIT_REFUSED, EXIT_REMOVED
from palisade.node.options import OPTIONS, Option

if TYPE_CHECKING:
    from palisade.node.config import NodeConfig


def add_options(command: Any) -> Any:
    """Every option of the table, as text. `node/options.py` parses it, whatever its source."""
    for option in reversed(OPTIONS):
        command = click_option(option)(command)
    return command


def click_option(option: Option) -> Any:
    name = option.name.replace("-", "_")
    if option.flag:
        return click.option(f"--{option.name}", name, is_flag=True, flag_value="true", default=None, help=option.help)
    shown = f"  [default: {option.default_text}]" if option.default_text else ""
    return click.option(f"--{option.name}", name, metavar="VALUE", help=option.help + shown)


@click.command()
@add_options
@click.option("--config", type=GivenPath(path_type=Path), help="TOML file with any of these options.")
@click.option("--parent-pipe", type=int, hidden=True, help="End when the other end of this file descriptor is closed.")
def node(config: Path | None, parent_pipe: int | None, **typed: str | None) -> None:
    """Run one node until SIGTERM or Ctrl-C.

    Every option can also be given as a variable (PALISADE_HEARTBEAT_MS=50) or in the --config file (heartbeat-ms = 50);
    the command line overrides the variable, and the variable overrides the file.

    \b
    palisade node --id n1 --cluster c1 --data-dir d1 --http 127.0.0.1:7401 \\
        --peer 127.0.0.1:7501 --stream 127.0.0.1:7601 \\
        --initial-cluster n1=127.0.0.1:7501

    With --follow the node is not a member of the Raft group: it keeps a vault of the cluster, which it finds by --seeds
    or --join. With --standalone it contacts no other node: it serves the vault in its folder, for reading only.

    Exit codes: 0: stopped. 1: failed (see the log). 2: refused its configuration, data folder, ports or cluster.
    3: removed from the cluster; join again with --join and an empty data folder. 4: the data folder is new, and the
    cluster has removed a member of this name; start it with --join. 5: the data folder was lost or swapped; restore the
    old one, or start with --join and an empty data folder.
    """
    from palisade.base.errors import ConfigError
    from palisade.base.port_probe import PortUnavailable, check_free
    from palisade.metastore.errors import StoreCorrupt
    from palisade.metastore.store_errors import StoreFailed
    from palisade.node.data_dir_marker import FolderError
    from palisade.raftgroup.errors import (
        DataDirectoryError,
        JournalCorrupt,
        MemberRemoved,
        MustJoin,
        NodeFailed,
        StorageLost,
    )
    from palisade.recovery.errors import RecoveryError, RecoveryRefused
    from palisade.topology.join_request import JoinRefused
    from palisade.vault.errors import VaultError, VaultUnusable
    from palisade.wire.segment_errors import FolderUnreadable
    from palisade.wire.topology_errors import NodeRefused

    refusals = (
        ConfigError,
        DataDirectoryError,
        FolderError,
        FolderUnreadable,
        JoinRefused,
        JournalCorrupt,
        NodeRefused,
        PortUnavailable,
        RecoveryRefused,
        StoreCorrupt,
    )
    try:
        settings = checked_settings(typed, config)
        for name, address in settings.listening().items():
            check_free(address, f"--{name}", f"give another --{name}")
        if not settings.standalone:
            check_free(settings.swim_listening(), "--swim", "give another --swim", udp=True)
        if parent_pipe is not None:
            watch(parent_pipe)
        run(settings)
    except MemberRemoved as error:
        end(EXIT_MUST_JOIN if isinstance(error, MustJoin) else EXIT_REMOVED, error)
    except StorageLost as error:
        end(EXIT_LOST, error)
    except refusals as error:
        end(EXIT_REFUSED, error)
    except (NodeFailed, RecoveryError, StoreFailed, VaultUnusable) as error:
        end(EXIT_FAILED, error, f" ({room_on_disk(settings.data_dir)})")
    except VaultError as error:
        end(EXIT_REFUSED, error)


def checked_settings(typed: Mapping[str, str | None], config: Path | None) -> NodeConfig:
    """`typed`: the options of the command line, with names of Python. Raises ConfigError."""
    from palisade.node.config_sources import load_node_config
    from palisade.node.requirements import check_requirements

    settings = load_node_config(
        {name.replace("_", "-"): text for name, text in typed.items() if text is not None}, config
    )
    check_requirements(settings)
    return settings


def check_arguments(arguments: Sequence[str]) -> NodeConfig:
    """Raises ConfigError if `palisade node` with these arguments, in this environment, refuses its configuration."""
    params = dict(node.make_context("palisade node", list(arguments)).params)
    config = params.pop("config")
    params.pop("parent_pipe")
    return checked_settings(params, config)


def end(exit_code: int, error: Exception, more: str = "") -> None:
    print(f"palisade node: {error}{more}", file=sys.stderr)
    sys.exit(exit_code)


def room_on_disk(folder: Path) -> str:
    """The free space of the disk: LMDB reports some full disks as failing disks (EIO, observed with tmpfs)."""
    try:
        return f"{shutil.disk_usage(folder).free / (1 << 20):.1f} MiB are free on the disk of {folder}"
    except OSError as error:
        return f"the disk of {folder} cannot be checked: {reason_of(error)}"


def watch(parent_pipe: int) -> None:
    from palisade.base.errors import ConfigError
    from palisade.node.parent_pipe import watch_parent

    try:
        watch_parent(parent_pipe)
    except OSError as error:
        raise ConfigError(
            f"{parent_pipe} is not an open file descriptor: {reason_of(error)}", option="parent-pipe"
        ) from None


def run(settings: Any, make: Any = None) -> None:
    """Run the node until a requested stop. Raises the error that ends it. `make`: replaces `make_node`."""
    import uvloop

    from palisade.cli.scenarios.all import SCENARIOS
    from palisade.node.run import make_node, run_node

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_node(settings, make or partial(make_node, scenarios=SCENARIOS)))
