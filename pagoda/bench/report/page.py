"""The page around the charts: what was measured, the figures that count, tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from pagoda.bench.measures import Measures, Spread
from pagoda.bench.record import BenchRecord, LevelRecord
from pagoda.bench.report.charts import run_charts, sweep_charts
from pagoda.bench.report.scales import number, seconds_format

NOTHING = "–"


@dataclass(frozen=True)
class Card:
    name: str
    value: str
    unit: str
    more: Sequence[str] = ()


def render_report(record: BenchRecord) -> str:
    shown = main_level(record)
    return _template().render(
        record=record,
        shown=shown,
        cards=cards(shown.measures),
        headline=headline(record),
        sweep_charts=sweep_charts(record) if record.swept else [],
        run_charts=run_charts(shown.detail),
        columns=COLUMNS,
        rows=[table_row(level) for level in record.levels],
        spreads=spread_rows(shown.measures),
        failures=[(level, failure) for level in record.levels for failure in level.measures.failures],
    )


def main_level(record: BenchRecord) -> LevelRecord:
    """The level a sweep is shown by: where it saturates, else the busiest."""
    if record.saturation is not None and record.saturation.value is not None:
        return next(level for level in record.levels if level.value == record.saturation.value)
    return max(record.levels, key=lambda level: level.measures.output_tokens_per_second)


def headline(record: BenchRecord) -> str:
    if record.saturation is None or record.swept is None:
        return ""
    if record.saturation.value is None:
        return f"Saturation {record.saturation.reason}."
    return f"Saturated at {record.swept} {record.saturation.value:g}: {record.saturation.reason}."


def cards(measures: Measures) -> list[Card]:
    found = [
        Card(
            "Output", number(measures.output_tokens_per_second), "tokens/s", [f"{measures.num_output_tokens:,} tokens"]
        ),
        Card("Requests", number(measures.requests_per_second), "a second", [f"{measures.num_ok:,} answered"]),
        _time_card("First token", measures.ttft),
        _time_card("Between tokens", measures.itl),
        _time_card("Whole answer", measures.e2e),
    ]
    if measures.goodput is not None:
        limits = [f"{name} ≤ {most:g} s" for name, most in measures.goodput.slo.items()]
        found.append(Card("Within the SLO", f"{100 * measures.goodput.share:.1f}", "%", limits))
    num_failed = sum(failure.count for failure in measures.failures)
    found.append(Card("Failed", f"{num_failed:,}", f"of {measures.num_requests:,}"))
    return found


def _time_card(name: str, spread: Spread | None) -> Card:
    if spread is None:
        return Card(name, NOTHING, "")
    written, unit = seconds_format(spread.p50)
    tail = [f"{share} {_seconds(value)}" for share, value in (("p95", spread.p95), ("p99", spread.p99))]
    return Card(name, written(spread.p50), f"{unit} p50", tail)


def _seconds(value: float) -> str:
    written, unit = seconds_format(value)
    return f"{written(value)} {unit}"


COLUMNS = ("load", "tokens/s", "requests/s", "TTFT p50", "TTFT p95", "ITL p50", "ITL p95", "answer p95", "failed")


def table_row(level: LevelRecord) -> list[str]:
    measures = level.measures
    picked = [(measures.ttft, "p50"), (measures.ttft, "p95"), (measures.itl, "p50"), (measures.itl, "p95")]
    times = [
        _seconds(getattr(spread, share)) if spread else NOTHING for spread, share in [*picked, (measures.e2e, "p95")]
    ]
    rates = [number(measures.output_tokens_per_second), number(measures.requests_per_second)]
    return [level.pace, *rates, *times, str(sum(failure.count for failure in measures.failures))]


def spread_rows(measures: Measures) -> list[Sequence[str]]:
    names = {"ttft": "first token", "itl": "between tokens", "tpot": "a token, mean", "e2e": "whole answer"}
    rows: list[Sequence[str]] = []
    for name, text in names.items():
        spread: Spread | None = getattr(measures, name)
        if spread is not None:
            values = (spread.mean, spread.p50, spread.p95, spread.p99, spread.max)
            rows.append([text, *map(_seconds, values)])
    return rows


@cache
def _template() -> Template:
    source = files("pagoda.bench.report").joinpath("report.html.jinja").read_text("utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True).from_string(
        source
    )
