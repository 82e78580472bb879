"""Runs a job: checks the machine, starts Spark if needed, follows its stages, and cancels them if the job is stopped.

Java and pyspark are checked before anything else, and the cluster is asked once before Spark is started. A job that
ends by an exception, Ctrl-C too, leaves no Spark job running; a SparkSession that was started here is stopped, and a
Java process that has not finished its start is killed.
"""

from __future__ import annotations

import logging
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from palisade.client.endpoints import read_endpoints
from palisade.pipeline.cluster import require_answer
from palisade.pipeline.errors import BadOption, JobFailed, PipelineError
from palisade.pipeline.java import require_java, require_pyspark
from palisade.pipeline.job import Job, Report, parsed
from palisade.pipeline.jobs import job_named
from palisade.pipeline.options import ClusterAccess
from palisade.pipeline.quiet_start import start_java
from palisade.pipeline.spark_failure import cause_of

POLL_S = 0.2
TIMEOUT_S = 30.0
STDERR_S = 1.0
"""Longest time to pass on what Java has printed before it ended."""
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


@dataclass(frozen=True, slots=True)
class Seen:
    """The progress of a job: the phase that it has named, Spark's running stages, and their tasks."""

    phase: str
    stages: int
    tasks: int
    tasks_done: int


Show = Callable[[Seen], None]


def run(
    name: str,
    endpoints: str | Sequence[str],
    *,
    spark: Any = None,
    master: str = "local[*]",
    token_file: str = "",
    user: str = "",
    password_file: str = "",
    **options: Any,
) -> Report:
    """Run a job and return its report. `options`: those of the job, `palisade pipeline run NAME --help` lists them.

    With `spark`, that session is used, and stays open. Raises SparkMissing, BadOption, other PipelineErrors and the
    errors of the client.
    """
    require_pyspark()
    require_java()
    try:
        addresses = tuple(read_endpoints(endpoints))
    except ValueError as error:
        raise BadOption(f"endpoints: {error}") from None
    if bool(user) != bool(password_file) or (token_file and user):
        raise BadOption("give token_file, or user and password_file")
    job = job_named(name)
    chosen = parsed(job, options)
    access = ClusterAccess(addresses, token_file, user, password_file, TIMEOUT_S)
    if spark is None and job.needs_cluster(chosen):
        require_answer(access)
    job.check(access, chosen)
    return run_job(job, access, chosen, spark=spark, master=master)


def run_job(
    job: Job,
    access: ClusterAccess,
    options: Any,
    *,
    spark: Any = None,
    master: str = "local[*]",
    show: Show | None = None,
) -> Report:
    """As `run`, with parsed options; Java and pyspark are checked already. `show` is called in another thread."""
    if spark is not None:
        return _run_on(spark, job, access, options, show)
    from palisade.spark import session

    with plain_interrupts() as restore:
        with java_ends_with_a_failed_start():
            spark = started_session(lambda: session(master, app=f"palisade {job.name}", config=QUIET))
        restore()
        spark.sparkContext.setLogLevel("OFF")
        try:
            return _run_on(spark, job, access, options, show)
        finally:
            spark.stop()


def started_session(start: Callable[[], Any]) -> Any:
    """The session. Raises JobFailed if Java ends, or has no address."""
    try:
        return start()
    except Exception as error:
        cause = cause_of(error)
        if isinstance(error, PipelineError) or cause is None:
            raise
        raise JobFailed(f"Spark did not start: {cause}") from error


@contextmanager
def java_ends_with_a_failed_start() -> Iterator[None]:
    """Inside, PySpark starts Java without needless lines (`quiet_start`). Kills Java if the body ends by an exception,
    such as Ctrl-C, before PySpark is connected to it. Afterwards Java ends with this process.

    If PySpark is interrupted while it waits for the address of Java, it removes the folder for that address. Java then
    prints a stack trace and does not end.
    """
    from pyspark import SparkContext, java_gateway

    started: list[tuple[subprocess.Popen[bytes], threading.Thread]] = []

    def recorded(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        with interrupts_afterwards():
            started.append(start_java(command, **options))
        return started[-1][0]

    gateway: Any = java_gateway
    before, gateway.Popen = gateway.Popen, recorded
    try:
        yield
    except BaseException:
        for process, stderr in started if SparkContext._gateway is None else ():
            process.kill()
            process.wait()
            stderr.join(STDERR_S)
        raise
    finally:
        gateway.Popen = before


@contextmanager
def interrupts_afterwards() -> Iterator[None]:
    """Delays a Ctrl-C during the body until the body has ended. Does nothing outside the main thread, or if SIGINT has
    no Python handler."""
    before, came = signal.getsignal(signal.SIGINT), list[tuple[int, Any]]()
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, lambda *arguments: came.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])


@contextmanager
def plain_interrupts() -> Iterator[Callable[[], None]]:
    """Inside, Ctrl-C raises KeyboardInterrupt and nothing is logged about it. Yields a function to call once Spark has
    started.

    The handler that SparkContext installs calls Java, possibly within another call of Java, which then fails; and Py4J
    logs each interrupted call as an error with its traceback, by the root logger too.
    """

    def expected(record: logging.LogRecord) -> bool:
        return not record.getMessage().endswith("while sending command.")

    before, root, py4j = signal.getsignal(signal.SIGINT), logging.getLogger(), logging.getLogger("py4j")
    level = py4j.level

    def restore() -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)

    root.addFilter(expected)
    py4j.setLevel(logging.CRITICAL)
    try:
        yield restore
    finally:
        py4j.setLevel(level)
        root.removeFilter(expected)


def _run_on(spark: Any, job: Job, access: ClusterAccess, options: Any, show: Show | None) -> Report:
    context = spark.sparkContext
    group = f"palisade-{job.name}-{secrets.token_hex(4)}"
    context.setJobGroup(group, f"palisade pipeline run {job.name}", interruptOnCancel=True)
    try:
        with _watched(context, group, show) as enter:
            return job.run(spark, access, options, enter)
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    except Exception as error:
        context.cancelJobGroup(group)
        cause = cause_of(error)
        if isinstance(error, PipelineError) or cause is None:
            raise
        raise JobFailed(f"job {job.name}: {cause}") from error
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)


@contextmanager
def _watched(context: Any, group: str, show: Show | None) -> Iterator[Callable[[str], None]]:
    """Yields the function with which the job names its phases; shows stages and tasks until the end."""
    phase, stop = ["start"], threading.Event()

    def look() -> None:
        while not stop.wait(POLL_S):
            if show is not None:
                show(seen_now(context.statusTracker(), group, phase[0]))

    def enter(name: str) -> None:
        phase[0] = name

    thread = threading.Thread(target=look, name="palisade-progress", daemon=True)
    if show is not None:
        thread.start()
    try:
        yield enter
    finally:
        stop.set()
        if show is not None:
            thread.join()


def seen_now(tracker: Any, group: str, phase: str) -> Seen:
    """`tracker`: Spark's status tracker. A stage that has just ended may be unknown to it."""
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    running = [job for job in jobs if job is not None and job.status == "RUNNING"]
    stages = [tracker.getStageInfo(number) for job in running for number in job.stageIds]
    active = [stage for stage in stages if stage is not None and stage.numActiveTasks]
    return Seen(
        phase, len(active), sum(each.numTasks for each in active), sum(each.numCompletedTasks for each in active)
    )
