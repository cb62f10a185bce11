"""Prometheus's text format, written line by line: a scrape must not hold up the streams of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pagoda.observability.histogram import Histogram

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """One metric under one or several names, with a value for each set of labels."""

    names: tuple[str, ...]
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    samples: tuple[tuple[Labels, float | Histogram], ...]


def exposition(families: Iterable[Family]) -> bytes:
    lines: list[str] = []
    for family in families:
        for name in family.names:
            shown = f"{name}_total" if family.kind == "counter" else name
            lines.append(f"# HELP {shown} {_escaped(family.meaning)}")
            lines.append(f"# TYPE {shown} {family.kind}")
            for labels, value in family.samples:
                if isinstance(value, Histogram):
                    lines += _histogram(name, _pairs(labels), value)
                else:
                    lines.append(f"{shown}{{{_pairs(labels)}}} {float(value)}")
    return ("\n".join(lines) + "\n").encode()


def _histogram(name: str, pairs: str, histogram: Histogram) -> Iterable[str]:
    """Prometheus counts upwards: each bucket holds all that is not larger."""
    comma = "," if pairs else ""
    seen = 0
    for bound, count in zip([*histogram.bounds, "+Inf"], histogram.counts, strict=True):
        seen += count
        yield f'{name}_bucket{{{pairs}{comma}le="{bound}"}} {seen}'
    yield f"{name}_count{{{pairs}}} {seen}"
    yield f"{name}_sum{{{pairs}}} {histogram.total!r}"


def _pairs(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items())


def _escaped(text: str, quotes: bool = False) -> str:
    found = text.replace("\\", "\\\\").replace("\n", "\\n")
    return found.replace('"', '\\"') if quotes else found
