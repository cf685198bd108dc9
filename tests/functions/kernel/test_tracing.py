"""Spans of requests and calls: who is whose parent, what they say, and what it costs without anybody listening."""

from __future__ import annotations

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.process.tracing import Tracing, exporting
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import idea, open_tag
from tests.logged import logged

TRACE, SPAN = "a" * 32, "b" * 16
HEADERS = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


class Collector:
    """The spans that a process exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def span(self, name: str) -> ReadableSpan:
        found = [span for span in self._exporter.get_finished_spans() if span.name == name]
        assert len(found) == 1, [span.name for span in self._exporter.get_finished_spans()]
        return found[0]


def ids(span: ReadableSpan) -> tuple[str, str, str | None]:
    """Trace, own and parent id, as W3C writes them."""
    own = span.get_span_context()
    assert own is not None
    parent = f"{span.parent.span_id:016x}" if span.parent is not None else None
    return f"{own.trace_id:032x}", f"{own.span_id:016x}", parent


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    found = Collector()
    monkeypatch.setattr("functions.kernel.process.lifecycle.exporting", lambda *_: Tracing(found.provider))
    return found


async def test_requests_and_calls_have_spans_of_the_caller(collector: Collector, settings: Settings) -> None:
    async with opened("web", settings) as process, http_client(process) as client:
        await open_tag(client)
        response = await client.post("/api/experiment/submit", json=idea(), headers=HEADERS)
        stored = (await process.stream.last(1))[0].trace
        later = process.invoker.system("test", traceparent=stored)
        await later.invoke("gpu::train", {"experiment_id": response.json()["experiment_id"]})

    request, submit = collector.span("HTTP POST /api/experiment/submit"), collector.span("experiment::submit")
    accept = collector.span("gpu::train")
    assert ids(request)[0] == ids(submit)[0] == ids(accept)[0] == TRACE
    assert ids(request)[2] == SPAN
    assert ids(submit)[2] == ids(request)[1]
    assert ids(accept)[2] == ids(submit)[1]
    assert response.headers["traceresponse"] == f"00-{TRACE}-{ids(request)[1]}-01"
    assert stored == f"00-{TRACE}-{ids(submit)[1]}-01"  # what trains it later hangs below what registered it


async def test_a_span_says_what_fired_the_call_and_its_end(collector: Collector, settings: Settings) -> None:
    async with opened("web", settings) as process, http_client(process) as client:
        await client.get("/api/experiment/mar11-1", headers=HEADERS)

    assert dict(collector.span("experiment::get").attributes or {}) == {
        "nightjar.experiment_id": "mar11-1",
        "nightjar.trigger": "http",
        "nightjar.role": "operator",
        "nightjar.outcome": "notfound",
    }
    assert not collector.span("experiment::get").events  # exceptions may quote what a caller sent
    request = collector.span("HTTP GET /api/experiment/{experiment_id}").attributes
    assert request is not None
    assert request["nightjar.status"] == 404


async def test_without_an_exporter_the_trace_passes_on(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client)
    response = await client.post("/api/experiment/register", json=idea(), headers=HEADERS)
    assert response.headers["traceresponse"] == HEADERS["traceparent"]
    assert (await process.stream.last(1))[0].trace == HEADERS["traceparent"]
    gpu = {"gpu_id": "host:gpu0", "gpu_index": 0, "gpu_name": "H100", "vram_mb": 80000.0}
    response = await client.post("/api/pool/register", json=gpu)  # a script appends its event
    assert (await process.stream.last(1))[0].trace == response.headers["traceresponse"]


def test_missing_packages_are_told_with_the_command_that_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")

    with logged() as lines:
        tracing = exporting("web@host:1")

    line = lines.one(level="warning")
    assert "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http" in line["message"]
    with tracing.span("work", None) as span:
        assert span.traceparent.endswith("-00")
