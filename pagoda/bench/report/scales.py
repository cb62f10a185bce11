"""Where a value lies on an axis, which values get a tick, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps `low` to 0 and `high` to 1."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        if self.is_log:
            return (math.log(value) - math.log(self.low)) / ((math.log(self.high) - math.log(self.low)) or 1.0)
        return (value - self.low) / ((self.high - self.low) or 1.0)


def linear(values: Sequence[float], num_ticks: int = 5, is_exact: bool = False) -> Scale:
    """From zero to a round number above all values, or with `is_exact` to the largest value itself."""
    most = max(values, default=0.0) or 1.0
    step = round_step(most / num_ticks)
    high = most if is_exact else step * math.ceil(most / step - 1e-9)
    count = math.floor(high / step + 1e-9)
    return Scale(0.0, high, tuple(step * index for index in range(count + 1)))


def levels(values: Sequence[float]) -> Scale:
    """A logarithmic axis with a tick at each value."""
    low, high = min(values), max(values)
    return Scale(low, high if high > low else low * 2, tuple(values), is_log=True)


def round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, the next one above."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def seconds_format(most: float) -> tuple[Format, str]:
    """How times up to `most` seconds are written, and their unit."""
    if most < 1e-3:
        return (lambda value: number(value * 1e6)), "µs"
    if most < 2.0:
        return (lambda value: number(value * 1e3)), "ms"
    return number, "s"


def number(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        return f"{value / 1000:,.3g}k" if abs(value) < 1e6 else f"{value / 1e6:,.3g}M"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
