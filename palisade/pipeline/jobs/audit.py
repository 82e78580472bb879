"""`palisade pipeline run audit`: contradictions in recorded histories and in the records of a running cluster."""

from __future__ import annotations

import importlib.util
from typing import Any

from palisade.pipeline.audit_options import AuditOptions, files_in
from palisade.pipeline.errors import SparkMissing
from palisade.pipeline.job import Job, Progress, Report
from palisade.pipeline.local_folder import require_folder
from palisade.pipeline.options import ClusterAccess


def check(access: ClusterAccess, options: AuditOptions) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise SparkMissing("matplotlib is not installed: pip install '.[audit]' in a clone of Palisade")
    files_in(options.histories)
    require_folder(options.folder)


def run(spark: Any, access: ClusterAccess, options: AuditOptions, progress: Progress) -> Report:
    from palisade.pipeline.audit_run import AuditRun

    return AuditRun(spark, access, options, files_in(options.histories), progress).run()


JOB = Job(
    "audit",
    """Find contradictions in histories and in the cluster.

    Compares recorded operations with each other and with the change feed: stale reads, lost and doubled writes, reads
    from the future, periods without success. Compares the digests of the members, the announcements of segments, and
    the sequences of journals. Exit code 1: something was found.
    """,
    AuditOptions,
    run,
    lambda options: not options.history_only,
    check,
)
