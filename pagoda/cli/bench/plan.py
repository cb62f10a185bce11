"""From the options of `pagoda bench serve` to what is to be done."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from pagoda.bench.arrivals import Pace
from pagoda.bench.client import Target
from pagoda.bench.config import (
    DEFAULT_CONCURRENCY,
    DEFAULT_REQUESTS,
    DEFAULT_SWEEP_SECONDS,
    AskConfig,
    LoadConfig,
    WorkloadConfig,
)
from pagoda.bench.lengths import Lengths
from pagoda.bench.load import Extent
from pagoda.bench.serve import Plan, Step, Workload
from pagoda.bench.sweep import parse_sweep
from pagoda.bench.synthetic import Synthetic
from pagoda.bench.trace import read_trace
from pagoda.bench.workloads import FIXED
from pagoda.core.environment import api_key
from pagoda.core.errors import InvalidRequest

DEFAULT_VOCABULARY = 32_000


def make_plan(url: str, ask: AskConfig, load: LoadConfig, work: WorkloadConfig, slo: dict[str, float]) -> Plan:
    swept, steps = _steps(load, plays_trace=work.trace is not None)
    is_drawn = work.trace is None and work.workload is None
    if swept is not None and not is_drawn:
        raise InvalidRequest("--sweep", "needs a drawn workload: the server would find a fixed one in its cache")
    if not work.speed > 0:
        raise InvalidRequest("--speed", f"must be above 0, not {work.speed}")
    return Plan(
        target=_target(url, ask),
        workload=_workload(work, ask.endpoint),
        steps=steps,
        extent=_extent(load, ends_by_itself=not is_drawn),
        swept=swept,
        slo=slo,
        speed=work.speed,
    )


def _steps(load: LoadConfig, plays_trace: bool) -> tuple[str | None, list[Step]]:
    if load.sweep is not None:
        if load.concurrency is not None or load.rate is not None:
            raise InvalidRequest("--sweep", "sets the load itself; leave out --concurrency and --rate")
        name, paces = parse_sweep(load.sweep, load.burstiness)
        return name, [Step(pace, value) for value, pace in paces]
    if load.concurrency is None and load.rate is None and plays_trace:
        return None, [Step(None)]
    concurrency = load.concurrency
    if concurrency is None and load.rate is None:
        concurrency = DEFAULT_CONCURRENCY
    return None, [Step(Pace(concurrency, load.rate, load.burstiness))]


def _extent(load: LoadConfig, ends_by_itself: bool) -> Extent:
    num_requests, duration = load.num_requests, load.duration
    if num_requests is None and duration is None and not ends_by_itself:
        if load.sweep is not None:
            duration = DEFAULT_SWEEP_SECONDS
        else:
            num_requests = DEFAULT_REQUESTS
    return Extent(num_requests, duration, load.warmup)


def _target(url: str, ask: AskConfig) -> Target:
    fields: dict[str, Any] = {"temperature": ask.temperature}
    if ask.ignore_eos:
        fields["ignore_eos"] = True
    try:
        more = json.loads(ask.body) if ask.body else {}
    except json.JSONDecodeError as error:
        raise InvalidRequest("--body", f"is not JSON: {error}") from None
    if not isinstance(more, dict):
        raise InvalidRequest("--body", 'must be a JSON object such as {"top_p": 0.9}')
    for name in ("connect_timeout", "timeout"):
        if not getattr(ask, name) > 0:
            raise InvalidRequest(f"--{name.replace('_', '-')}", "must be above 0")
    return Target(
        url=url,
        model=ask.model or "",
        endpoint=ask.endpoint,
        api_key=ask.api_key or api_key(),
        verifies_tls=ask.tls_verify,
        connect_seconds=ask.connect_timeout,
        answer_seconds=ask.timeout,
        fields=fields | more,
    )


def _workload(work: WorkloadConfig, endpoint: str) -> Workload:
    if work.trace is not None:
        trace = read_trace(Path(work.trace))
        speed = f" at {work.speed:g} times its speed" if work.speed != 1 else ""
        return Workload.recorded(trace, f"The trace {Path(work.trace).name} of {len(trace):,} requests{speed}.")
    if work.workload is not None:
        if endpoint == "chat":
            raise InvalidRequest("--workload", "fixed workloads are token ids, which chat does not take")
        more = {} if work.vocab_size is None else {"end_of_ids": work.vocab_size}
        requests = FIXED[work.workload](**more)
        return Workload.fixed(requests, f"The fixed workload {work.workload!r} of {len(requests):,} requests.")
    return _drawn(work, endpoint)


def _drawn(work: WorkloadConfig, endpoint: str) -> Workload:
    needs_text = endpoint == "chat" or work.num_turns > 1
    if needs_text and work.prompts == "ids":
        raise InvalidRequest("--prompts", "chat and conversations of several turns need text")
    seed = random.SystemRandom().randrange(1 << 31) if work.seed is None else work.seed
    synthetic = Synthetic(
        Lengths.parse("--input-len", work.input_len),
        Lengths.parse("--output-len", work.output_len),
        form="text" if needs_text else work.prompts or "ids",
        end_of_ids=DEFAULT_VOCABULARY if work.vocab_size is None else work.vocab_size,
        prefix_len=work.prefix_len,
        num_prefixes=work.num_prefixes,
        num_turns=work.num_turns,
        seed=seed,
    )
    return Workload.drawn(synthetic, _words(synthetic))


def _words(drawn: Synthetic) -> str:
    form = "token ids" if drawn.form == "ids" else "text"
    words = f"Prompts of {drawn.input_lengths} tokens ({form}), answers of {drawn.output_lengths}"
    if drawn.prefix_len:
        kinds = f"one of {drawn.num_prefixes} shared beginnings" if drawn.num_prefixes > 1 else "a shared beginning"
        words += f", {kinds} of {drawn.prefix_len}"
    if drawn.num_turns > 1:
        words += f", {drawn.num_turns} turns"
    return f"{words}, seed {drawn.seed}."
