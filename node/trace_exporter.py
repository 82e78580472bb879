"""Logs that a collector does not accept traces. Only imported if tracing is on (`palisade[otel]`).

The exporter of OpenTelemetry logs two lines for each failed batch, every five seconds. Here it is one line at the first
failure, then one at growing intervals, and one when batches are accepted again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from palisade.base.recurring_line import RecurringLine

log = logging.getLogger(__name__)

_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")


class TraceExporter(SpanExporter):
    """Exports by `exporter`, a class of OpenTelemetry, to `endpoint`, from a thread of its own. `now`: seconds."""

    def __init__(self, exporter: SpanExporter, endpoint: str, now: Callable[[], float]) -> None:
        self._exporter, self._endpoint, self._now = exporter, endpoint, now
        self._line = RecurringLine(counts=False)
        self._reasons = Reasons()
        logging.getLogger(type(exporter).__module__).addFilter(self._reasons)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._reasons.begin()
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            line = self._line.over(f"the collector accepts traces again: endpoint={self._endpoint}", self._now())
        else:
            reason = self._reasons.first or "unknown"
            text = f"traces dropped, the collector does not accept them: endpoint={self._endpoint} reason={reason}"
            line = self._line.holds(text, self._now())
        if line is not None:
            log.warning("%s", line)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class Reasons(logging.Filter):
    """Removes the lines of the exporter from the log. `first`: why the current batch was not sent."""

    def __init__(self) -> None:
        super().__init__()
        self.first: str | None = None

    def begin(self) -> None:
        """Of the next batch."""
        self.first = None

    def filter(self, record: logging.LogRecord) -> bool:
        if self.first is None:
            text = record.getMessage()
            of_system = _SYSTEM_ERROR.search(text)
            self.first = of_system[1] if of_system else text
        return False
