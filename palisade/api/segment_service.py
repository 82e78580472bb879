"""Lookups and changes of segments, for HTTP and the stream: plain values in, plain values out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from palisade.base.clock import SystemClock
from palisade.catalog.errors import BadField
from palisade.catalog.realtime import REASON_CHARACTERS_MAX
from palisade.catalog.row_format import a_name, shown, text_up_to
from palisade.catalog.segment import Segment, parse_segment
from palisade.catalog.segment_json import interval_of, record_from, segments_of
from palisade.client.publishing import publish
from palisade.client.realtime_changes import give_up, given_up_shape
from palisade.client.record_choice import Choice, in_interval, named
from palisade.client.segment_changes import mark_unused, reset_loaded, set_replicas
from palisade.metastore.requests import Compare, Range, Txn, prefix_end
from palisade.metastore.results import RangeResult, TxnResult
from palisade.segments.broker import SegmentBroker
from palisade.segments.broker_view import OnMissing
from palisade.segments.segment_views import answer_view, names, state_view
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues
from palisade.service.segment_writes import write_segments
from palisade.wire.segment_errors import BrokerNotSynced, UnknownSegment

LIMIT_MAX = 100_000


class OwnSegmentStore:
    """The `PublishingStore` of a member: rights must be checked before."""

    def __init__(self, service: KeyValues) -> None:
        self._service = service

    async def range(self, key: bytes, *, prefix: bool = False, revision: int = 0) -> RangeResult:
        return await self._service.range(
            Range(key, prefix_end(key) if prefix else b"", revision=revision), caller=THIS_NODE
        )

    async def segments_txn(self, compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult:
        return await write_segments(self._service, Txn(tuple(compare), tuple(success)))


class SegmentLookups:
    """What every node with a vault serves. `broker` None: a node in tests, or the embedded store."""

    def __init__(self, broker: SegmentBroker | None) -> None:
        self._broker = broker

    @property
    def broker(self) -> SegmentBroker:
        if self._broker is None:
            raise BrokerNotSynced("this node has no vault, so it answers no lookups of segments: ask a cluster's node")
        return self._broker

    async def lookup(self, data_source: Any, start: Any, end: Any, on_missing: Any = "fail") -> dict[str, Any]:
        """Shape `SegmentLookup`. Raises SegmentsUnavailable (only with fail), and as `SegmentBroker.lookup`."""
        name, interval, policy = a_name(data_source, "data_source"), interval_of(start, end), policy_of(on_missing)
        return answer_view(name, await self.broker.lookup(name, interval, policy), policy)

    async def listed(self, data_source: Any, limit: int = LIMIT_MAX) -> dict[str, Any]:
        """Shape `Segments`: the data sources; or the segments of one."""
        if not data_source:
            revision, found = await self.broker.data_sources()
            return {"revision": revision, "data_sources": found}
        name = a_name(data_source, "data_source")
        revision, states = await self.broker.segments(name)
        shapes = [state_view(state) for state in states[:limit]]
        return {"revision": revision, "data_source": name, "count": len(states), "segments": shapes}

    async def one(self, name: str) -> dict[str, Any]:
        """Shape `SegmentState`. Raises UnknownSegment."""
        segment = parse_segment(name)
        revision, state = await self.broker.segment(segment)
        if state is not None:
            return {"revision": revision, **state_view(state)}
        raise UnknownSegment(
            f"there is no segment {segment} at revision {revision}: palisade segments list {segment.data_source} "
            "shows those that exist"
        )


class SegmentChanges:
    """What members change."""

    def __init__(self, store: OwnSegmentStore, wall_ns: Callable[[], int] = SystemClock.wall_ns) -> None:
        self._store, self._wall_ns = store, wall_ns

    async def publish(self, data_source: Any, given: Any) -> dict[str, Any]:
        """Shape `SegmentsPublished`: all of them become visible at one revision."""
        name = a_name(data_source, "data_source")
        if type(given) is not list or not given:
            raise BadField("segments: give a list with at least one segment")
        return {
            "data_source": name,
            "published": await publish(self._store, name, [record_from(name, each) for each in given]),
        }

    async def mark_unused(self, data_source: Any, given: dict[str, Any]) -> dict[str, Any]:
        name = a_name(data_source, "data_source")
        return changed(name, await mark_unused(self._store, name, choice_of(given)))

    async def set_replicas(self, data_source: Any, replicas: Any, given: dict[str, Any]) -> dict[str, Any]:
        name = a_name(data_source, "data_source")
        if type(replicas) is not int:
            raise BadField(f"replicas: {shown(replicas)} is not a number")
        return changed(name, await set_replicas(self._store, name, replicas, choice_of(given)))

    async def reset_loaded(self, data_source: Any) -> dict[str, Any]:
        name = a_name(data_source, "data_source")
        return changed(name, await reset_loaded(self._store, name))

    async def give_up(self, data_source: Any, segment: Any, by: Any, reason: Any) -> dict[str, Any]:
        """A realtime segment of a lost ingester. Shape `SegmentGivenUp`. Raises as `realtime_changes.give_up`."""
        name = a_name(data_source, "data_source")
        if type(segment) is not str or parse_segment(segment).data_source != name:
            raise BadField(f"segment: {shown(segment)} is not a segment of data source {name}")
        text = text_up_to(REASON_CHARACTERS_MAX)
        audit = await give_up(
            self._store, parse_segment(segment), text(by, "by"), text(reason, "reason"), self._wall_ns() // 1_000_000
        )
        return given_up_shape(audit)


def changed(data_source: str, segments: list[Segment]) -> dict[str, Any]:
    """Shape `SegmentsChanged`."""
    return {"data_source": data_source, "changed": names(segments)}


def choice_of(given: dict[str, Any]) -> Choice:
    """`segments`: by name; or `from` and `to`: those that lie in the interval; or `all`. Raises BadField."""
    if given.keys() == {"segments"}:
        return named(segments_of(given["segments"]))
    if given.keys() == {"from", "to"}:
        return in_interval(interval_of(given["from"], given["to"]))
    if given.keys() == {"all"} and given["all"] is True:
        return in_interval(None)
    raise BadField('which segments: give either "segments", a list of names, or "from" and "to", or "all": true')


def policy_of(given: Any) -> OnMissing:
    """Raises BadField."""
    try:
        return OnMissing(given)
    except ValueError:
        raise BadField(f"on_missing: {shown(given)} is not one of {', '.join(OnMissing)}") from None
