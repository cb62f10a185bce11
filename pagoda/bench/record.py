"""All of a benchmark in one record: what JSON files hold and reports are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import numpy as np

from pagoda.bench.load import Run
from pagoda.bench.measures import Floats, Measures, first_token, gaps, measure
from pagoda.bench.sweep import Level, Saturation, saturation

NUM_QUANTILES = 101
MOST_BINS = 120
MOST_DOTS = 600


class Timeline(msgspec.Struct, frozen=True):
    """Entry i speaks of the time from i to i + 1 bins after the start."""

    bin_seconds: float
    tokens_per_second: list[float]
    num_running: list[float]


class Detail(msgspec.Struct, frozen=True):
    """More of one run than its figures: enough to draw it."""

    ttft: list[float]
    """Percentiles 0 to 100, in seconds; likewise the next two."""
    itl: list[float]
    e2e: list[float]
    prompt_lengths: list[int]
    answer_lengths: list[int]
    dots: list[tuple[float, float, float]]
    """Requests: when sent, seconds to the first token, seconds to the end. Of very many, a part."""
    timeline: Timeline


class LevelRecord(msgspec.Struct, frozen=True):
    value: float | None
    """Of what was swept over."""
    pace: str
    measures: Measures
    detail: Detail


class BenchRecord(msgspec.Struct, frozen=True, kw_only=True):
    kind: str = "serve"
    url: str
    model: str
    date: str
    workload: str
    """In words."""
    extent: str
    machine: str
    """Of the client."""
    swept: str | None = None
    levels: list[LevelRecord]
    saturation: Saturation | None = None


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def level_record(run: Run, pace: str, value: float | None, slo: dict[str, float] | None) -> LevelRecord:
    return LevelRecord(value, pace, measure(run, slo), detail_of(run))


def find_saturation(levels: Sequence[LevelRecord], swept: str) -> Saturation:
    return saturation([Level(level.value or 0.0, level.measures) for level in levels], swept)


def detail_of(run: Run) -> Detail:
    whole = [outcome for outcome in run.outcomes if not outcome.error and outcome.times]
    between = np.concatenate([np.zeros(0), *(gaps(outcome) for outcome in whole)])
    shown = whole[:: -(-len(whole) // MOST_DOTS) or 1]
    return Detail(
        ttft=quantiles([first_token(outcome) for outcome in whole]),
        itl=quantiles(between),
        e2e=quantiles([outcome.ended - outcome.sent for outcome in whole]),
        prompt_lengths=[outcome.num_prompt for outcome in shown],
        answer_lengths=[outcome.num_output for outcome in shown],
        dots=[(o.sent - run.started, first_token(o), o.ended - o.sent) for o in shown],
        timeline=timeline_of(run),
    )


def quantiles(values: Sequence[float] | Floats) -> list[float]:
    found = np.asarray(values, np.float64)
    return np.percentile(found, np.linspace(0, 100, NUM_QUANTILES)).tolist() if found.size else []


def timeline_of(run: Run) -> Timeline:
    seconds = max(run.ended - run.started, 1e-9)
    num_bins = max(1, min(MOST_BINS, int(seconds / 0.25)))
    edges = np.linspace(0.0, seconds, num_bins + 1)
    width = seconds / num_bins
    tokens, running = np.zeros(num_bins), np.zeros(num_bins)
    for outcome in run.outcomes:
        if outcome.times:
            counts, _ = np.histogram(np.frombuffer(outcome.times, np.float64) - run.started, edges)
            tokens += counts * (max(outcome.num_output, len(outcome.times)) / len(outcome.times))
        begin, end = outcome.sent - run.started, (outcome.ended or run.ended) - run.started
        # The share of each bin in which this request was under way.
        running += np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0.0, width) / width
    return Timeline(width, (tokens / width).tolist(), running.tolist())
