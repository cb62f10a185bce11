"""Traces for OpenTelemetry: a span for each request and, under it, one for each phase of each prompt.

The times are those that the engine noted, so a request is traced when it is over and costs nothing before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pagoda.core.errors import InvalidRequest
from pagoda.core.version import own_version
from pagoda.engine.output import RequestMetrics
from pagoda.server.call import Call, Run
from pagoda.server.exchange import Exchange

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

EXPORT_SECONDS = 5.0
TRACES_PATH = "/v1/traces"


class RequestTracer:
    def __init__(self, exporter: SpanExporter, model_name: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create({"service.name": "pagoda", "service.version": own_version()})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, export_timeout_millis=int(1000 * EXPORT_SECONDS))
        )
        self._tracer = self._provider.get_tracer("pagoda.server")
        self._propagator = TraceContextTextMapPropagator()
        self._model_name = model_name
        self._wall_offset = 0  # from the monotonic clock to the wall clock, in nanoseconds

    def record(self, exchange: Exchange, call: Call) -> None:
        """A call that has been answered."""
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        now = time.monotonic()
        self._wall_offset = time.time_ns() - int(now * 1e9)
        span = self._tracer.start_span(
            f"{exchange.scope['method']} {exchange.path[:200]}",
            context=self._parent_of(exchange),
            kind=SpanKind.SERVER,
            attributes=self._attributes(exchange, call),
            start_time=self._wall(call.arrival_time),
        )
        if exchange.status >= 500 or any(run.error is not None for run in call.runs):
            span.set_status(Status(StatusCode.ERROR))
        within = set_span_in_context(span)
        for run in call.runs:
            for number, output in sorted(run.outputs.items()):
                more = {"pagoda.prompt.number": number, "pagoda.cached_tokens": output.num_cached_tokens}
                for name, start, end in phases(output.metrics):
                    phase = self._tracer.start_span(name, within, attributes=more, start_time=self._wall(start))
                    phase.end(self._wall(end))
        span.end(self._wall(now))

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _parent_of(self, exchange: Exchange) -> Any:
        """What the caller says it is part of, by W3C's `traceparent`."""
        names = (b"traceparent", b"tracestate")
        carrier = {n.decode(): exchange.headers[n].decode("latin-1") for n in names if n in exchange.headers}
        return self._propagator.extract(carrier)

    def _attributes(self, exchange: Exchange, call: Call) -> dict[str, Any]:
        found: dict[str, Any] = {
            "http.request.method": exchange.scope["method"],
            "http.response.status_code": exchange.status,
            "url.path": exchange.path[:200],
            "pagoda.request_id": call.request_id,
            "pagoda.key": exchange.key.name,
            "gen_ai.request.model": self._model_name,
        }
        for run in call.runs:
            found |= run_attributes(run)
        return found

    def _wall(self, monotonic: float) -> int:
        return int(monotonic * 1e9) + self._wall_offset


def run_attributes(run: Run) -> dict[str, Any]:
    """OpenTelemetry's names for generative models; the latencies have the names that vLLM gives them."""
    sampling, fields = run.job.sampling, run.as_fields()
    operation = "chat" if run.job.name.startswith("chatcmpl") else "text_completion"
    found = {
        "gen_ai.operation.name": "embeddings" if run.job.task == "embed" else operation,
        "gen_ai.response.id": run.job.name,
        "gen_ai.response.finish_reasons": run.finish_reasons,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.choice.count": sampling.n,
        "gen_ai.usage.input_tokens": fields["prompt_tokens"],
        "gen_ai.usage.output_tokens": fields["new_tokens"],
        "gen_ai.latency.time_in_queue": fields["queue_seconds"],
        "gen_ai.latency.time_to_first_token": fields["first_token_seconds"],
    }
    return {name: value for name, value in found.items() if value is not None}


def phases(metrics: RequestMetrics) -> Iterator[tuple[str, float, float]]:
    """What a request went through, as far as it came: (name, start, end)."""
    moments = [
        ("queue", metrics.arrival_time),
        ("prefill", metrics.first_scheduled_time),
        ("decode", metrics.first_token_time),
        ("", metrics.finished_time or metrics.last_token_time),
    ]
    for (name, start), (_, end) in zip(moments, moments[1:], strict=False):
        if start is not None and end is not None:
            yield name, start, max(start, end)


def make_tracer(endpoint: str | None, model_name: str) -> RequestTracer | None:
    """None where no traces are wanted: then nothing of OpenTelemetry is imported."""
    if endpoint is None:
        return None
    try:
        import opentelemetry.sdk.trace  # noqa: F401
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise InvalidRequest(
            "trace_endpoint", "needs OpenTelemetry, which is an extra; install it: pip install 'pagoda[tracing]'"
        ) from None
    address = endpoint.rstrip("/")
    if not address.endswith(TRACES_PATH):
        address += TRACES_PATH
    return RequestTracer(OTLPSpanExporter(endpoint=address, timeout=EXPORT_SECONDS), model_name)
