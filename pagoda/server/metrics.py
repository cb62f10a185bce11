"""GET /metrics: our numbers for Prometheus, under our names and under vLLM's, which gateways and autoscalers know.

docs/metrics.md lists them; a test holds the list to what is really there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from pagoda.observability.histogram import Histogram
from pagoda.server.exchange import Exchange
from pagoda.server.exposition import CONTENT_TYPE, Family, exposition
from pagoda.server.memory_use import num_open_files, resident_by_process
from pagoda.server.service import Service

FINISH_REASONS = ("stop", "length", "abort", "error")


class ServerMetrics:
    """The numbers of one server. `peer` is vLLM's name, where it has the same number."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._model = {"model_name": service.model_name}

    def families(self) -> Iterator[Family]:
        yield from self._load()
        yield from self._memory()
        yield from self._tokens()
        yield from self._ends()
        yield from self._engine()
        yield from self._keys()
        yield from self._histograms()

    def _gauge(self, own: str, peer: str, meaning: str, value: float) -> Family:
        return Family(_names(own, peer), "gauge", meaning, ((self._model, value),))

    def _counter(self, own: str, peer: str, meaning: str, value: float) -> Family:
        return Family(_names(own, peer), "counter", meaning, ((self._model, value),))

    def _gauge_by(self, label: str, own: str, peer: str, meaning: str, values: Mapping[str, float]) -> Family:
        return Family(_names(own, peer), "gauge", meaning, self._labelled(label, values))

    def _counter_by(self, label: str, own: str, peer: str, meaning: str, values: Mapping[str, float]) -> Family:
        return Family(_names(own, peer), "counter", meaning, self._labelled(label, values))

    def _labelled(self, label: str, values: Mapping[str, float]) -> tuple[tuple[dict[str, str], float], ...]:
        return tuple((self._model | {label: name}, value) for name, value in values.items())

    def _load(self) -> Iterator[Family]:
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
        reasons = {"capacity": waiting - deferred, "deferred": deferred}
        by_reason = "Sequences that wait: for room, or for a prefix that another computes"
        yield self._gauge("requests_running", "num_requests_running", "Sequences that have a row", running)
        yield self._gauge("requests_waiting", "num_requests_waiting", "Sequences that wait for a row", waiting)
        yield self._gauge_by(
            "reason", "requests_waiting_by_reason", "num_requests_waiting_by_reason", by_reason, reasons
        )
        paused = report.num_paused if report else 0
        yield self._gauge("requests_paused", "", "Sequences whose clients do not read", paused)
        num_open, unsent = service.admission.num_open, service.unsent_bytes()
        yield self._gauge("requests_open", "", "Requests between the door and their last byte", num_open)
        yield self._gauge("unsent_bytes", "", "Bytes that lie ready for clients, here and in the kernel", unsent)
        yield self._gauge("kv_cache_usage_ratio", "kv_cache_usage_perc", "Share of the pages that requests hold", used)
        yield self._gauge("kv_cache_kept_ratio", "", "Share of the pages that are kept for requests to come", kept)
        layout = {"block_size": "", "num_gpu_blocks": "", "cache_dtype": ""}
        if info is not None:
            layout = dict(zip(layout, map(str, (info.page_size, info.num_pages[0], info.kv_cache_type)), strict=True))
        names = _names("cache_info", "cache_config_info")
        yield Family(names, "gauge", "How the cache is laid out", ((self._model | layout, 1),))

    def _memory(self) -> Iterator[Family]:
        """The plan beside what became of it."""
        state = self._service.engine.state
        info = state.info
        planned, allocated = (info.planned_bytes, info.allocated_bytes) if info else ({}, {})
        processes = info.process_bytes if info else {}
        resident = resident_by_process(state)
        yield self._gauge_by("line", "memory_planned_bytes", "", "The engine's ledger", planned)
        yield self._gauge_by("line", "memory_allocated_bytes", "", "What its owners took", allocated)
        yield self._gauge_by("process", "process_planned_bytes", "", "Once all pages have been used", processes)
        yield self._gauge_by("process", "process_resident_bytes", "", "Memory that a process holds", resident)
        yield self._gauge("open_files", "", "Files and connections of the HTTP process", num_open_files())
        yield self._counter("cpu_seconds", "", "Time on a core of the HTTP process", time.process_time())

    def _tokens(self) -> Iterator[Family]:
        found = self._service.observer.statistics
        num_prompt, num_cached = found.num_prompt_tokens, found.num_cached_tokens
        sources = {"local_compute": num_prompt - num_cached, "local_cache_hit": num_cached}
        yield self._counter("prompt_tokens", "prompt_tokens", "Prompt tokens of requests that started", num_prompt)
        yield self._counter("prompt_tokens_cached", "prompt_tokens_cached", "Of those, found in the cache", num_cached)
        yield self._counter_by(
            "source", "prompt_tokens_by_source", "prompt_tokens_by_source", "Prompt tokens by where they were", sources
        )
        yield self._counter("generated_tokens", "generation_tokens", "Tokens drawn", found.num_new_tokens)
        yield self._counter("prefix_cache_queries", "prefix_cache_queries", "Prompt tokens looked up", num_prompt)
        yield self._counter("prefix_cache_hits", "prefix_cache_hits", "Prompt tokens found", num_cached)

    def _ends(self) -> Iterator[Family]:
        found, refused = self._service.observer.statistics, self._service.admission.num_refused
        ended = {reason: found.ended[reason] for reason in FINISH_REASONS}
        yield self._counter_by("finished_reason", "answers", "request_success", "Answers by how they ended", ended)
        failed = {str(status): count for status, count in sorted(found.failed.items())}
        yield self._counter_by("status", "requests_failed", "", "Requests answered with an error, by status", failed)
        polls = dict(sorted(found.polls.items()))
        yield self._counter_by("path", "polls", "", "Questions of machines that watch", polls)
        yield self._counter("requests_refused", "", "Requests refused because the queue was full", refused)

    def _engine(self) -> Iterator[Family]:
        state, work = self._service.engine.state, self._service.observer.work
        step_seconds = state.report.step_seconds if state.report else 0.0
        yield self._gauge("engine_ready", "", "1 while the engine answers", int(state.is_ready))
        yield self._gauge("last_step_seconds", "", "How long the last step took", step_seconds)
        yield self._counter("preemptions", "num_preemptions", "Sequences pushed back", work.num_preemptions)
        yield self._counter("engine_steps", "", "Steps made", work.num_steps)
        halved = "Steps done in parts because a device ran out of memory"
        yield self._counter("halved_steps", "", halved, work.num_halved_steps)
        yield self._counter("computed_tokens", "", "Tokens that went through the model", work.num_computed_tokens)
        yield self._counter("engine_restarts", "", "Engines that followed on the first", max(0, work.num_starts - 1))
        yield self._counter("engine_deaths", "", "Times the engine process was lost", state.num_deaths)

    def _keys(self) -> Iterator[Family]:
        keys = {name or "anonymous": use for name, use in self._service.observer.statistics.keys.items()}
        for name, attribute, meaning in (
            ("key_requests", "num_requests", "Prompts that a key has sent"),
            ("key_prompt_tokens", "num_prompt_tokens", "Their tokens"),
            ("key_generated_tokens", "num_new_tokens", "Tokens drawn for it"),
            ("key_refused", "num_refused", "Requests over its limits"),
        ):
            yield self._counter_by(
                "key", name, "", meaning, {key: getattr(use, attribute) for key, use in keys.items()}
            )

    def _histograms(self) -> Iterator[Family]:
        found, work = self._service.observer.statistics, self._service.observer.work
        times: list[tuple[str, str, str, Histogram]] = [
            ("time_to_first_token_seconds", "time_to_first_token_seconds", "Arrival to first token", found.first_token),
            ("inter_token_latency_seconds", "inter_token_latency_seconds", "Between tokens", found.between_tokens),
            ("time_per_token_seconds", "request_time_per_output_token_seconds", "Mean of an answer", found.per_token),
            ("request_seconds", "e2e_request_latency_seconds", "Arrival to end", found.whole),
            ("queue_seconds", "request_queue_time_seconds", "Arrival to first step", found.queued),
            ("running_seconds", "request_inference_time_seconds", "First step to end", found.running),
            ("prefill_seconds", "request_prefill_time_seconds", "First step to first token", found.prefill),
            ("decode_seconds", "request_decode_time_seconds", "First token to last", found.decode),
            ("step_seconds", "", "How long a step takes", work.step_seconds),
        ]
        computed, longest = "request_prefill_kv_computed_tokens", "request_max_num_generation_tokens"
        sizes: list[tuple[str, str, str, Histogram]] = [
            ("prompt_length_tokens", "request_prompt_tokens", "Tokens of a prompt", found.prompt_lengths),
            ("prefill_computed_tokens", computed, "Prompt tokens not found in the cache", found.computed_lengths),
            ("answer_length_tokens", "request_generation_tokens", "Tokens of an answer", found.answer_lengths),
            ("longest_answer_tokens", longest, "Tokens of the longest answer to a prompt", found.longest_answers),
            ("asked_answers", "request_params_n", "Answers asked for (n)", found.asked_answers),
            ("asked_tokens", "request_params_max_tokens", "Longest answer asked for", found.asked_lengths),
            ("step_tokens", "iteration_tokens_total", "Tokens of a step", work.step_tokens),
        ]
        for own, peer, meaning, histogram in [*times, *sizes]:
            yield Family(_names(own, peer), "histogram", meaning, ((self._model, histogram),))


def _names(own: str, peer: str) -> tuple[str, ...]:
    return (f"pagoda_{own}", *([f"vllm:{peer}"] if peer else []))


async def metrics(exchange: Exchange, service: Service) -> None:
    await exchange.whole(exposition(ServerMetrics(service).families()), [(b"content-type", CONTENT_TYPE)])
