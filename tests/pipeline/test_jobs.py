"""Jobs of `palisade pipeline`: options, credentials, exit codes, the failure of a Spark job in one line (issue 18)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from palisade.cli import pipeline as commands
from palisade.cli.main import main
from palisade.pipeline import java, running
from palisade.pipeline.errors import BadOption, JobFailed, RevisionGone, SparkMissing
from palisade.pipeline.job import Job, Report, option, parsed, source_options
from palisade.pipeline.jobs import job_named
from palisade.pipeline.options import ClusterAccess, access_of
from palisade.pipeline.running import Seen, run_job, seen_now
from palisade.pipeline.spark_failure import cause_of
from palisade.raftgroup.errors import Unavailable
from palisade.wire.recorded_history import SUFFIX

ACCESS = ClusterAccess(("n1:7601", "n2:7601"), "", "alice", "/run/password", 5.0)


@dataclass(frozen=True, slots=True)
class Wishes:
    to: str = option("where")
    days: int = option("how many", 7)
    mode: str = option("how", "safe", choices=("safe", "fast"))
    dry: bool = option("only show", False)

    def __post_init__(self) -> None:
        if self.days < 1:
            raise BadOption("--days is below 1")


class FakeContext:
    """Records the job groups that are cancelled, and what is left set in the session."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.local: dict[str, str | None] = {}

    def setJobGroup(self, group: str, *_: Any, **__: Any) -> None:  # noqa: N802
        self.local["spark.jobGroup.id"] = group

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802
        self.local[name] = value

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.append(group)


def job_that(run: Any) -> Job:
    return Job("tidy", "Tidy the shelves.", Wishes, run, needs_cluster=lambda _: False)


def raising(error: BaseException) -> Job:
    def run(*_: Any) -> Report:
        raise error

    return job_that(run)


def test_options_are_parsed_with_defaults() -> None:
    assert parsed(job_that(None), {"to": "x", "days": 3}) == Wishes("x", 3, "safe", False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs option to"),
        ({"to": "x", "speed": 1}, "no option speed; it has to, days"),
        ({"to": 7}, "not of type str"),
        ({"to": "x", "days": True}, "not of type int"),
        ({"to": "x", "mode": "wild"}, "not one of safe, fast"),
        ({"to": "x", "days": 0}, "--days is below 1"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        parsed(job_that(None), given)


def test_source_options_reach_the_same_cluster_with_the_same_files() -> None:
    assert access_of(source_options(ACCESS)) == ACCESS


def test_job_that_fails_is_cancelled_and_the_session_is_left_as_it_was() -> None:
    for error in (RevisionGone("gone"), KeyboardInterrupt(), ValueError("a bug")):
        context = FakeContext()
        with pytest.raises(type(error)):
            run_job(raising(error), ACCESS, None, spark=SimpleNamespace(sparkContext=context))
        assert len(context.cancelled) == 1
        assert set(context.local.values()) == {None}


def spark_error(text: str) -> Exception:
    return type("Failed", (Exception,), {"__module__": "pyspark.errors"})(text)


def test_error_of_spark_becomes_one_line_with_its_cause() -> None:
    text = 'Job aborted\n  File "x.py", line 7\npalisade.pipeline.errors.BadValue: value of b"k" is no JSON\n\n  at x'
    assert cause_of(spark_error(text)) == 'value of b"k" is no JSON (BadValue)'
    assert cause_of(spark_error("\nno space left on device\n at org.x")) == "no space left on device"
    full = (
        "An error occurred while calling o1.parquet.\n: org.apache.spark.SparkException: Job aborted.\n\tat x.y\n"
        "Caused by: java.io.IOException: No space left on device\n\tSuppressed: a.B: c\n\tCaused by: a.C: d\n"
    )
    assert cause_of(spark_error(full)) == "No space left on device (IOException)"
    assert cause_of(ValueError("ours")) is None
    with pytest.raises(JobFailed, match="job tidy: value of"):
        run_job(raising(spark_error(text)), ACCESS, None, spark=SimpleNamespace(sparkContext=FakeContext()))


def test_progress_counts_the_tasks_of_running_stages() -> None:
    stages = {
        1: SimpleNamespace(numTasks=4, numCompletedTasks=4, numActiveTasks=0),
        2: SimpleNamespace(numTasks=8, numCompletedTasks=3, numActiveTasks=2),
    }
    jobs = {
        7: SimpleNamespace(status="RUNNING", stageIds=[1, 2, 3]),
        6: SimpleNamespace(status="SUCCEEDED", stageIds=[2]),
    }
    tracker = SimpleNamespace(getJobIdsForGroup=lambda _: [6, 7, 5], getJobInfo=jobs.get, getStageInfo=stages.get)
    assert seen_now(tracker, "g", "write") == Seen("write", 1, 8, 3)


def test_python_api_asks_the_cluster_before_it_starts_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a session that runs already it does not: there is no start to save."""
    ran = list[Job]()
    monkeypatch.setattr(running, "require_pyspark", lambda: None)
    monkeypatch.setattr(running, "require_java", lambda: None)
    monkeypatch.setattr(running, "run_job", lambda job, *_, **__: ran.append(job))
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        running.run("retention", "127.0.0.1:9")
    assert ran == []
    running.run("retention", "127.0.0.1:9", spark=SimpleNamespace())
    (tmp_path / f"a{SUFFIX}").touch()
    folder = str(tmp_path)
    running.run("audit", "127.0.0.1:9", to=folder, histories=folder, history_only=True)
    assert [job.name for job in ran] == ["retention", "audit"]


def invoke(job: Job, *words: str, env: dict[str, str] | None = None) -> Any:
    group = click.Group("palisade", commands={"run": commands.command_of(job)})
    return CliRunner().invoke(group, ["run", *words], env=env or {})


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs jobs without Spark: none of them needs it here."""
    monkeypatch.setattr(java, "require_pyspark", lambda: None)
    monkeypatch.setattr(java, "require_java", lambda: None)
    monkeypatch.setattr(running, "run_job", lambda job, access, options, **_: job.run(None, access, options, print))


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (RevisionGone("gone"), 1, "compacted"),
        (BadOption("no"), 2, "usage"),
        (Unavailable("all down"), 3, "unavailable"),
        (KeyboardInterrupt(), 130, None),
    ],
)
def test_exit_code_of_a_failed_job(no_spark: None, error: BaseException, code: int, name: str | None) -> None:
    found = invoke(raising(error), "--to", "x", "--json")
    assert found.exit_code == code
    assert name is None or json.loads(found.stderr)["error"]["code"] == name


