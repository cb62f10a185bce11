"""What `pagoda bench serve` prints when it is done."""

from __future__ import annotations

from pagoda.bench.measures import Measures, Spread
from pagoda.bench.record import BenchRecord, LevelRecord
from pagoda.cli.formatting import format_table

MILLISECOND = 1e-3
BUSY_CLIENT = 0.8
LATE_SECONDS = 0.05


def summary(level: LevelRecord) -> str:
    """Of one run, in a few lines."""
    found = level.measures
    rows = [
        ["requests", f"{found.num_ok:,} answered", f"{found.requests_per_second:.2f} a second"],
        ["output", f"{found.num_output_tokens:,} tokens", f"{found.output_tokens_per_second:,.1f} a second"],
        ["input", f"{found.num_input_tokens:,} tokens", f"{found.input_tokens_per_second:,.1f} a second"],
    ]
    if found.num_cached_tokens:
        share = found.num_cached_tokens / max(found.num_input_tokens, 1)
        rows.append(["", f"{found.num_cached_tokens:,} cached", f"{share:.0%} of the input"])
    if found.goodput is not None:
        good = found.goodput
        rows.append(["within the SLO", f"{good.share:.1%}", f"{good.requests_per_second:.2f} a second"])
    parts = [f"{level.pace}, {found.seconds:.1f} s", format_table(rows), times(found), *notes(found)]
    return "\n\n".join(part for part in parts if part)


def times(found: Measures) -> str:
    spreads = {"first token": found.ttft, "between tokens": found.itl, "a token, mean": found.tpot}
    spreads["whole answer"] = found.e2e
    rows = [["milliseconds", "mean", "p50", "p95", "p99", "longest"]]
    for name, spread in spreads.items():
        if spread is not None:
            values = (spread.mean, spread.p50, spread.p95, spread.p99, spread.max)
            rows.append([name, *(f"{value / MILLISECOND:,.1f}" for value in values)])
    return format_table(rows) if len(rows) > 1 else ""


def notes(found: Measures) -> list[str]:
    """What must be known beside the figures."""
    lines = [f"failed: {f.count:,} x {f.kind} ({f.example})" for f in found.failures]
    if found.was_interrupted:
        lines.append("interrupted: the figures are of what had come until then")
    if found.client_cpu_share > BUSY_CLIENT:
        lines.append(f"this client used {found.client_cpu_share:.0%} of a core: it may have been the bottleneck")
    if found.largest_lag > LATE_SECONDS:
        lines.append(f"a request was sent {found.largest_lag:.2f} s later than due: this client could not keep up")
    return ["\n".join(lines)] if lines else []


class LevelTable:
    """A line for each level of a sweep, in the moment it is measured."""

    COLUMNS = ("tokens/s", "requests/s", "TTFT p50", "TTFT p95", "ITL p50", "ITL p95", "answer p95", "failed")

    def __init__(self, swept: str) -> None:
        self._swept = swept
        self._has_head = False

    def line(self, level: LevelRecord) -> str:
        found = level.measures
        rates = [f"{found.output_tokens_per_second:,.1f}", f"{found.requests_per_second:.2f}"]
        shares = [(found.ttft, "p50"), (found.ttft, "p95"), (found.itl, "p50"), (found.itl, "p95"), (found.e2e, "p95")]
        num_failed = sum(failure.count for failure in found.failures)
        cells = [f"{level.value:g}", *rates, *(_milliseconds(*pick) for pick in shares), f"{num_failed:,}"]
        lines = ["".join(f"{cell:>12}" for cell in cells)]
        if not self._has_head:
            self._has_head = True
            lines.insert(0, "".join(f"{name:>12}" for name in (self._swept, *self.COLUMNS)))
        return "\n".join(lines)


def _milliseconds(spread: Spread | None, share: str) -> str:
    return f"{getattr(spread, share) / MILLISECOND:,.1f} ms" if spread is not None else "-"


def saturation_words(record: BenchRecord) -> str:
    assert record.saturation is not None
    found = record.saturation
    words = f"{record.swept} {found.value:g}, {found.reason}" if found.value is not None else found.reason
    if found.best_within_slo is not None:
        words += f"\nwithin the SLO for 95 % of requests up to {record.swept} {found.best_within_slo:g}"
    return f"saturation: {words}"
