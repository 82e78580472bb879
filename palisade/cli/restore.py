"""palisade restore: a new cluster from a backup. palisade recover-quorum: a new cluster from one survivor."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from palisade.base.counted import counted
from palisade.cli.given_path import GivenPath
from palisade.cli.input_file import STDIN
from palisade.cli.numbers import WholeNumber
from palisade.cli.options import FILE
from palisade.cli.progress_bar import byte_bar
from palisade.cli.session import INTERRUPTED, REFUSED, CliSession, Failure
from palisade.cli.waiting import progressing_in_thread
from palisade.metastore.lineage import FIRST_GENERATION, GENERATION_MAX
from palisade.node.local_layout import BASE_PORT_MAX, BASE_PORT_MIN, NODES_MAX

if TYPE_CHECKING:
    from palisade.node.local_layout import Layout
    from palisade.node.quorum_recovery import QuorumRecovery
    from palisade.node.restore import RestoreReport, RestoreRequest


@click.command()
@click.argument("file", type=FILE)
@click.option("--data-dir", type=GivenPath(path_type=Path), required=True, help="Folder to create; missing or empty.")
@click.option("--id", "node", metavar="NODE", help="Create the data folder of this one node, for 'palisade node'.")
@click.option(
    "--nodes",
    type=WholeNumber(1, NODES_MAX),
    help="Create a local cluster of N nodes, for 'palisade up'.  [default: 3]",
)
@click.option(
    "--base-port",
    type=WholeNumber(BASE_PORT_MIN, BASE_PORT_MAX),
    help="Base port of the local cluster.  [default: 7400]",
)
@click.option("--cluster", metavar="NAME", help="Name of the new cluster.  [default: that of the backup]")
@click.option(
    "--generation",
    type=WholeNumber(FIRST_GENERATION, GENERATION_MAX),
    help="Generation of the new history.  [default: that of the backup plus 1]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in the shapes of docs/cli.md.")
def restore(
    file: str,
    data_dir: Path,
    node: str | None,
    nodes: int | None,
    base_port: int | None,
    cluster: str | None,
    generation: int | None,
    as_json: bool,
) -> None:
    """Create a new cluster from the backup FILE (- for stdin).

    It has the keys, history and revisions of the backup. Its generation is higher by one, so that nodes and watches
    with later data are refused. When you restore the same backup again, give an unused --generation. Give --base-port
    if another cluster on this machine uses the ports.

    \b
    palisade restore FILE --data-dir D
    palisade up --data-dir D --no-demo

    For nodes on several machines, restore on each of them with its own id, then start all of them with the same
    --cluster and --initial-cluster:

    \b
    palisade restore FILE --data-dir D1 --id n1
    """
    from palisade.node.local_layout import Layout
    from palisade.node.restore import RestoreRequest

    session = CliSession([], 0.0, as_json)
    if file == STDIN and sys.stdin.isatty():
        raise click.UsageError("a backup cannot be typed at a terminal: give its FILE, or pipe it into this command")
    if node is not None and (nodes is not None or base_port is not None):
        raise click.UsageError("--id makes the folder of one node, --nodes and --base-port those of a local cluster")
    local = (3 if nodes is None else nodes, 7400 if base_port is None else base_port)
    request = RestoreRequest(data_dir, node, *local, cluster, generation)
    with session.note_after_ctrl_c(lambda: f"the restore was interrupted; {left(data_dir)}"):
        report = attempt(session, file, request)
    nodes_shape = {name: str(folder) for name, folder in report.folders.items()}
    header = report.header
    shape = {
        "data_dir": str(data_dir),
        "cluster": report.cluster,
        "cluster_id": header.cluster_id,
        "generation": report.generation,
        "revision": header.revision,
        "keys": header.keys,
        "nodes": nodes_shape,
    }
    if node is None:
        note_used_port(session, Layout(report.cluster, *local))
    begins = f"palisade up --data-dir {data_dir} --no-demo" if node is None else f"palisade node --id {node} ..."
    text = (
        f"{data_dir}: cluster {report.cluster}, generation {report.generation}, revision {header.revision}, "
        f"{counted(header.keys, 'key')}; start it with '{begins}'"
    )
    session.answer(shape, text)


def left(folder: Path) -> str:
    """What an interrupted restore leaves."""
    return f"{folder} {'is complete' if folder.is_dir() and any(folder.iterdir()) else 'was not written'}"


def note_used_port(session: CliSession, layout: Layout) -> None:
    """Prints a line on stderr if a port of the new cluster is in use."""
    from palisade.base.port_probe import PortUnavailable, check_free

    try:
        for member in layout.members():
            if member.http is not None:
                check_free(member.http, f"HTTP of {member.id}", "restore into another folder with another --base-port")
    except PortUnavailable as error:
        session.note(f"the cluster is restored, but can't be started yet: {error}")


def attempt(session: CliSession, file: str, request: RestoreRequest) -> RestoreReport:
    from palisade.base.errors import ConfigError
    from palisade.metastore.errors import StoreCorrupt
    from palisade.metastore.store_errors import BackupInvalid, StoreFailed
    from palisade.node.backup_file import BackupFileError, read_parts
    from palisade.node.data_dir_marker import FolderError
    from palisade.node.restore import check_request
    from palisade.node.restore import restore as run
    from palisade.raftgroup.errors import NodeFailed

    name = "the backup on stdin" if file == STDIN else file
    parts = stdin_parts() if file == STDIN else read_parts(Path(file))
    state = RestoreState()
    try:
        check_request(request)
        size_bytes = size_of(file)
        with shown_restore(session, state, file == STDIN) as show:
            return asyncio.run(run(state.reading(parts), name, request, lambda done, _: show(done, size_bytes)))
    except (BackupInvalid, BackupFileError) as error:
        session.fail(Failure(REFUSED, "bad-backup", str(error), False))
    except (ConfigError, FolderError, NodeFailed, StoreFailed, StoreCorrupt) as error:
        session.fail(Failure(REFUSED, "not-restored", str(error), False))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def size_of(file: str) -> int | None:
    """None if it is not known: the size in the header of a backup is that of the pages of a store, which is larger."""
    try:
        return None if file == STDIN or not Path(file).is_file() else Path(file).stat().st_size
    except OSError:
        return None


@dataclass(slots=True)
class RestoreState:
    activity: str = "waiting for the backup"

    def reading(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        yield from parts
        self.activity = "the backup is read; its data are checked and written to disk for each node"

    def count(self, done: int, total: int | None) -> None:
        self.activity = f"{done:,} bytes" if total is None else f"{done:,} of {max(done, total):,} bytes"


@contextlib.contextmanager
def shown_restore(
    session: CliSession, state: RestoreState, from_stdin: bool
) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on a terminal; else lines less than 2 s apart until the end, by a thread, because the data of the nodes are
    written after the backup was read, and a backup on stdin may be slow."""
    if sys.stderr.isatty():
        with byte_bar("restoring", sized=not from_stdin, at_once=from_stdin) as show:
            yield show
        return
    with progressing_in_thread(lambda: f"palisade: restoring: {state.activity}", only_terminal=session.as_json):
        yield state.count


