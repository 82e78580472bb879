"""The definition of a job of `palisade pipeline run`. Pure.

A job is one module below `jobs/` with a constant `JOB`. The module imports no pyspark at its top: the command line
imports it for `--help`, also where Spark is not installed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palisade.pipeline.errors import BadOption
from palisade.pipeline.options import ClusterAccess

Progress = Callable[[str], None]
"""Called with the name of the phase that begins, such as "write 2013-03-01". Stages and tasks are shown anyway."""


@dataclass(frozen=True, slots=True)
class Report:
    """`fields`: the result as JSON. `text`: the result in lines. `ok` False: the command ends with exit code 1, for
    example because an audit found something."""

    fields: dict[str, Any]
    text: str
    ok: bool = True


def nothing_to_check(access: ClusterAccess, options: Any) -> None:
    """For a job that needs no check beyond that of its options (`__post_init__`)."""


@dataclass(frozen=True, slots=True)
class Job:
    """`options`: a frozen dataclass whose fields are made by `option`; its `__post_init__` may raise BadOption.

    `run(spark, access, options, progress)` raises PipelineError and the errors of the client. Started again after any
    failure, it continues or begins anew, and publishes nothing twice. `needs_cluster(options)`: whether the job
    connects to a cluster, which then has to answer before Spark starts. `check(access, options)` runs after
    that answer and before Spark starts, which takes seconds; it raises PipelineError, OSError and the errors of the
    client.
    """

    name: str
    help: str
    options: type[Any]
    run: Callable[[Any, ClusterAccess, Any, Progress], Report]
    needs_cluster: Callable[[Any], bool] = lambda options: True
    check: Callable[[ClusterAccess, Any], None] = nothing_to_check


@dataclass(frozen=True, slots=True)
class JobOption:
    """An option of a job for the command line. `default` None: the option is required."""

    field: str
    kind: type[Any]
    default: str | int | float | bool | None
    help: str
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        return f"--{self.field.replace('_', '-')}"


_REQUIRED: Any = object()


def option(text: str, default: Any = _REQUIRED, *, choices: tuple[str, ...] = ()) -> Any:
    """A field of an options dataclass; its annotation is str, int, float or bool. `text`: the help text. Without a
    default it is required."""
    metadata = {"help": text, "choices": choices}
    return field(metadata=metadata) if default is _REQUIRED else field(default=default, metadata=metadata)


KINDS: dict[str, type[Any]] = {"str": str, "int": int, "float": float, "bool": bool}


def options_of(job: Job) -> list[JobOption]:
    return [
        JobOption(
            each.name,
            KINDS[str(each.type)],
            None if each.default is dataclasses.MISSING else each.default,
            each.metadata["help"],
            each.metadata["choices"],
        )
        for each in dataclasses.fields(job.options)
    ]


def parsed(job: Job, given: Mapping[str, Any]) -> Any:
    """The options dataclass. Raises BadOption, also for unknown and missing options and values of another type."""
    known = {each.field: each for each in options_of(job)}
    for name, value in given.items():
        if name not in known:
            raise BadOption(f"job {job.name} has no option {name}; it has {', '.join(known)}")
        right = known[name].kind
        if not (isinstance(value, right) or (right is float and isinstance(value, int))) or (
            right is not bool and isinstance(value, bool)
        ):
            raise BadOption(f"option {name}={value!r} of job {job.name} is not of type {right.__name__}")
        if known[name].choices and value not in known[name].choices:
            raise BadOption(f"option {name}={value!r} is not one of {', '.join(known[name].choices)}")
    missing = [each.field for each in known.values() if each.default is None and each.field not in given]
    if missing:
        raise BadOption(f"job {job.name} needs option {', '.join(missing)}")
    return job.options(**given)


def source_options(access: ClusterAccess) -> dict[str, str]:
    """The options of `format("palisade")` that connect to the same cluster."""
    found = {"endpoints": ",".join(access.endpoints), "timeoutMs": str(round(access.timeout_s * 1000))}
    files = {"tokenFile": access.token_file, "user": access.user, "passwordFile": access.password_file}
    return found | {name: value for name, value in files.items() if value}
