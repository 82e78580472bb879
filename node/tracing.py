"""Traces of HTTP requests (`--otel-endpoint`), sent to a collector by OTLP over HTTP.

Off by default: nothing of OpenTelemetry is imported then, and no request passes through any of it. The variables of the
SDK apply (`OTEL_TRACES_SAMPLER`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS`, ...). The SDK sends spans in
batches from a thread of its own, and the last ones when the process ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from palisade.base.version import VERSION
from palisade.node.requirements import need_opentelemetry

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

    from palisade.node.config import NodeConfig

SEND_S_MAX = 2.0
"""Of one batch; also how long the end of the process waits for an unreachable collector."""
PATH = "/v1/traces"


def trace_of(config: NodeConfig, now: Callable[[], float]) -> Middleware | None:
    """None if tracing is off. `now`: seconds of a clock that does not go back, for any thread.

    Raises ConfigError if OpenTelemetry is not installed.
    """
    if config.otel_endpoint is None:
        return None
    need_opentelemetry()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from palisade.api.http.tracing import tracing
    from palisade.node.trace_exporter import TraceExporter

    resource = Resource.create(
        {
            "service.name": "palisade",
            "service.namespace": config.cluster,
            "service.instance.id": config.id,
            "service.version": VERSION,
        }
    )
    provider = TracerProvider(resource=resource)
    exporter = OTLPSpanExporter(config.otel_endpoint.rstrip("/") + PATH, timeout=SEND_S_MAX)
    provider.add_span_processor(BatchSpanProcessor(TraceExporter(exporter, config.otel_endpoint, now)))
    return tracing(provider.get_tracer("palisade", VERSION))
