"""palisade pipeline: runs the jobs of the data pipeline on Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

import click

from palisade.base.counted import counted
from palisade.cli.help_formatter import format_help_of
from palisade.cli.options import cluster_options, output_options
from palisade.cli.session import INTERRUPTED, REFUSED, USAGE, CliSession, Failure, failure_of
from palisade.cli.waiting import progressing_in_thread

if TYPE_CHECKING:
    from palisade.pipeline.job import Job, JobOption
    from palisade.pipeline.options import ClusterAccess
    from palisade.pipeline.running import Seen

TIMEOUT_S = 30.0


@click.group()
def pipeline() -> None:
    """Run the jobs of the data pipeline on Spark.

    They need pip install '.[spark]' in a clone of Palisade, and Java 17 or 21.
    """


@pipeline.command("list")
@output_options
def list_(session: CliSession) -> None:
    """List the jobs."""
    from palisade.pipeline.jobs import job_named, names

    found = [(name, job_named(name).help) for name in names()]
    shape = {"jobs": [{"name": name, "help": text.split("\n")[0]} for name, text in found]}
    session.rows(shape, ("job", "does"), [(name, text.split("\n")[0]) for name, text in found], wraps=["does"])


class JobGroup(click.Group):
    """A command for each module of palisade/pipeline/jobs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from palisade.pipeline.jobs import names

        return names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from palisade.pipeline.jobs import job_named, names

        return command_of(job_named(cmd_name)) if cmd_name in names() else None


@pipeline.command("run", cls=JobGroup)
def run() -> None:
    """Run a job.

    A job that was interrupted can be started again: it publishes nothing twice.
    """


def command_of(job: Job) -> click.Command:
    """`palisade pipeline run JOB`."""

    def start(
        session: CliSession,
        master: str,
        as_user: str | None,
        token_file: str | None,
        password_file: str | None,
        **given: Any,
    ) -> None:
        files = credential_files(as_user, token_file, password_file, os.environ)
        with ended(session):
            run_here(session, job, master, files, given)

    command = click.command(job.name, help=job.help)(cluster_options(start))
    for each in command.params:
        if each.name == "deadline_s":
            each.default = TIMEOUT_S
    command.params = [
        *(option_of(each) for each in _options(job)),
        click.Option(["--master"], default="local[*]", show_default=True, help="Master URL of Spark."),
        *command.params,
        click.Option(["--user", "as_user"], help="User name (or PALISADE_USER), with --password-file."),
        click.Option(
            ["--password-file"],
            metavar="FILE",
            help="File with the password (or PALISADE_PASSWORD_FILE), at this path on each worker too.",
        ),
        click.Option(
            ["--token-file"],
            metavar="FILE",
            help="File that `palisade login` wrote (or PALISADE_TOKEN_FILE), at this path on each worker too.",
        ),
    ]
    format_help_of(command)
    return command


def _options(job: Job) -> list[JobOption]:
    from palisade.pipeline.job import options_of

    return options_of(job)


def option_of(each: JobOption) -> click.Option:
    names = [each.flag, each.field]
    if each.kind is bool:
        return click.Option(names, is_flag=True, default=bool(each.default), help=each.help)
    kind = click.Choice(each.choices) if each.choices else each.kind
    if each.default is None:
        return click.Option(names, type=kind, required=True, help=each.help)
    shown = each.default not in ("", 0)
    return click.Option(names, type=kind, default=each.default, show_default=shown, help=each.help)


def credential_files(
    user: str | None, token_file: str | None, password_file: str | None, environ: Mapping[str, str]
) -> tuple[str, str, str]:
    """(token file, user, password file), because workers read credentials from files. Raises click.UsageError."""
    if user is None and token_file is None:
        user, token_file = environ.get("PALISADE_USER"), environ.get("PALISADE_TOKEN_FILE")
        token_file = None if user else token_file
    if user and token_file:
        raise click.UsageError("give either --user or --token-file")
    if not user:
        if password_file:
            raise click.UsageError("give --user with --password-file")
        return token_file or "", "", ""
    password_file = password_file or environ.get("PALISADE_PASSWORD_FILE")
    if not password_file:
        raise click.UsageError(
            f"no password file for {user}: the workers of Spark read the password from a file; "
            "give --password-file, or set PALISADE_PASSWORD_FILE"
        )
    return "", user, password_file


