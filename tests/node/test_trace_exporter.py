"""Log lines about a collector that does not accept traces (issue 16, item 14)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from palisade.node.trace_exporter import Reasons, TraceExporter
from palisade.node.tracing import SEND_S_MAX
from tests.support.processes import free_port

BATCH_S = 5.0


class Collector(SpanExporter):
    """Logs as OpenTelemetry's exporter does when a batch is not taken."""

    def __init__(self) -> None:
        self.takes = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.takes:
            return SpanExportResult.SUCCESS
        logging.getLogger(__name__).warning("Transient error %s, retrying in 1 s", "[Errno 111] Connection refused')")
        logging.getLogger(__name__).error("Failed to export spans batch")
        return SpanExportResult.FAILURE


@pytest.fixture(autouse=True)
def _without_filters() -> Iterator[None]:
    yield
    for name in (__name__, OTLPSpanExporter.__module__):
        logger = logging.getLogger(name)
        for each in [each for each in logger.filters if isinstance(each, Reasons)]:
            logger.removeFilter(each)


def test_collector_that_is_away_for_an_hour_is_eleven_lines_and_one_when_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two lines every five seconds would be 1,440."""
    now = 0.0
    collector = Collector()
    exporter = TraceExporter(collector, "http://c:4318", lambda: now)
    exporter.export(())
    assert caplog.messages == []
    collector.takes = False
    while now < 3600:
        exporter.export(())
        now += BATCH_S
    collector.takes = True
    exporter.export(())
    exporter.export(())
    lines = caplog.messages
    away = "traces dropped, the collector does not accept them: endpoint=http://c:4318 reason=Connection refused"
    later = (10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030)
    assert lines[:-1] == [away, *(f"{away} (for {seconds} s)" for seconds in later)]
    assert lines[-1] == "the collector accepts traces again: endpoint=http://c:4318 (after 3600.0 s)"


def test_collector_that_does_not_listen_is_one_line_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    """The real exporter, whose own lines are not written."""
    address = f"http://127.0.0.1:{free_port()}"
    exporter = TraceExporter(OTLPSpanExporter(f"{address}/v1/traces", timeout=SEND_S_MAX), address, lambda: 0.0)
    span = TracerProvider().get_tracer("t").start_span("s")
    assert isinstance(span, ReadableSpan)
    span.end()
    assert exporter.export([span]) is SpanExportResult.FAILURE
    assert caplog.messages == [
        f"traces dropped, the collector does not accept them: endpoint={address} reason=Connection refused"
    ]
