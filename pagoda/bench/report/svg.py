"""Charts as SVG, drawn here: no script, no outside asset. Colours are classes, so that the page's style decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pagoda.bench.report.scales import Format, Scale, number

# About the width at which a phone shows it, so that text keeps its size there.
WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 40
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
NARROWEST_LABEL = 26.0


@dataclass(frozen=True)
class Series:
    """`labels` are shown beside the points; `hints` when the pointer rests on them."""

    name: str
    points: Sequence[tuple[float, float]]
    has_line: bool = True
    has_dots: bool = True
    is_filled: bool = False
    is_stepped: bool = False
    """Each point is a bar; the line goes along their tops."""
    labels: Sequence[str] = ()
    hints: Sequence[str] = ()


@dataclass(frozen=True)
class Chart:
    title: str
    x: Scale
    y: Scale
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_format: Format = number
    y_format: Format = number
    mark: tuple[float, str] | None = None
    """A vertical line at an x, and what it means."""
    limit: tuple[float, str] | None = None
    """A horizontal line at a y."""
    note: str = ""

    def svg(self) -> str:
        parts = [*self._grid(), *self._marks()]
        for index, series in enumerate(self.series):
            parts += self._series(index, series)
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">'
            + "".join(parts)
            + "</svg>"
        )

    def _across(self, value: float) -> float:
        return LEFT + PLOT_WIDTH * min(1.0, max(0.0, self.x.place(value)))

    def _up(self, value: float) -> float:
        return TOP + PLOT_HEIGHT * (1 - min(1.0, max(0.0, self.y.place(value))))

    def _grid(self) -> list[str]:
        parts = []
        bottom = TOP + PLOT_HEIGHT
        for tick in self.y.ticks:
            y = self._up(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + PLOT_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(_text(LEFT - 6, y + 3.5, self.y_format(tick), "end"))
        last = -NARROWEST_LABEL
        for tick in self.x.ticks:
            x = self._across(tick)
            parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
            if x - last >= NARROWEST_LABEL:
                parts.append(_text(x, bottom + 16, self.x_format(tick), "middle"))
                last = x
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{LEFT + PLOT_WIDTH}" y1="{bottom}" y2="{bottom}"/>')
        parts.append(_text(LEFT + PLOT_WIDTH / 2, HEIGHT - 6, self.x_label, "middle", "name"))
        middle = TOP + PLOT_HEIGHT / 2
        turn = f'transform="rotate(-90 11 {middle:.0f})"'
        parts.append(
            f'<text class="name" x="11" y="{middle:.0f}" text-anchor="middle" {turn}>{escape(self.y_label)}</text>'
        )
        return parts

    def _marks(self) -> list[str]:
        parts = []
        if self.mark is not None:
            x = self._across(self.mark[0])
            parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + PLOT_HEIGHT}"/>')
            side, shift = ("end", -5) if x > LEFT + PLOT_WIDTH / 2 else ("start", 5)
            parts.append(_text(x + shift, TOP + 10, self.mark[1], side, "marked"))
        if self.limit is not None and self.limit[0] <= self.y.high:
            y = self._up(self.limit[0])
            parts.append(f'<line class="mark" x1="{LEFT}" x2="{LEFT + PLOT_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(_text(LEFT + 5, y - 4, self.limit[1], "start", "marked"))
        return parts

    def _series(self, index: int, series: Series) -> list[str]:
        places = [(self._across(x), self._up(y)) for x, y in series.points]
        if series.is_stepped and len(places) > 1:
            half = (places[1][0] - places[0][0]) / 2
            places = [(x + side, y) for x, y in places for side in (-half, half)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts = []
        if series.is_filled and places:
            bottom = TOP + PLOT_HEIGHT
            area = f"{places[0][0]:.1f},{bottom} {path} {places[-1][0]:.1f},{bottom}"
            parts.append(f'<polygon class="fill c{index}" points="{area}"/>')
        if series.has_line and len(places) > 1:
            parts.append(f'<polyline class="line c{index}" points="{path}"/>')
        if series.has_dots:
            radius = 3.5 if series.has_line else 2.4
            for number_, (x, y) in enumerate(places):
                hint = f"<title>{escape(series.hints[number_])}</title>" if series.hints else ""
                kind = "dot" if series.has_line else "dot faint"
                parts.append(f'<circle class="{kind} c{index}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{hint}</circle>')
        for (x, y), label in zip(places, series.labels, strict=False):
            parts.append(_text(x - 6, y - 6, label, "end", "label"))
        return parts


def _text(x: float, y: float, text: str, anchor: str, kind: str = "number") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