@contextmanager
def ended(session: CliSession) -> Iterator[None]:
    """Every error except a bug ends the process with its exit code."""
    from palisade.pipeline.errors import BadOption, PipelineError

    try:
        yield
    except KeyboardInterrupt:
        session.note("the job was interrupted; it can be started again, and publishes nothing twice")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        session.leave_closed_pipe()
    except PipelineError as error:
        code = USAGE if isinstance(error, BadOption) else REFUSED
        session.fail(Failure(code, error.code, str(error), error.retry))
    except Exception as error:
        _fail(session, error)


def _fail(session: CliSession, error: Exception) -> NoReturn:
    failure = failure_of(error, session.endpoints, session.source)
    if failure is None:
        raise error
    session.fail(failure)


def run_here(session: CliSession, job: Job, master: str, files: tuple[str, str, str], given: Mapping[str, Any]) -> None:
    """Checks Java, sends one request to the cluster, then runs the job. Raises PipelineError and the errors of the
    client."""
    from palisade.cli.job_trouble import exit_if_no_answer
    from palisade.pipeline.java import require_java, require_pyspark
    from palisade.pipeline.job import parsed
    from palisade.pipeline.options import ClusterAccess
    from palisade.pipeline.running import run_job

    require_pyspark()
    require_java()
    options = parsed(job, given)
    access: ClusterAccess = ClusterAccess(tuple(session.endpoints), *files, session.deadline_s)
    needs_cluster = job.needs_cluster(options)
    if needs_cluster:
        exit_if_no_answer(session, access)
    job.check(access, options)
    with shown_progress(job.name, session, access if needs_cluster else None) as show:
        report = run_job(job, access, options, master=master, show=show)
    session.answer(report.fields, report.text)
    if not report.ok:
        sys.exit(REFUSED)


@contextmanager
def shown_progress(
    title: str, session: CliSession, access: ClusterAccess | None
) -> Iterator[Callable[[Seen], None] | None]:
    """Yields the function that shows the progress of the job; None with --json if stderr is no terminal. `access`: the
    cluster of the job; while it cannot answer, the progress shows the reason."""
    from palisade.cli.job_trouble import trouble_beside

    terminal = sys.stderr.isatty()
    if session.as_json and not terminal:
        yield None
        return
    show_in = task_bar if terminal else task_lines
    troubled = nullcontext(no_trouble) if access is None else trouble_beside(access)
    with troubled as trouble, show_in(title, trouble) as show:
        yield show


def no_trouble() -> str | None:
    """For a job that connects to no cluster."""
    return None


@contextmanager
def task_lines(title: str, trouble: Callable[[], str | None]) -> Iterator[Callable[[Seen], None]]:
    """Lines on stderr with the phase of the job, less than 2 s apart until its end. `trouble` returns why the cluster
    cannot answer at the moment; None if it can."""
    text = ["start Spark"]

    def show(seen: Seen) -> None:
        tasks = f", {seen.tasks_done} of {counted(seen.tasks, 'task')}" if seen.tasks else ""
        text[0] = f"{seen.phase}{tasks}"

    def line() -> str:
        why = trouble()
        return f"palisade: {title}: {text[0]}{f'; {why}' if why else ''}"

    with progressing_in_thread(line):
        yield show


@contextmanager
def task_bar(title: str, trouble: Callable[[], str | None]) -> Iterator[Callable[[Seen], None]]:
    """Shows a bar on the terminal for the tasks of the running stages; below it, until the job ends, the trouble."""
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    running = True

    class BarWithTrouble(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield from super().get_renderables()
            if running and (why := trouble()):
                yield Text(why)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with BarWithTrouble(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"{title}: start Spark", total=None)

        def show(seen: Seen) -> None:
            stages = f", {seen.stages} stage{'' if seen.stages == 1 else 's'}" if seen.stages else ""
            total = seen.tasks or None
            progress.update(bar, description=f"{title}: {seen.phase}{stages}", completed=seen.tasks_done, total=total)

        try:
            yield show
        finally:
            running = False
