"""Deletes segments past their TTL, with their files (issue 18, P6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from palisade.base.counted import agreeing, counted
from palisade.catalog.publication import MANIFESTS, Manifest
from palisade.catalog.segment import SegmentRecord
from palisade.client.node_addresses import addresses_in
from palisade.client.sync_client import SyncClient
from palisade.pipeline.cluster import connect, credentials_of
from palisade.pipeline.errors import BadOption, JobFailed
from palisade.pipeline.expiry import ExpiryPlan, RemovalOutcome, TargetRemoval, expiry_plan
from palisade.pipeline.job import Job, Progress, Report, option
from palisade.pipeline.node_rules import read_rules
from palisade.pipeline.options import ClusterAccess
from palisade.pipeline.segment_removal import remove_all
from palisade.segments.retention import RulesUnknown
from palisade.segments.retention_worker import system_clocks


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    data_source: str = option("Only this data source.", "")
    nodes: str = option("HTTP addresses of the nodes that are asked for the rules: HOST:PORT,... Default: all.", "")
    dry_run: bool = option("Only list the segments that would be removed.", False)

    def __post_init__(self) -> None:
        """Raises BadOption."""
        if any(":" not in each for each in self.addresses()):
            raise BadOption(f"option nodes={self.nodes!r} is not HOST:PORT,...")

    def addresses(self) -> list[str]:
        return [each.strip() for each in self.nodes.split(",") if each.strip()]


def check(access: ClusterAccess, options: RetentionOptions) -> None:
    if options.data_source:
        with connect(access) as client:
            require_source(data_sources(client), options.data_source)


def run(spark: Any, access: ClusterAccess, options: RetentionOptions, progress: Progress) -> Report:
    progress("read the rules")
    with connect(access) as client:
        nodes = options.addresses() or http_addresses(client)
        try:
            rules = read_rules(nodes, credentials_of(access))
        except RulesUnknown as error:
            raise JobFailed(f"{error}; nothing was removed: run the job again") from None
        records, manifests = all_records(client, options.data_source)
    plan = expiry_plan(records, manifests, rules, system_clocks())
    if options.dry_run:
        return report_of(plan, None)
    if not plan.targets:
        return report_of(plan, ())
    progress(f"remove {counted(len(plan.targets), 'segment')}")
    context = spark.sparkContext
    slices = min(len(plan.targets), context.defaultParallelism)
    tasks = context.parallelize(plan.targets, slices)
    return report_of(plan, tasks.mapPartitions(partial(remove_all, access, nodes)).collect())


def http_addresses(client: SyncClient) -> list[str]:
    """Of the nodes in the logical topology."""
    return list(addresses_in(client.topology()).values())


def all_records(client: SyncClient, data_source: str) -> tuple[dict[SegmentRecord, int], dict[str, Manifest]]:
    """With their revisions; and the manifests by data source."""
    names = data_sources(client)
    records: dict[SegmentRecord, int] = {}
    manifests: dict[str, Manifest] = {}
    for name in names:
        if data_source in ("", name):
            manifests[name], some = client.segments_records(name)
            records |= some
    if data_source:
        require_source(names, data_source)
    return records, manifests


def data_sources(client: SyncClient) -> list[str]:
    found = client.range(MANIFESTS, prefix=True)
    return [Manifest.from_bytes(kv.key, kv.value).data_source for kv in found.kvs]


def require_source(names: Collection[str], name: str) -> None:
    """Raises BadOption."""
    if name not in names:
        known = f"there are {', '.join(names)}" if names else "there are none"
        raise BadOption(f"option data_source={name!r}: no such data source; {known}")


def report_of(plan: ExpiryPlan, removals: Sequence[TargetRemoval] | None) -> Report:
    """`removals`: None after a dry run."""
    ended = removals or ()
    counts = Counter(each.outcome for each in ended)
    shown = [{"segment": each.name, "outcome": each.outcome.value, "reason": each.reason} for each in ended]
    fields: dict[str, Any] = {outcome.name.lower(): counts[outcome] for outcome in RemovalOutcome}
    fields |= {"expired": len(plan.targets) + plan.left, "left": plan.left}
    fields["segments"] = shown or [{"segment": each.name, "outcome": "", "reason": ""} for each in plan.targets]
    expired = fields["expired"]
    if removals is None:
        done = f"{len(plan.targets)} would be removed by a run"
    else:
        done = (
            f"{fields['removed']} removed with their files, {fields['marked']} without a file (marked unused), "
            f"{fields['kept']} kept, {fields['skipped']} skipped"
        )
    head = f"{counted(expired, 'segment')} {agreeing(expired, 'has', 'have')} expired: {done}"
    lines = [f"{head}, {plan.left} left for later runs"]
    lines += [f"{each.name} {each.outcome.value}: {each.reason}" for each in ended if each.reason]
    return Report(fields, "\n".join(lines), ok=not counts[RemovalOutcome.SKIPPED])


JOB = Job(
    "retention",
    "Delete segments past their TTL, with their files.\n\nThe rule is that of `palisade catalog set-ttl` for "
    "demo.SOURCE, else for demo. Each task reads it through the fence of a node directly before it deletes a file; "
    "while no node can answer, the segment is skipped. One run removes at most a tenth of the segments, the oldest "
    "first.",
    RetentionOptions,
    run,
    check=check,
)
