"""GET /metrics: our numbers for Prometheus, under our names and under vLLM's, which gateways and autoscalers know."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from pagoda.engine.wire import Report
from pagoda.observability.histogram import Histogram
from pagoda.observability.requests import RequestStatistics
from pagoda.server.exchange import Exchange
from pagoda.server.service import Service

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class ServerCollector(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Family]:
        statistics = self._service.observer.statistics
        yield from self._gauges()
        yield from self._counters(statistics)
        yield from self._histograms(statistics)
        yield from self._per_key(statistics)

    def _gauges(self) -> Iterator[Family]:
        service = self._service
        report, info = service.engine.state.report, service.engine.state.info
        used = cached = 0.0
        if report is not None and info is not None and info.num_pages[0]:
            used = report.num_used_pages[0] / info.num_pages[0]
            cached = report.num_idle_pages[0] / info.num_pages[0]
        gauges = [
            ("requests_running", "num_requests_running", "Sequences that have a row", _of(report, "num_running")),
            ("requests_waiting", "num_requests_waiting", "Sequences that wait for a row", _of(report, "num_waiting")),
            ("requests_paused", "", "Sequences whose clients do not read", _of(report, "num_paused")),
            ("kv_cache_usage_ratio", "kv_cache_usage_perc", "Share of the pages that requests hold", used),
            ("kv_cache_kept_ratio", "", "Share of the pages that are kept for requests to come", cached),
            ("requests_open", "", "Requests between the door and their last byte", service.admission.num_open),
            ("unsent_bytes", "", "Bytes that lie ready for clients, here and in the kernel", service.unsent_bytes()),
            ("engine_ready", "", "1 while the engine answers", float(service.engine.state.is_ready)),
            ("engine_step_seconds", "", "How long the last step took", _of(report, "step_seconds")),
        ]
        for own, peer, text, value in gauges:
            for name in self._names(own, peer):
                family = GaugeMetricFamily(name, text, labels=["model_name"])
                family.add_metric([service.model_name], value)
                yield family

    def _counters(self, statistics: RequestStatistics) -> Iterator[Family]:
        service = self._service
        report = service.engine.state.report
        counters = [
            ("prompt_tokens", "prompt_tokens", "Prompt tokens of requests that started", statistics.num_prompt_tokens),
            ("generated_tokens", "generation_tokens", "Tokens drawn", statistics.num_new_tokens),
            ("prefix_cache_queries", "prefix_cache_queries", "Prompt tokens looked up", statistics.num_prompt_tokens),
            ("prefix_cache_hits", "prefix_cache_hits", "Prompt tokens found", statistics.num_cached_tokens),
            ("preemptions", "num_preemptions", "Sequences pushed back", _of(report, "num_preemptions")),
            ("engine_steps", "", "Steps since the engine started", _of(report, "num_steps")),
            ("computed_tokens", "", "Tokens that went through the model", _of(report, "num_computed_tokens")),
            ("engine_deaths", "", "Times the engine process was lost", service.engine.state.num_deaths),
            ("requests_refused", "", "Requests refused because the queue was full", service.admission.num_refused),
        ]
        for own, peer, text, value in counters:
            for name in self._names(own, peer):
                family = CounterMetricFamily(name, text, labels=["model_name"])
                family.add_metric([service.model_name], value)
                yield family
        for name in self._names("answers", "request_success"):
            family = CounterMetricFamily(name, "Answers by how they ended", labels=["model_name", "finished_reason"])
            for reason in ("stop", "length", "abort", "error"):
                family.add_metric([service.model_name, reason], statistics.ended[reason])
            yield family

    def _histograms(self, statistics: RequestStatistics) -> Iterator[Family]:
        histograms = [
            ("time_to_first_token_seconds", "time_to_first_token_seconds", statistics.first_token),
            ("inter_token_latency_seconds", "inter_token_latency_seconds", statistics.between_tokens),
            ("request_seconds", "e2e_request_latency_seconds", statistics.whole),
            ("queue_seconds", "request_queue_time_seconds", statistics.queued),
            ("prefill_seconds", "request_prefill_time_seconds", statistics.prefill),
            ("decode_seconds", "request_decode_time_seconds", statistics.decode),
            ("prompt_length_tokens", "request_prompt_tokens", statistics.prompt_lengths),
            ("answer_length_tokens", "request_generation_tokens", statistics.answer_lengths),
        ]
        for own, peer, histogram in histograms:
            for name in self._names(own, peer):
                family = HistogramMetricFamily(name, own.replace("_", " "), labels=["model_name"])
                family.add_metric([self._service.model_name], buckets_of(histogram), histogram.total)
                yield family

    def _per_key(self, statistics: RequestStatistics) -> Iterator[Family]:
        families = {
            "num_requests": CounterMetricFamily("pagoda_key_requests", "Requests of a key", labels=["key"]),
            "num_prompt_tokens": CounterMetricFamily("pagoda_key_prompt_tokens", "Its prompt tokens", labels=["key"]),
            "num_new_tokens": CounterMetricFamily("pagoda_key_generated_tokens", "Tokens drawn for it", labels=["key"]),
            "num_refused": CounterMetricFamily("pagoda_key_refused", "Requests over its limits", labels=["key"]),
        }
        for name, use in statistics.keys.items():
            for field, family in families.items():
                family.add_metric([name or "anonymous"], getattr(use, field))
        yield from families.values()

    @staticmethod
    def _names(own: str, peer: str) -> list[str]:
        return [f"pagoda_{own}", *([f"vllm:{peer}"] if peer else [])]


def buckets_of(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus counts upwards: each bucket holds all that is not larger."""
    found: list[tuple[str, float]] = []
    seen = 0
    for bound, count in zip([*map(str, histogram.bounds), "+Inf"], histogram.counts, strict=True):
        seen += count
        found.append((bound, seen))
    return found


def _of(report: Report | None, field: str) -> float:
    return float(getattr(report, field)) if report is not None else 0.0


async def metrics(exchange: Exchange, service: Service) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServerCollector(service))
    await exchange.whole(generate_latest(registry), [(b"content-type", CONTENT_TYPE_LATEST.encode())])
