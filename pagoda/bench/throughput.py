"""How much an engine gets done when everything is asked of it at once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pagoda import LLM
from pagoda.bench.device import Device
from pagoda.bench.offline import OfflineBench, OfflineRun, check_lengths
from pagoda.bench.record import now
from pagoda.bench.roofline import Bound, bounds, work_of
from pagoda.bench.steps import StepCosts
from pagoda.bench.workloads import TokenRequest
from pagoda.core.config import EngineConfig


class ThroughputRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Of the best run, or of the only one, as far as it came."""

    kind: str = "throughput"
    model: str
    date: str
    workload: str
    """In words."""
    settings: EngineConfig
    device: Device
    runs: list[float]
    """Output tokens a second of all runs."""
    seconds: float
    num_requests: int
    num_input_tokens: int
    num_output_tokens: int
    requests_per_second: float
    output_tokens_per_second: float
    total_tokens_per_second: float
    """Prompts and answers."""
    steps: StepCosts
    roofline: list[Bound]
    was_interrupted: bool


def bench_throughput(
    llm: LLM,
    device: Device,
    model: str,
    requests: Sequence[TokenRequest],
    workload: str,
    repeats: int,
    shows_progress: bool = False,
) -> ThroughputRecord:
    """Ctrl-C ends it early, with a record of what there is."""
    check_lengths(requests, llm)
    bench = OfflineBench(llm)
    bench.warm_up(requests)
    runs: list[OfflineRun] = []
    while len(runs) < repeats and not (runs and runs[-1].was_interrupted):
        runs.append(bench.run(requests, shows_progress))
    whole = [run for run in runs if not run.was_interrupted]
    best = min(whole or runs, key=lambda run: run.seconds)
    seconds = max(best.seconds, 1e-9)
    return ThroughputRecord(
        model=model,
        date=now(),
        workload=workload,
        settings=llm.engine.config,
        device=device,
        runs=[_speed(run) for run in runs],
        seconds=best.seconds,
        num_requests=best.num_requests,
        num_input_tokens=best.num_input_tokens,
        num_output_tokens=best.num_output_tokens,
        requests_per_second=best.num_requests / seconds,
        output_tokens_per_second=_speed(best),
        total_tokens_per_second=(best.num_input_tokens + best.num_output_tokens) / seconds,
        steps=best.costs,
        roofline=bounds(work_of(llm.engine, best.steps), device.peaks),
        was_interrupted=runs[-1].was_interrupted,
    )


def _speed(run: OfflineRun) -> float:
    return run.num_output_tokens / max(run.seconds, 1e-9)
