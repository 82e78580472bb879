"""Traces of HTTP requests arrive at a collector of OpenTelemetry, by OTLP over HTTP (issue 16)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from palisade.base.version import VERSION
from tests.support.processes import Cluster, until

pytestmark = pytest.mark.e2e

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
LAST_TRACE_ID = "1bf7651916cd43dd8448eb211c80319c"


class Collector:
    """Decodes what nodes export with the messages of OpenTelemetry's own package."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.url = ""
        application = web.Application()
        application.router.add_post("/v1/traces", self._take)
        self.runner = web.AppRunner(application)

    async def _take(self, request: web.Request) -> web.Response:
        assert request.headers["Content-Type"] == "application/x-protobuf"
        self.bodies.append(await request.read())
        return web.Response(body=b"", content_type="application/x-protobuf")

    def spans_of(self, trace_id: str) -> list[tuple[dict[str, str], Any]]:
        """(the attributes of the resource, the span)."""
        found = []
        for body in self.bodies:
            for exported in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = {each.key: each.value.string_value for each in exported.resource.attributes}
                spans = [span for scope in exported.scope_spans for span in scope.spans]
                found += [(resource, span) for span in spans if span.trace_id.hex() == trace_id]
        return found


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    collector = Collector()
    await collector.runner.setup()
    site = web.TCPSite(collector.runner, "127.0.0.1", 0)
    await site.start()
    host, port = collector.runner.addresses[0][:2]
    collector.url = f"http://{host}:{port}"
    yield collector
    await collector.runner.cleanup()


async def test_trace_of_a_put_at_a_follower_reaches_a_collector(
    new_cluster: Callable[..., Cluster], collector: Collector
) -> None:
    """With its parent, route, status, times and node, and without key or value; the last one when the node ends."""
    cluster = new_cluster(otel_endpoint=collector.url)
    cluster.start()
    await cluster.ready()
    follower = (await cluster.followers())[0]
    async with aiohttp.ClientSession(f"http://{follower.http}") as client:
        for trace_id in (TRACE_ID, LAST_TRACE_ID):
            traced = {"traceparent": f"00-{trace_id}-{PARENT_ID}-01"}
            answer = await client.put("/v1/kv/secret-key", data=b"secret-value", headers=traced)
            assert answer.status == 200
            if trace_id == TRACE_ID:
                await until(lambda: bool(collector.spans_of(TRACE_ID)), "the trace at the collector")
    assert await follower.stop() == 0
    ((resource, span),) = collector.spans_of(TRACE_ID)
    assert resource | {"service.name": "palisade", "service.instance.id": follower.id} == resource
    assert (resource["service.namespace"], resource["service.version"]) == (follower.cluster, VERSION)
    assert (span.name, span.parent_span_id.hex()) == ("PUT /v1/kv/{key}", PARENT_ID)
    assert span.kind == span.SPAN_KIND_SERVER
    attributes = {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
    assert attributes == {
        "http.request.method": "PUT",
        "http.route": "/v1/kv/{key}",
        "http.response.status_code": 200,
    }
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 60e9
    assert len(collector.spans_of(LAST_TRACE_ID)) == 1, "exported when the node ended"
    assert b"secret" not in b"".join(collector.bodies)