def test_options_are_checked_before_spark_is_started(no_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data source that does not exist, or a folder that cannot be created, was refused after 9 s."""

    def check(access: ClusterAccess, options: Wishes) -> None:
        raise BadOption(f"option to: {options.to} is not here")

    monkeypatch.setattr(running, "run_job", lambda *_, **__: pytest.fail("Spark was started"))
    found = invoke(replace(job_that(None), check=check), "--to", "x")
    assert (found.exit_code, found.stderr) == (2, "palisade: option to: x is not here\n")


@pytest.mark.parametrize("name", ["history", "audit", "ingest"])
def test_folder_that_cannot_be_created_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "below"
    (tmp_path / f"a{SUFFIX}").touch()
    job = job_named(name)
    given = {"to": str(folder), **({"histories": str(tmp_path)} if name == "audit" else {})}
    with pytest.raises(BadOption, match=f"^option to: the folder {folder} cannot be created: not a directory; give"):
        job.check(ACCESS, parsed(job, given))


def test_report_is_json_or_text_and_findings_are_exit_code_1(no_spark: None) -> None:
    job = job_that(lambda spark, access, options, progress: Report({"to": options.to}, "tidied", ok=not options.dry))
    assert json.loads(invoke(job, "--to", "x", "--json").stdout) == {"to": "x"}
    assert invoke(job, "--to", "x").stdout == "tidied\n"
    assert invoke(job, "--to", "x", "--dry").exit_code == 1
    assert invoke(job).exit_code == 2
    assert invoke(job, "--to", "x", "--mode", "wild").exit_code == 2


def test_credentials_are_files_and_never_values(no_spark: None) -> None:
    job = job_that(lambda spark, access, options, progress: Report({"user": access.user}, access.password_file))
    assert invoke(job, "--to", "x", "--user", "alice", "--password-file", "p").stdout == "p\n"
    secret = {"PALISADE_USER": "alice", "PALISADE_PASSWORD": "hidden"}
    refused = invoke(job, "--to", "x", env=secret)
    assert refused.exit_code == 2
    assert "give --password-file" in refused.output
    assert invoke(job, "--to", "x", env=secret | {"PALISADE_PASSWORD_FILE": "f"}).stdout == "f\n"


def test_java_is_checked_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise SparkMissing("Spark needs Java")

    monkeypatch.setattr(java, "require_java", missing)
    found = invoke(job_that(None), "--to", "x", "--days", "0", "--json")
    assert (found.exit_code, json.loads(found.stderr)["error"]["code"]) == (1, "spark-missing")


def test_list_names_every_job() -> None:
    from palisade.pipeline.jobs import names

    found = json.loads(CliRunner().invoke(main, ["pipeline", "list", "--json"]).stdout)
    assert [job["name"] for job in found["jobs"]] == names()
