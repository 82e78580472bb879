"""Traces of HTTP requests (issue 16)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import ClientSession
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from palisade.api.http.server import HttpServer
from palisade.api.http.tracing import tracing
from palisade.api.services import NodeServices
from palisade.base.errors import ConfigError
from palisade.node.tracing import trace_of
from tests.node.test_config import load
from tests.support.fake_group import FakeGroup
from tests.support.served_node import group, service, services

__all__ = ["group", "service", "services"]

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def http(services: NodeServices, spans: InMemorySpanExporter) -> AsyncIterator[ClientSession]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    server = HttpServer(replace(services, trace=tracing(provider.get_tracer("t"))), "demo", "n1")
    await server.start("127.0.0.1", 0)
    async with ClientSession(f"http://127.0.0.1:{server.port}") as session:
        yield session
    await server.close()


async def test_each_request_has_a_span_with_route_and_status_and_no_key(
    http: ClientSession, spans: InMemorySpanExporter, group: FakeGroup
) -> None:
    """Those of the fast path as well."""
    await http.put("/v1/kv/secret", data=b"v")
    await http.post("/v3/kv/range", json={"key": "c2VjcmV0"})
    await http.get("/v1/kv/nothing-here")
    await http.get("/nowhere")
    group.leading = False
    await http.put("/v1/kv/secret", data=b"v")
    found = [(each.name, dict(each.attributes or {}).get("http.response.status_code")) for each in
             spans.get_finished_spans()]  # fmt: skip
    assert found[:4] == [
        ("PUT /v1/kv/{key}", 200),
        ("POST /v3/kv/range", 200),
        ("GET /v1/kv/{key}", 404),
        ("GET (no such path)", 404),
    ]
    last = spans.get_finished_spans()[4]
    assert (found[4], last.status.status_code) == (("PUT /v1/kv/{key}", 503), StatusCode.ERROR)
    assert not any("secret" in each.to_json() or "c2Vj" in each.to_json() for each in spans.get_finished_spans())


async def test_span_continues_the_trace_of_the_client(http: ClientSession, spans: InMemorySpanExporter) -> None:
    await http.get("/v1/status", headers={"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"})
    (span,) = spans.get_finished_spans()
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE_ID, "b7ad6b7169203331")


def test_tracing_is_off_without_an_endpoint_and_a_clear_error_without_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert trace_of(load(), lambda: 0.0) is None
    assert trace_of(load(otel_endpoint="http://127.0.0.1:4318"), lambda: 0.0) is not None
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[otel\]'"):
        trace_of(load(otel_endpoint="http://127.0.0.1:4318"), lambda: 0.0)
    with pytest.raises(ConfigError, match="such as http://host:4318"):
        load(otel_endpoint="127.0.0.1:4318")
