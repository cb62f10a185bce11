"""What `pagoda bench throughput` and `pagoda bench latency` print when they are done."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.bench.latency import LatencyRecord
from pagoda.bench.measures import Spread
from pagoda.bench.roofline import Bound
from pagoda.bench.steps import StepCosts
from pagoda.bench.throughput import ThroughputRecord
from pagoda.cli.formatting import format_bytes, format_table
from pagoda.kernels.peaks import Peaks

MILLISECOND, MICROSECOND = 1e-3, 1e-6
NOTHING = "nothing was computed before it was interrupted"
INTERRUPTED = "interrupted: the figures are of what there was until then"


def throughput_summary(found: ThroughputRecord) -> str:
    head = f"{found.model} on {found.device.name}: {found.workload}"
    if not found.steps.num_steps:
        return f"{head}\n\n{NOTHING}"
    num_tokens = found.num_input_tokens + found.num_output_tokens
    rows = [
        ["output", f"{found.num_output_tokens:,} tokens", f"{found.output_tokens_per_second:,.1f} a second"],
        ["input and output", f"{num_tokens:,} tokens", f"{found.total_tokens_per_second:,.1f} a second"],
        ["requests", f"{found.num_requests:,} answered", f"{found.requests_per_second:,.2f} a second"],
        ["steps", f"{found.steps.num_steps:,}", f"of {step_words(found.steps)}"],
    ]
    if len(found.runs) > 1:
        speeds = ", ".join(f"{speed:,.1f}" for speed in found.runs)
        rows.append(["runs", f"{len(found.runs)}", f"output tokens/s: {speeds}; the best whole one counts"])
    parts = [head, format_table(rows), roofline_table(found.roofline, found.device.peaks)]
    return "\n\n".join([*parts, INTERRUPTED] if found.was_interrupted else parts)


def latency_summary(found: LatencyRecord) -> str:
    batch = found.batch
    head = (
        f"{found.model} on {found.device.name}: {batch.batch_size} at once, {batch.input_len} tokens in and "
        f"{batch.output_len} out, {found.num_runs} runs"
    )
    if found.steps is None:
        return f"{head}\n\n{NOTHING}"
    spreads = {"first token": found.first_token, "each after it": found.next_token, "whole batch": found.whole_batch}
    rows = [["milliseconds", "mean", "p50", "p90", "p99"]]
    rows += [[name, *_milliseconds(spread)] for name, spread in spreads.items() if spread is not None]
    parts = [
        head,
        format_table(rows),
        f"steps of {step_words(found.steps)}",
        roofline_table(found.roofline, found.device.peaks),
    ]
    return "\n\n".join([*parts, INTERRUPTED] if found.was_interrupted else parts)


def step_words(costs: StepCosts) -> str:
    step, host = costs.step_seconds / MILLISECOND, costs.host_seconds / MICROSECOND
    words = f"{step:,.2f} ms, {host:,.0f} us of it the host's"
    if costs.device_wait_share is not None:
        words += f"; the device waits {costs.device_wait_share:.1%} of the time"
    return words


def roofline_table(found: Sequence[Bound], peaks: Peaks) -> str:
    """Means over the steps of each phase, and the ceilings that they are held against."""
    head = ["steps", "number", "tokens", "bytes", "operations", "ms", "least ms", "bound by", "of the ceiling"]
    rows = [head, *(_row(bound) for bound in found)]
    kinds = [kind for kind in peaks.operations_per_second if any(bound.operations.get(kind) for bound in found)]
    rates = [f"{_operations(peaks.operations_per_second[kind])}/s in {kind}" for kind in kinds]
    ceilings = f"ceilings measured here: {format_bytes(int(peaks.bytes_per_second))}/s read, {', '.join(rates)}"
    return f"{ceilings}\n{format_table(rows)}"


def _row(bound: Bound) -> list[str]:
    count = bound.num_steps
    return [
        bound.name,
        f"{count:,}",
        f"{bound.num_tokens / count:,.1f}",
        format_bytes(bound.num_bytes // count),
        _operations(sum(bound.operations.values()) / count),
        f"{bound.seconds / count / MILLISECOND:,.2f}",
        f"{bound.least_seconds / count / MILLISECOND:,.2f}",
        bound.limit,
        f"{bound.share:.1%}",
    ]


def _operations(count: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if count < 999.5 or unit == "T":
            break
        count /= 1000
    return f"{count:,.3g} {unit}FLOP" if count < 1000 else f"{count:,.0f} {unit}FLOP"


def _milliseconds(spread: Spread) -> list[str]:
    return [f"{value / MILLISECOND:,.2f}" for value in (spread.mean, spread.p50, spread.p90, spread.p99)]
