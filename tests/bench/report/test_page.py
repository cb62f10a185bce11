from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import msgspec
import pytest

from pagoda.bench.record import BenchRecord, LevelRecord, find_saturation, level_record
from pagoda.bench.report import render_report
from pagoda.bench.report.charts import run_charts, sweep_charts
from pagoda.bench.report.svg import PLOT_HEIGHT, TOP
from tests.bench.runs import outcome, run_of

SLO = {"ttft": 0.5, "itl": 0.1}


def level(value: int, rate: float) -> LevelRecord:
    outcomes = [
        outcome(n * 0.1, [n * 0.1 + 0.2 * value, n * 0.1 + 0.2 * value + 0.05], num_prompt=20 + n) for n in range(30)
    ]
    outcomes.append(outcome(0.0, [], ended=1.0, error="HTTP 503"))
    found = level_record(run_of(outcomes), f"{value} at a time", value, SLO)
    return msgspec.structs.replace(
        found, measures=msgspec.structs.replace(found.measures, output_tokens_per_second=rate)
    )


def make_record(is_sweep: bool = True, model: str = "smollm2") -> BenchRecord:
    levels = [level(1, 100.0), level(2, 180.0), level(4, 185.0)] if is_sweep else [level(4, 185.0)]
    return BenchRecord(
        url="http://127.0.0.1:8000",
        model=model,
        date="2026-01-01T00:00:00+00:00",
        workload="Prompts of 128 tokens.",
        extent="20 s",
        machine="Client: a machine",
        swept="concurrency" if is_sweep else None,
        levels=levels,
        saturation=find_saturation(levels, "concurrency") if is_sweep else None,
    )


class Tags(HTMLParser):
    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("is_sweep", [True, False])
def test_the_page_is_well_formed_and_needs_nothing_but_itself(is_sweep: bool) -> None:
    page = render_report(make_record(is_sweep))
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not {tag for tag, _ in tags.seen} & {"script", "link", "img", "iframe"}
    assert not any("src" in attributes or "href" in attributes for _, attributes in tags.seen)
    assert "@import" not in page and "url(" not in page
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page


def test_a_sweep_says_where_it_saturates() -> None:
    page = render_report(make_record())
    assert "Saturated at concurrency 2" in page and "saturated at 2" in page
    assert "HTTP 503" in page and "about HTTP 503" in page


def test_names_from_outside_are_escaped() -> None:
    page = render_report(make_record(model="<script>alert(1)</script>"))
    assert "<script>" not in page


@pytest.mark.parametrize("is_sweep", [True, False])
def test_every_chart_is_valid_svg_within_its_frame(is_sweep: bool) -> None:
    record = make_record(is_sweep)
    charts = [*run_charts(record.levels[-1].detail), *(sweep_charts(record) if is_sweep else [])]
    assert len(charts) == (12 if is_sweep else 6)
    for chart in charts:
        svg = chart.svg()
        root = ElementTree.fromstring(svg)
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        for points in re.findall(r'points="([^"]+)"', svg):
            for pair in points.split():
                x, y = map(float, pair.split(","))
                assert 0 <= x <= width and 0 <= y <= height
        assert root.findall(".//polyline") or root.findall(".//circle")


def test_points_lie_where_their_values_are() -> None:
    chart = sweep_charts(make_record())[0]
    svg = chart.svg()
    heights = [float(y) for y in re.findall(r'<circle class="dot c0" cx="[\d.]+" cy="([\d.]+)"', svg)]
    top, bottom = TOP, TOP + PLOT_HEIGHT
    expected = [bottom - (bottom - top) * rate / chart.y.high for rate in (100, 180, 185)]
    assert heights == pytest.approx(expected, abs=0.06)


def test_a_run_in_which_nothing_was_answered_has_a_page() -> None:
    failed = level_record(run_of([outcome(0.0, [], ended=1.0, error="timeout")]), "1 at a time", None, None)
    record = msgspec.structs.replace(make_record(is_sweep=False), levels=[failed])
    assert "timeout" in render_report(record)


def test_an_interrupted_run_says_so() -> None:
    record = make_record(is_sweep=False)
    cut = msgspec.structs.replace(record.levels[0].measures, was_interrupted=True)
    record = msgspec.structs.replace(record, levels=[msgspec.structs.replace(record.levels[0], measures=cut)])
    assert "interrupted" in render_report(record)