def stdin_parts() -> Iterator[bytes]:
    while data := sys.stdin.buffer.read(1 << 20):
        yield data


@click.command("recover-quorum")
@click.option(
    "--data-dir", type=GivenPath(path_type=Path), required=True, help="Data folder of the node that continues alone."
)
@click.option("--confirm", metavar="CLUSTER", help="Name of the cluster. Without it, nothing is changed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in the shapes of docs/cli.md.")
def recover_quorum(data_dir: Path, confirm: str | None, as_json: bool) -> None:
    """Continue with one survivor after the loss of the majority.

    For a majority that is lost permanently. Stop the surviving node first.

    Writes that the lost majority acknowledged without this node are lost. The generation grows by one: the other nodes
    are refused and can rejoin with an empty data folder and --join. The first strict writes wait until the leases of
    the lost nodes have expired. Without --confirm the command only shows the result: of several survivors, choose the
    one with the highest last term and, among equals, the highest index.
    """
    from palisade.metastore.errors import StoreCorrupt
    from palisade.metastore.store_errors import StoreFailed
    from palisade.node.data_dir_marker import FolderError
    from palisade.node.quorum_recovery import recover_quorum as run
    from palisade.raftgroup.errors import RaftError
    from palisade.vault.errors import VaultUnusable

    session = CliSession([], 0.0, as_json)
    try:
        found = asyncio.run(run(data_dir, confirm))
    except VaultUnusable as error:
        session.fail(Failure(REFUSED, "not-recovered", f"nothing was done: {error}", True))
    except (FolderError, RaftError, StoreCorrupt, StoreFailed) as error:
        session.fail(Failure(REFUSED, "not-recovered", str(error), False))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    session.answer(found.to_json(), text_of(found))


def text_of(found: QuorumRecovery) -> str:
    survivor = found.survivor
    holds = f"holds revision {found.revision} or more (last term {survivor.last_term}, index {survivor.last_index})"
    lost = ", ".join(survivor.lost) or "no other member"
    if found.done:
        aside = f". Its vault of the earlier generation was put aside: {found.vault_aside}" if found.vault_aside else ""
        return (
            f"{survivor.member} {holds} and is the only voter of {survivor.cluster}, generation {found.generation}; "
            f"start it as usual. {lost} can rejoin only with --join and an empty data folder{aside}"
        )
    return (
        f"{survivor.member} {holds}. With --confirm {survivor.cluster} it continues alone, in generation "
        f"{found.generation}, without {lost}: data that only they have is lost. Nothing was changed"
    )
