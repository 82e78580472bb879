"""Errors of the pipeline that users of Spark see."""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class PipelineError(PalisadeError):
    """The job cannot run, or a part of it failed."""

    code = "pipeline-failed"
    retry = False


class BadOption(PipelineError):
    """An option of a read, a write or a job is missing or malformed."""

    code = "usage"


class SparkMissing(PipelineError):
    """Java or pyspark is missing or unsuitable."""

    code = "spark-missing"


class JobFailed(PipelineError):
    """Spark ended a job; the text has the cause. Everything that the job has published is complete; run it again."""

    code = "job-failed"


class RevisionGone(PipelineError):
    """The revision of a read was compacted before the read ended."""

    code = "compacted"


class VaultNotRead(PipelineError):
    """No vault on this machine can be read now; the network can."""

    code = "vault-not-read"
    retry = True


class BadValue(PipelineError):
    """A key or value does not have the requested type, and the mode is failfast."""
