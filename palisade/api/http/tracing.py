"""A span of OpenTelemetry for each HTTP request. Only imported if tracing is on (`palisade[otel]`).

No request takes the fast path then. A span has the route, the method and the status, and continues the trace of the
header `traceparent`. Keys, values and credentials are not in it.
"""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Middleware
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from palisade.api.http.problems import Handler

UNKNOWN_ROUTE = "(no such path)"
_PROPAGATOR: TextMapPropagator = TraceContextTextMapPropagator()


def tracing(tracer: Tracer) -> Middleware:
    @web.middleware
    async def trace(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else UNKNOWN_ROUTE
        attributes = {"http.request.method": request.method, "http.route": route}
        parent = _PROPAGATOR.extract(request.headers)
        name = f"{request.method} {route}"
        with tracer.start_as_current_span(name, parent, SpanKind.SERVER, attributes) as span:
            response = await handler(request)
            span.set_attribute("http.response.status_code", response.status)
            if response.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            return response

    return trace
