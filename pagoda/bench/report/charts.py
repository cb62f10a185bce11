"""Which charts a benchmark is told with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagoda.bench.measures import Spread
from pagoda.bench.record import BenchRecord, Detail, LevelRecord
from pagoda.bench.report.scales import levels, linear, number, seconds_format
from pagoda.bench.report.svg import Chart, Series

NUM_BARS = 24


def sweep_charts(record: BenchRecord) -> list[Chart]:
    """Figures by level of load."""
    swept = record.swept or ""
    found = [level for level in record.levels if level.value]
    knee = record.saturation.value if record.saturation is not None else None
    charts = [_throughput(swept, found, knee), _trade(swept, found)]
    for name, title in (("ttft", "Time to first token"), ("itl", "Time between tokens"), ("e2e", "Whole answer")):
        spreads = [getattr(level.measures, name) for level in found]
        slo = next((level.measures.goodput.slo for level in found if level.measures.goodput), {})
        charts.append(_spread(title, swept, found, spreads, knee, slo.get(name)))
    if all(level.measures.goodput for level in found):
        charts.append(_goodput(swept, found, knee))
    return [chart for chart in charts if any(series.points for series in chart.series)]


def run_charts(detail: Detail) -> list[Chart]:
    """One run from its beginning to its end, and how its times are spread."""
    charts = [_timeline(detail, "tokens"), _timeline(detail, "running")]
    for title, values in (("Time to first token, spread", detail.ttft), ("Time between tokens, spread", detail.itl)):
        charts.append(_cumulative(title, values))
    charts += [_dots(detail), _lengths(detail)]
    return [chart for chart in charts if any(series.points for series in chart.series)]


def _throughput(swept: str, found: Sequence[LevelRecord], knee: float | None) -> Chart:
    points = [(level.value or 0.0, level.measures.output_tokens_per_second) for level in found]
    good = [(level.value or 0.0, level.measures.goodput.tokens_per_second) for level in found if level.measures.goodput]
    hints = [f"{swept} {x:g}: {y:,.0f} tokens/s" for x, y in points]
    series = [Series("all", points, hints=hints, is_filled=not good)]
    if good:
        series.append(Series("within the SLO", good))
    y = linear([y for _, y in points])
    mark = (knee, f"saturated at {knee:g}") if knee is not None else None
    return Chart("Throughput", levels([x for x, _ in points]), y, swept, "output tokens/s", series, mark=mark)


def _trade(swept: str, found: Sequence[LevelRecord]) -> Chart:
    kept = [level for level in found if level.measures.e2e is not None]
    points = [(level.measures.output_tokens_per_second, level.measures.e2e.p95) for level in kept if level.measures.e2e]
    y_format, unit = seconds_format(max((y for _, y in points), default=1.0))
    labels = [f"{level.value:g}" for level in kept]
    hints = [f"{swept} {label}: {x:,.0f} tokens/s, p95 {y:.3g} s" for label, (x, y) in zip(labels, points, strict=True)]
    return Chart(
        "Throughput against latency",
        linear([x for x, _ in points]),
        linear([y for _, y in points]),
        "output tokens/s",
        f"whole answer, p95, {unit}",
        [Series(swept, points, labels=labels, hints=hints)],
        y_format=y_format,
        note=f"Each point is a level of {swept}. Right is more work done, down is sooner.",
    )


def _spread(
    title: str,
    swept: str,
    found: Sequence[LevelRecord],
    spreads: Sequence[Spread | None],
    knee: float | None,
    slo: float | None,
) -> Chart:
    pairs = [(level.value or 0.0, spread) for level, spread in zip(found, spreads, strict=True) if spread is not None]
    most = max((spread.p99 for _, spread in pairs), default=1.0)
    y_format, unit = seconds_format(most)
    series = []
    for name in ("p50", "p95", "p99"):
        points = [(x, getattr(spread, name)) for x, spread in pairs]
        hints = [f"{swept} {x:g}: {name} {y_format(y)} {unit}" for x, y in points]
        series.append(Series(name, points, hints=hints))
    return Chart(
        title,
        levels([x for x, _ in pairs] or [1.0]),
        linear([most]),
        swept,
        unit,
        series,
        y_format=y_format,
        mark=(knee, "") if knee is not None else None,
        limit=(slo, f"SLO {y_format(slo)} {unit}") if slo is not None else None,
    )


def _goodput(swept: str, found: Sequence[LevelRecord], knee: float | None) -> Chart:
    points = [(level.value or 0.0, 100 * level.measures.goodput.share) for level in found if level.measures.goodput]
    hints = [f"{swept} {x:g}: {y:.1f} %" for x, y in points]
    scale = linear([100.0])
    series = [Series("share", points, hints=hints)]
    mark = (knee, "") if knee is not None else None
    return Chart("Requests that keep the SLO", levels([x for x, _ in points]), scale, swept, "%", series, mark=mark)


def _timeline(detail: Detail, what: str) -> Chart:
    line = detail.timeline
    values = line.tokens_per_second if what == "tokens" else line.num_running
    points = [((index + 0.5) * line.bin_seconds, value) for index, value in enumerate(values)]
    x = linear([len(values) * line.bin_seconds], is_exact=True)
    title, unit = ("Tokens over time", "tokens/s") if what == "tokens" else ("Requests under way", "requests")
    series = [Series(unit, points, has_dots=False, is_filled=True)]
    return Chart(title, x, linear(values), "seconds", unit, series)


def _cumulative(title: str, values: Sequence[float]) -> Chart:
    # The last percent is often far out; the axis ends at p99 so that the rest can be seen.
    most = values[99] if values else 1.0
    x_format, unit = seconds_format(most)
    points = [(value, float(share)) for share, value in enumerate(values[:100])]
    series = [Series("share", points, has_dots=False, is_filled=True)]
    note = f"Up to p99; the longest took {x_format(values[-1])} {unit}." if values else ""
    scale = linear([most], is_exact=True)
    return Chart(title, scale, linear([100.0]), unit, "% within", series, x_format=x_format, note=note)


def _dots(detail: Detail) -> Chart:
    most = max((e2e for _, _, e2e in detail.dots), default=1.0)
    y_format, unit = seconds_format(most)
    whole = [(sent, e2e) for sent, _, e2e in detail.dots]
    first = [(sent, ttft) for sent, ttft, _ in detail.dots]
    series = [Series("whole answer", whole, has_line=False), Series("first token", first, has_line=False)]
    x = linear([sent for sent, _ in whole] or [1.0], is_exact=True)
    return Chart("Each request", x, linear([most]), "sent after, seconds", unit, series, y_format=y_format)


def _lengths(detail: Detail) -> Chart:
    series = []
    most = max([*detail.prompt_lengths, *detail.answer_lengths], default=1)
    highest = 1.0
    for name, values in (("prompts", detail.prompt_lengths), ("answers", detail.answer_lengths)):
        counts, edges = np.histogram(values, NUM_BARS, (0, most * 1.0001))
        middles = ((edges[1:] + edges[:-1]) / 2).tolist()
        points = list(zip(middles, [float(count) for count in counts], strict=True)) if values else []
        highest = max(highest, *(y for _, y in points)) if points else highest
        series.append(Series(name, points, has_dots=False, is_filled=True, is_stepped=True))
    return Chart("Lengths", linear([most]), linear([highest]), "tokens", "requests", series, x_format=number)
