"""One workload at one level of load after the other, and where more load stops bringing more work done."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pagoda.bench.arrivals import Pace
from pagoda.bench.measures import Measures
from pagoda.core.errors import InvalidRequest

GROWTH = 0.05
SLO_SHARE = 0.95


class Level(msgspec.Struct, frozen=True):
    value: float
    """Of what is swept over: concurrency or rate."""
    measures: Measures


class Saturation(msgspec.Struct, frozen=True):
    value: float | None
    """The level; None where throughput still grew at the last one."""
    reason: str
    best_within_slo: float | None = None
    """The highest level at which nearly all requests keep the SLO."""


def parse_sweep(text: str, burstiness: float) -> tuple[str, list[tuple[float, Pace]]]:
    """`concurrency=1,2,4` or `rate=0.5,1,2`."""
    name, _, rest = text.partition("=")
    if name not in ("concurrency", "rate"):
        raise InvalidRequest("--sweep", f"{name!r} cannot be swept over; choose concurrency or rate")
    try:
        values = sorted({float(word) for word in rest.split(",")})
    except ValueError:
        raise InvalidRequest("--sweep", f"{rest!r} is not a list of numbers such as 1,2,4,8") from None
    if name == "rate":
        return name, [(value, Pace(rate=value, burstiness=burstiness)) for value in values]
    if any(value != int(value) for value in values):
        raise InvalidRequest("--sweep", "concurrency is counted in whole clients")
    return name, [(value, Pace(concurrency=int(value))) for value in values]


def saturation(levels: Sequence[Level], name: str = "concurrency") -> Saturation:
    """The lowest level that no higher one beats by more than 5 % in tokens a second."""
    kept = [level for level in levels if level.measures.goodput and level.measures.goodput.share >= SLO_SHARE]
    best = max((level.value for level in kept), default=None)
    for index, level in enumerate(levels[:-1]):
        here = level.measures.output_tokens_per_second
        later = max(other.measures.output_tokens_per_second for other in levels[index + 1 :])
        if here > 0 and later <= here * (1 + GROWTH):
            return Saturation(level.value, _reason(level, levels[-1], later, name), best)
    if len(levels) < 2:
        return Saturation(None, "one level alone has no knee", best)
    before, last = (level.measures.output_tokens_per_second for level in levels[-2:])
    growth = f"{last / before - 1:+.0%}" if before else "from nothing"
    reason = f"not reached: the last step, to {name} {levels[-1].value:g}, still changed tokens a second by {growth}"
    return Saturation(None, reason, best)


def _reason(level: Level, last: Level, later: float, name: str) -> str:
    here = level.measures.output_tokens_per_second
    text = (
        f"the lowest {name} whose throughput no higher one beats by more than {GROWTH:.0%}: "
        f"{here:,.0f} tokens/s here, {later:,.0f} at the best level beyond"
    )
    own, far = level.measures.e2e, last.measures.e2e
    if own is not None and far is not None and own.p95 > 0:
        text += f", while p95 latency goes from {own.p95:.3g} s to {far.p95:.3g} s at {name} {last.value:g}"
    return text
