"""How long one batch takes: to its first tokens, and for each one after them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pagoda import LLM
from pagoda.bench.config import LatencyConfig
from pagoda.bench.device import Device
from pagoda.bench.measures import Spread
from pagoda.bench.offline import OfflineBench, OfflineRun, batch_of, check_lengths
from pagoda.bench.record import now
from pagoda.bench.roofline import Bound, bounds, work_of
from pagoda.bench.steps import StepCosts, together
from pagoda.core.config import EngineConfig
from pagoda.engine import RequestOutput

ShowRuns = Callable[[int], None]
"""How many runs are done, those before the measurement included."""


class LatencyRecord(msgspec.Struct, frozen=True, kw_only=True):
    kind: str = "latency"
    model: str
    date: str
    settings: EngineConfig
    device: Device
    batch: LatencyConfig
    num_runs: int
    """Whole ones, those before the measurement not counted."""
    first_token: Spread | None
    """Of every request of every run, from its submission, like the next; None: there was no whole run."""
    next_token: Spread | None
    """Mean seconds a token after the first; None: answers have a single one."""
    whole_batch: Spread | None
    steps: StepCosts | None
    roofline: list[Bound]
    """Of all runs together."""
    was_interrupted: bool


def bench_latency(
    llm: LLM, device: Device, model: str, config: LatencyConfig, show: ShowRuns | None = None
) -> LatencyRecord:
    """Ctrl-C ends it early, with a record of the whole runs until then."""
    vocab_size = llm.engine.model.config.vocab_size
    requests = batch_of(config.batch_size, config.input_len, config.output_len, vocab_size)
    check_lengths(requests, llm)
    bench = OfflineBench(llm)
    runs: list[OfflineRun] = []
    was_interrupted = False
    for number in range(config.warmup + config.repeats):
        run = bench.run(requests)
        was_interrupted = run.was_interrupted
        if was_interrupted:
            break
        if number >= config.warmup:
            runs.append(run)
        if show is not None:
            show(number + 1)
    answers = [output for run in runs for output in run.outputs]
    work = [step for run in runs for step in work_of(llm.engine, run.steps)]
    return LatencyRecord(
        model=model,
        date=now(),
        settings=llm.engine.config,
        device=device,
        batch=config,
        num_runs=len(runs),
        first_token=Spread.of([first_token(output) for output in answers]),
        next_token=Spread.of([next_token(output) for output in answers]) if config.output_len > 1 else None,
        whole_batch=Spread.of([run.seconds for run in runs]),
        steps=together([run.costs for run in runs]),
        roofline=bounds(work, device.peaks),
        was_interrupted=was_interrupted,
    )


def first_token(output: RequestOutput) -> float:
    times = output.metrics
    assert times.first_token_time is not None
    return times.first_token_time - times.arrival_time


def next_token(output: RequestOutput) -> float:
    times = output.metrics
    assert times.first_token_time is not None and times.last_token_time is not None
    return (times.last_token_time - times.first_token_time) / (len(output.outputs[0].token_ids) - 1)
