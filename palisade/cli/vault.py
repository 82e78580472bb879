"""palisade vault inspect, verify, export, reset: the vault in a node's data folder. No node is contacted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palisade.base.counted import agreeing, counted
from palisade.base.durable_files import replacing
from palisade.base.network_reason import reason_of
from palisade.base.new_file import why_not_made
from palisade.cli.given_path import GivenPath
from palisade.cli.options import FILE
from palisade.cli.session import INTERRUPTED, REFUSED, CliSession, Failure

if TYPE_CHECKING:
    from palisade.vault.fence_page import Fence
    from palisade.vault.inspection import Summary

STDOUT = "-"
STEP_KEYS = 1_000
Command = Callable[..., Any]


@click.group()
def vault() -> None:
    """Inspect, verify and export the vault of a node.

    The vault is the local copy of the cluster's state in the node's data folder. No node is contacted.
    """


def vault_options(command: Command) -> Command:
    """Passes the session and the folder of the vault to the command."""
    folder = GivenPath(path_type=Path)

    def with_session(data_dir: Path, as_json: bool, **options: Any) -> None:
        session = CliSession([], 0.0, as_json)
        require_vault(session, data_dir)
        command(session, data_dir / "vault", **options)

    with_session.__doc__ = command.__doc__
    shown = click.option("--json", "as_json", is_flag=True, help="Print JSON, in the shapes of docs/cli.md.")
    where = click.option("--data-dir", type=folder, required=True, help="The data folder of the node.")
    return where(shown(with_session))


def require_vault(session: CliSession, data_dir: Path) -> None:
    """Fails if there is none. VaultForeign would name the folder of the vault, but the option takes the data folder."""
    from palisade.vault.directory import DATA, VaultDirectory

    try:
        if (data_dir / "vault" / DATA).is_file():
            return
        place = f"vault in the data folder {data_dir}" if data_dir.is_dir() else f"folder {data_dir}"
        if data_dir.exists() and not data_dir.is_dir():
            raise click.UsageError(f"--data-dir: {data_dir} is a file; give the data folder of a node")
        asides = VaultDirectory(data_dir / "vault").asides()
    except OSError:
        return  # the command reports what it cannot read
    text = f"there is no {place}: give the data folder of a node that has recovered (its --data-dir)"
    if asides:
        names = ", ".join(map(str, asides))
        text = (
            f"there is no {place}, only what was put aside: {names}. To examine one, move it to an empty folder as its "
            "subfolder 'vault'"
        )
    session.fail(Failure(REFUSED, "vault-foreign", text, False))


@vault.command("inspect")
@vault_options
def inspect(session: CliSession, path: Path) -> None:
    """Print node, cluster, LV, key count and digests of the vault.

    The node may be running.
    """
    from palisade.vault.fence_file import look_at
    from palisade.vault.inspection import summary_of
    from palisade.vault.opening import read_vault

    with refused_clearly(session):
        found = read_vault(path)
        try:
            summary = summary_of(found)
        finally:
            found.close()
        looked_at = look_at(path)
    fence = None if looked_at is None else fence_shape(*looked_at)
    session.answer({"path": str(path), **shape_of(summary), "fence": fence}, text_of(path, summary, fence))


@vault.command("verify")
@vault_options
def verify(session: CliSession, path: Path) -> None:
    """Verify every page, checksum and digest. The node must be stopped."""
    from palisade.vault.directory import VaultDirectory
    from palisade.vault.verification import verify_at_rest

    directory = VaultDirectory(path)
    with refused_clearly(session):
        directory.require_file()
        directory.claim()
        try:
            with key_bar("verifying") as show:
                keys = verify_at_rest(path, show)
        finally:
            directory.release()
    session.answer({"path": str(path), "keys": keys, "sound": True}, f"{path}: sound, {counted(keys, 'key')}")


@vault.command("export")
@click.argument("file", type=FILE)
@click.option("--overwrite", is_flag=True, help="Replace an existing FILE once the new one is complete.")
@click.option(
    "--all", "everything", is_flag=True, help="Include the cluster's own keys; `palisade load` refuses such a file."
)
@vault_options
def export(session: CliSession, path: Path, file: str, overwrite: bool, everything: bool) -> None:
    """Write the keys and values of the users into FILE (- for stdout).

    One JSON object per line, as input for `palisade load`. The cluster's own keys, below palisade/, are not included.
    """
    from palisade.service.strict_commands import OWN
    from palisade.vault.inspection import export_rows
    from palisade.vault.opening import read_vault

    omitted = 0

    def chosen(key: bytes) -> bool:
        nonlocal omitted
        omits = not everything and key.startswith(OWN)
        omitted += omits
        return not omits

    with refused_clearly(session):
        refuse_target(session, file, overwrite=overwrite)
        found = read_vault(path)
        try:
            with key_bar("exporting") as show:
                keys = write_rows(export_rows(found, chosen), file, show)
            revision = found.revision
        finally:
            found.close()
    shape = {"file": file, "keys": keys, "revision": revision, "omitted": omitted}
    text = f"{'stdout' if file == STDOUT else file}: {counted(keys, 'key')} of revision {revision}"
    if omitted:
        are = agreeing(omitted, "is", "are")
        text += f"; {counted(omitted, 'key')} of the cluster itself {are} not included (--all includes them)"
    (session.answer_beside_data if file == STDOUT else session.answer)(shape, text)


@vault.command("reset")
@click.option("--confirm", is_flag=True, help="Rename it. Without this option, nothing is changed.")
@vault_options
def reset(session: CliSession, path: Path, confirm: bool) -> None:
    """Rename the vault; the next start recovers it anew. The node must be stopped."""
    from palisade.vault.directory import VaultDirectory

    directory = VaultDirectory(path)
    with refused_clearly(session):
        directory.require_file()
        directory.require_unused()
        aside = directory.put_aside() if confirm else None
    if aside is None:
        text = f"with --confirm, {path} is renamed, and the next start recovers it anew. Nothing was changed"
    else:
        text = f"renamed {path} to {aside}; the next start recovers it anew. Remove {aside} if it is not needed"
    session.answer({"path": str(path), "aside": str(aside) if aside else None, "done": confirm}, text)


def refuse_target(session: CliSession, file: str, *, overwrite: bool) -> None:
    reason = None if file == STDOUT else why_not_made(Path(file), overwrite=overwrite)
    if reason is not None:
        session.fail(Failure(REFUSED, "not-written", reason, False))


def write_rows(rows: Iterator[dict[str, object]], file: str, show: Callable[[int], None]) -> int:
    """Returns the number of keys. The file exists once it is complete."""
    if file == STDOUT:
        keys = write_to(sys.stdout.buffer.write, rows, show)
        sys.stdout.buffer.flush()
        return keys
    target = Path(file)
    partial = target.with_name(f"{target.name}.partial")
    with replacing(target, partial, exclusive=True) as stream:
        return write_to(stream.write, rows, show)


def write_to(write: Callable[[bytes], Any], rows: Iterator[dict[str, object]], show: Callable[[int], None]) -> int:
    keys = 0
    for keys, row in enumerate(rows, 1):
        write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        if keys % STEP_KEYS == 0:
            show(keys)
    return keys


@contextmanager
def refused_clearly(session: CliSession) -> Iterator[None]:
    """Ends the process for every refusal, with one line and an exit code."""
    from palisade.vault.errors import VaultError, VaultUnusable

    try:
        yield
    except VaultUnusable as error:
        session.fail(Failure(REFUSED, "vault-unusable", str(error), True))
    except VaultError as error:
        code = "vault-" + type(error).__name__.removeprefix("Vault").lower()
        session.fail(Failure(REFUSED, code, str(error), error.retry))
    except BrokenPipeError:
        session.leave_closed_pipe()
    except FileExistsError as error:
        text = f"{error.filename} exists: wait for the export that writes it; if none does, remove the file"
        session.fail(Failure(REFUSED, "not-written", text, False))
    except OSError as error:
        name = error.filename or "the file"
        text = f"{name} can't be written: {reason_of(error)}; make room, or give another file"
        session.fail(Failure(REFUSED, "not-written", text, False))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@contextmanager
def key_bar(title: str) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes the number of keys so far. Shown on stderr if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(title), TextColumn("{task.completed:,.0f} keys"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(title, total=None)
        yield lambda keys: progress.update(task, completed=keys)


def shape_of(summary: Summary) -> dict[str, Any]:
    return asdict(summary)


def fence_shape(fence: Fence, trusted: bool) -> dict[str, Any]:
    return {"trusted": trusted, "state": fence.state.name, "term": fence.term, "released": fence.released}


def text_of(path: Path, summary: Summary, fence: dict[str, Any] | None) -> str:
    mine = summary.lineage
    whose = (
        f"of node {mine.node_id} in cluster {mine.cluster_id}, generation {mine.generation}"
        if mine
        else "without an owner"
    )
    text = f"{path}: {whose}, LV {summary.revision}, {counted(summary.keys, 'key')}, chain {summary.chain}"
    if summary.recovering is not None:
        text += f"; a snapshot of revision {summary.recovering} is incomplete"
    if summary.pending:
        text += f"; {counted(summary.pending, 'change')} staged and not applied"
    if summary.eviction_pending:
        text += "; an eviction of local data is incomplete"
    if fence is not None:
        trusted = "may be served" if fence["trusted"] else "must not be served"
        text += f"; its fence is {fence['state']}: its content {trusted} now, RR {fence['released']}"
    return text
