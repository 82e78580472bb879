"""Errors of the pipeline that users of Spark see."""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class PipelineError(PalisadeError):
    """The job cannot run, or a part of it failed."""

    retry = False


class BadOption(PipelineError):
    """An option of a read or a write is missing or malformed."""


class SparkMissing(PipelineError):
    """Java or pyspark is missing or unsuitable."""


class RevisionGone(PipelineError):
    """The revision of a read was compacted before the read ended."""


class BadValue(PipelineError):
    """A key or value does not have the requested type, and the mode is failfast."""
