"""A span for each request, and one for each phase under it."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pagoda.core.errors import EngineError, InvalidRequest
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.output import CompletionOutput, RequestMetrics, RequestOutput
from pagoda.server.call import Call, Run
from pagoda.server.exchange import Exchange
from pagoda.server.generation import Job
from pagoda.server.keys import ApiKey
from pagoda.server.limits import Limits
from pagoda.server.tracing import RequestTracer, make_tracer, phases
from tests.server.conftest import OPTIONS
from tests.server.running import RunningServer

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def answered(status: int = 200, headers: dict[str, str] | None = None) -> Exchange:
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {"method": "POST", "path": "/v1/chat/completions", "headers": raw}
    exchange = Exchange(scope, None, None, Limits(), "r-1")  # type: ignore[arg-type]
    exchange.status, exchange.key = status, ApiKey("team")
    return exchange


def call_of(metrics: RequestMetrics, error: EngineError | None = None) -> Call:
    job = Job("chatcmpl-1", [("hi", [1, 2, 3])], SamplingParams(max_tokens=5), ApiKey("team"))
    answer = CompletionOutput(0, "x", [7, 8], finish_reason=None if error else "length")
    output = RequestOutput("chatcmpl-1-0", "hi", [1, 2, 3], [answer], metrics, finished=error is None)
    return Call("r-1", metrics.arrival_time - 0.25, [Run(job, {0: output}, error)])


def spans_of(exchange: Exchange, call: Call) -> dict[str, Any]:
    exporter = InMemorySpanExporter()
    tracer = RequestTracer(exporter, "tiny")
    tracer.record(exchange, call)
    tracer.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_phases_lie_end_to_end_under_the_request():
    now = time.monotonic()
    metrics = RequestMetrics(now - 10, now - 8, now - 5, now - 1, now - 1)
    exchange = answered(headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    spans = spans_of(exchange, call_of(metrics))
    request = spans["POST /v1/chat/completions"]
    assert set(spans) == {"POST /v1/chat/completions", "queue", "prefill", "decode"}
    assert f"{request.context.trace_id:032x}" == TRACE and f"{request.parent.span_id:016x}" == PARENT
    seconds = {name: (span.end_time - span.start_time) / 1e9 for name, span in spans.items()}
    assert seconds["queue"] == pytest.approx(2, abs=1e-3) and seconds["prefill"] == pytest.approx(3, abs=1e-3)
    assert seconds["decode"] == pytest.approx(4, abs=1e-3)
    assert spans["queue"].end_time == spans["prefill"].start_time
    for phase in ("queue", "prefill", "decode"):
        assert spans[phase].parent.span_id == request.context.span_id
        assert request.start_time <= spans[phase].start_time <= spans[phase].end_time <= request.end_time
    assert abs(request.end_time - time.time_ns()) < 5e9
    found = dict(request.attributes)
    assert found["gen_ai.usage.input_tokens"] == 3 and found["gen_ai.usage.output_tokens"] == 2
    assert found["gen_ai.request.max_tokens"] == 5 and found["gen_ai.response.finish_reasons"] == ("length",)
    assert found["pagoda.request_id"] == "r-1" and found["pagoda.key"] == "team"
    assert found["gen_ai.latency.time_in_queue"] == pytest.approx(2, abs=1e-3)
    assert not any(value == "hi" for value in found.values()), "texts are nobody's business"


def test_what_never_ran_has_no_phase_of_it_and_an_error_is_one():
    now = time.monotonic()
    assert list(phases(RequestMetrics(now))) == []
    assert [name for name, *_ in phases(RequestMetrics(now, now, None, None, None))] == ["queue"]
    spans = spans_of(answered(), call_of(RequestMetrics(now), EngineError("gone")))
    assert spans["POST /v1/chat/completions"].status.status_code.name == "ERROR"
    assert spans["POST /v1/chat/completions"].parent is None


def test_a_parent_that_is_not_sampled_is_respected():
    exchange = answered(headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    assert spans_of(exchange, call_of(RequestMetrics(time.monotonic()))) == {}


def test_without_an_endpoint_nothing_is_made():
    assert make_tracer(None, "tiny") is None


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name: str, *more: Any, **words: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *more, **words)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidRequest, match=r"trace_endpoint.*pip install 'pagoda\[tracing\]'"):
        make_tracer("http://127.0.0.1:4318", "tiny")


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Takes spans as OTLP over HTTP."""
    taken: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    taken.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", taken
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_gets_the_spans_of_a_server(tiny_folder: Path, collector: tuple[str, list[Any]]):
    url, taken = collector
    with RunningServer(tiny_folder, *OPTIONS, "--trace-endpoint", url) as running:
        running.wait_until_ready()
        with running.client(headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}) as client:
            body = {"prompt": ["the", "a"], "max_tokens": 3, "ignore_eos": True}
            client.post("/v1/completions", json=body).raise_for_status()
            client.get("/health")
    assert {span.trace_id.hex() for span in taken} == {TRACE}
    names = sorted(span.name for span in taken)
    assert names == ["POST /v1/completions"] + ["decode"] * 2 + ["prefill"] * 2 + ["queue"] * 2


def test_a_collector_that_is_not_there_costs_nobody_an_answer(tiny_folder: Path):
    with RunningServer(tiny_folder, *OPTIONS, "--trace-endpoint", "http://127.0.0.1:9") as running:
        running.wait_until_ready()
        with running.client() as client:
            for _ in range(3):
                client.post("/v1/completions", json={"prompt": "the", "max_tokens": 3}).raise_for_status()
        running.stop()
    assert running.wait() == 0
