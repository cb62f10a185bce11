"""GET /metrics: our numbers for Prometheus, under our names and under vLLM's, which gateways and autoscalers know.

docs/metrics.md lists them; a test holds the list to what is really there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from pagoda.observability.histogram import Histogram
from pagoda.server.exchange import Exchange
from pagoda.server.memory_use import resident_by_process
from pagoda.server.service import Service

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
FINISH_REASONS = ("stop", "length", "abort", "error")


@dataclass(frozen=True)
class Number:
    """One metric under its name here and, where vLLM has the same, under its name there."""

    own: str
    peer: str
    meaning: str
    values: dict[str, float]
    """By the value of `label`."""
    label: str = ""

    @property
    def names(self) -> list[str]:
        return [*([f"pagoda_{self.own}"] if self.own else []), *([f"vllm:{self.peer}"] if self.peer else [])]


@dataclass
class Numbers:
    items: list[Number] = field(default_factory=list)

    def add(self, own: str, peer: str, meaning: str, value: float) -> None:
        self.items.append(Number(own, peer, meaning, {"": value}))

    def add_by(self, label: str, own: str, peer: str, meaning: str, values: dict[str, float]) -> None:
        self.items.append(Number(own, peer, meaning, values, label))


class ServerCollector(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Family]:
        for kind, numbers in ((GaugeMetricFamily, self._gauges()), (CounterMetricFamily, self._counters())):
            for number in numbers.items:
                yield from self._families(kind, number)
        yield from self._histograms()
        yield from self._cache_info()

    def _families(self, kind: type[CounterMetricFamily | GaugeMetricFamily], number: Number) -> Iterator[Family]:
        labels = ["model_name", *([number.label] if number.label else [])]
        for name in number.names:
            family = kind(name, number.meaning, labels=labels)
            for value, count in number.values.items():
                family.add_metric([self._service.model_name, *([value] if number.label else [])], count)
            yield family

    def _gauges(self) -> Numbers:
        service, state = self._service, self._service.engine.state
        report, info = state.report, state.info
        # Without an engine all that is open waits for one.
        running = report.num_running if report else 0
        waiting = report.num_waiting if report else service.engine.num_open
        deferred = report.num_deferred if report else 0
        used = kept = 0.0
        if report is not None and info is not None and info.num_pages[0]:
            used = report.num_used_pages[0] / info.num_pages[0]
            kept = report.num_idle_pages[0] / info.num_pages[0]
        found = Numbers()
        found.add("requests_running", "num_requests_running", "Sequences that have a row", running)
        found.add("requests_waiting", "num_requests_waiting", "Sequences that wait for a row", waiting)
        reasons = {"capacity": float(waiting - deferred), "deferred": float(deferred)}
        by_reason = "Sequences that wait: for room, or for a prefix that another computes"
        found.add_by("reason", "requests_waiting_by_reason", "num_requests_waiting_by_reason", by_reason, reasons)
        found.add("kv_cache_usage_ratio", "kv_cache_usage_perc", "Share of the pages that requests hold", used)
        found.add("kv_cache_kept_ratio", "", "Share of the pages that are kept for requests to come", kept)
        found.add("requests_open", "", "Requests between the door and their last byte", service.admission.num_open)
        found.add("requests_paused", "", "Sequences whose clients do not read", report.num_paused if report else 0)
        unsent = service.unsent_bytes()
        found.add("unsent_bytes", "", "Bytes that lie ready for clients, here and in the kernel", unsent)
        found.add("engine_ready", "", "1 while the engine answers", state.is_ready)
        found.add("last_step_seconds", "", "How long the last step took", report.step_seconds if report else 0.0)
        self._add_memory(found)
        return found

    def _add_memory(self, found: Numbers) -> None:
        """The plan beside what became of it."""
        state = self._service.engine.state
        info = state.info
        planned, allocated = (info.planned_bytes, info.allocated_bytes) if info else ({}, {})
        found.add_by("line", "memory_planned_bytes", "", "The engine's ledger", _floats(planned))
        found.add_by("line", "memory_allocated_bytes", "", "What its owners took", _floats(allocated))
        processes = _floats(info.process_bytes if info else {})
        found.add_by("process", "process_planned_bytes", "", "Once all pages have been used", processes)
        resident = _floats(resident_by_process(state))
        found.add_by("process", "process_resident_bytes", "", "Memory that a process holds", resident)

    def _counters(self) -> Numbers:
        service, observer = self._service, self._service.observer
        requests, work = observer.statistics, observer.work
        num_prompt, num_cached = requests.num_prompt_tokens, requests.num_cached_tokens
        found = Numbers()
        found.add("prompt_tokens", "prompt_tokens", "Prompt tokens of requests that started", num_prompt)
        found.add("prompt_tokens_cached", "prompt_tokens_cached", "Of those, found in the cache", num_cached)
        sources = {"local_compute": float(num_prompt - num_cached), "local_cache_hit": float(num_cached)}
        found.add_by("source", "prompt_tokens_by_source", "prompt_tokens_by_source", "By where they were", sources)
        found.add("generated_tokens", "generation_tokens", "Tokens drawn", requests.num_new_tokens)
        found.add("prefix_cache_queries", "prefix_cache_queries", "Prompt tokens looked up", num_prompt)
        found.add("prefix_cache_hits", "prefix_cache_hits", "Prompt tokens found", num_cached)
        found.add("preemptions", "num_preemptions", "Sequences pushed back", work.num_preemptions)
        found.add("engine_steps", "", "Steps made", work.num_steps)
        found.add("computed_tokens", "", "Tokens that went through the model", work.num_computed_tokens)
        found.add("engine_restarts", "", "Engines that followed on the first", max(0, work.num_starts - 1))
        found.add("engine_deaths", "", "Times the engine process was lost", service.engine.state.num_deaths)
        found.add("requests_refused", "", "Requests refused because the queue was full", service.admission.num_refused)
        ended = {reason: float(requests.ended[reason]) for reason in FINISH_REASONS}
        found.add_by("finished_reason", "answers", "request_success", "Answers by how they ended", ended)
        failed = {str(status): float(count) for status, count in sorted(requests.failed.items())}
        found.add_by("status", "requests_failed", "", "Requests answered with an error, by status", failed)
        self._add_keys(found)
        return found

    def _add_keys(self, found: Numbers) -> None:
        keys = {name or "anonymous": use for name, use in self._service.observer.statistics.keys.items()}
        for name, attribute, meaning in (
            ("key_requests", "num_requests", "Prompts that a key has sent"),
            ("key_prompt_tokens", "num_prompt_tokens", "Their tokens"),
            ("key_generated_tokens", "num_new_tokens", "Tokens drawn for it"),
            ("key_refused", "num_refused", "Requests over its limits"),
        ):
            found.add_by("key", name, "", meaning, {key: float(getattr(use, attribute)) for key, use in keys.items()})

    def _histograms(self) -> Iterator[Family]:
        found, work = self._service.observer.statistics, self._service.observer.work
        histograms = [
            ("time_to_first_token_seconds", "time_to_first_token_seconds", "Arrival to first token", found.first_token),
            ("inter_token_latency_seconds", "inter_token_latency_seconds", "Between tokens", found.between_tokens),
            ("time_per_token_seconds", "request_time_per_output_token_seconds", "Mean of an answer", found.per_token),
            ("request_seconds", "e2e_request_latency_seconds", "Arrival to end", found.whole),
            ("queue_seconds", "request_queue_time_seconds", "Arrival to first step", found.queued),
            ("running_seconds", "request_inference_time_seconds", "First step to end", found.running),
            ("prefill_seconds", "request_prefill_time_seconds", "First step to first token", found.prefill),
            ("decode_seconds", "request_decode_time_seconds", "First token to last", found.decode),
            ("prompt_length_tokens", "request_prompt_tokens", "Tokens of a prompt", found.prompt_lengths),
            (
                *("prefill_computed_tokens", "request_prefill_kv_computed_tokens"),
                *("Tokens of a prompt that were not in the cache", found.computed_lengths),
            ),
            ("answer_length_tokens", "request_generation_tokens", "Tokens of an answer", found.answer_lengths),
            (
                *("longest_answer_tokens", "request_max_num_generation_tokens"),
                *("Tokens of the longest answer to a prompt", found.longest_answers),
            ),
            ("asked_answers", "request_params_n", "Answers asked for (n)", found.asked_answers),
            ("asked_tokens", "request_params_max_tokens", "Longest answer asked for", found.asked_lengths),
            ("step_tokens", "iteration_tokens_total", "Tokens of a step", work.step_tokens),
            ("step_seconds", "", "How long a step takes", work.step_seconds),
        ]
        for own, peer, meaning, histogram in histograms:
            for name in Number(own, peer, meaning, {}).names:
                family = HistogramMetricFamily(name, meaning, labels=["model_name"])
                family.add_metric([self._service.model_name], buckets_of(histogram), histogram.total)
                yield family

    def _cache_info(self) -> Iterator[Family]:
        info = self._service.engine.state.info
        labels = {"block_size": "", "num_gpu_blocks": "", "cache_dtype": ""}
        if info is not None:
            labels = {
                "block_size": str(info.page_size),
                "num_gpu_blocks": str(info.num_pages[0]),
                "cache_dtype": info.kv_cache_type,
            }
        for name in ("pagoda_cache_info", "vllm:cache_config_info"):
            family = GaugeMetricFamily(name, "How the cache is laid out", labels=["model_name", *labels])
            family.add_metric([self._service.model_name, *labels.values()], 1.0)
            yield family


def _floats(values: dict[str, int]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def buckets_of(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus counts upwards: each bucket holds all that is not larger."""
    found: list[tuple[str, float]] = []
    seen = 0
    for bound, count in zip([*map(str, histogram.bounds), "+Inf"], histogram.counts, strict=True):
        seen += count
        found.append((bound, seen))
    return found


async def metrics(exchange: Exchange, service: Service) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServerCollector(service))
    ProcessCollector(registry=registry)
    await exchange.whole(generate_latest(registry), [(b"content-type", CONTENT_TYPE_LATEST.encode())])
