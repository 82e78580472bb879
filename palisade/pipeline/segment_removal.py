"""The effects of `expiry.py`: the client of a worker, fenced reads at a node, and the files of segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from palisade.base.file_url import BadFileUrl
from palisade.client.publishing import unchanged_record
from palisade.client.sync_client import SyncClient
from palisade.metastore.requests import DeleteRange, Put
from palisade.pipeline.cluster import connect, credentials_of
from palisade.pipeline.expiry import ExpiryTarget, TargetRemoval, remove_expired
from palisade.pipeline.node_rules import read_rules
from palisade.pipeline.options import ClusterAccess
from palisade.pipeline.segment_folder import remove_file
from palisade.segments.retention import Rules
from palisade.segments.retention_worker import system_clocks
from palisade.wire.segment_errors import NotRemoved


class ClusterRemoval:
    """A `RemovalPort`. `nodes`: HTTP addresses for the fenced reads."""

    def __init__(self, client: SyncClient, access: ClusterAccess, nodes: Sequence[str]) -> None:
        self._client, self._access, self._nodes = client, access, nodes

    def rules(self) -> Rules:
        return read_rules(self._nodes, credentials_of(self._access))

    def clocks(self) -> tuple[float, float]:
        return system_clocks()

    def mark_unused(self, target: ExpiryTarget) -> int:
        record = target.record.marked_unused()
        put = Put(record.segment.key, record.to_bytes())
        done = self._client.segments_txn([unchanged_record(record, target.revision)], [put])
        return done.revision if done.succeeded else 0

    def mark_used(self, target: ExpiryTarget, revision: int) -> bool:
        """Not loaded: the leader sets that again if a node announces the segment."""
        record = replace(target.record, used=True, loaded=False)
        put = Put(record.segment.key, record.to_bytes())
        return bool(self._client.segments_txn([unchanged_record(record, revision)], [put]).succeeded)

    def delete_file(self, url: str, still: Callable[[], bool]) -> bool:
        if not still():
            return False
        try:
            remove_file(url)
        except (OSError, BadFileUrl) as error:
            raise NotRemoved(
                f"the file {url} cannot be deleted: {error}; its segment is unused, and the next run deletes it"
            ) from error
        return True

    def delete_record(self, target: ExpiryTarget, revision: int) -> None:
        compare = [unchanged_record(target.record, revision)]
        self._client.segments_txn(compare, [DeleteRange(target.record.segment.key)])


def remove_all(access: ClusterAccess, nodes: Sequence[str], targets: Iterable[ExpiryTarget]) -> Iterator[TargetRemoval]:
    """In a task of Spark."""
    with connect(access) as client:
        port = ClusterRemoval(client, access, nodes)
        for target in targets:
            yield remove_expired(target, port)
