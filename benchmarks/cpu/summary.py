"""From samples to medians, spreads, ratios and goals: plain functions over numbers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Speeds = Mapping[str, float]
"""Median tokens a second by engine."""


@dataclass(frozen=True)
class Spread:
    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.least:.0f}-{self.most:.0f}"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Goal:
    """At least `factor` times the best of the engines whose names begin with `peers`."""

    task: str
    peers: str
    factor: float
    exactly: bool = False
    """The one engine of that name, not all that begin so."""

    def rivals(self, speeds: Speeds, ours: str) -> Speeds:
        names = [name for name in speeds if not name.startswith(ours)]
        if self.exactly:
            return {name: speeds[name] for name in names if name == self.peers}
        return {name: speeds[name] for name in names if name.startswith(self.peers)}

    def __str__(self) -> str:
        rival = self.peers if self.exactly else f"the best {self.peers or 'peer'}"
        return f"{self.task}: {self.factor:g}x {rival}"


# What issue B asks of SmolLM2-135M in Q4_1 on two cores.
GOALS = (
    Goal("decode1", "llama.cpp", 1.5, exactly=True),
    Goal("decode1", "llama.cpp Q4_0", 1.1, exactly=True),
    Goal("prompt512", "", 1.15),
    Goal("decode32", "llama.cpp", 1.6),
    Goal("serve32", "", 1.2),
    Goal("serve32", "llama-server", 1.2),
)
MOST_MEBIBYTES_ONE_STREAM = 240.0


@dataclass(frozen=True)
class Verdict:
    goal: Goal
    rival: str
    ratio: float

    @property
    def is_met(self) -> bool:
        return self.ratio >= self.goal.factor

    def __str__(self) -> str:
        return "met" if self.is_met else f"missed by {1 - self.ratio / self.goal.factor:.0%}"


def best(speeds: Speeds) -> str:
    return max(speeds, key=lambda name: speeds[name])


def judge(goal: Goal, speeds: Speeds, ours: str) -> Verdict | None:
    """How one of our engines stands to the goal; None where nobody is there to compare with."""
    rivals = goal.rivals(speeds, ours.partition(" ")[0])
    if ours not in speeds or not rivals:
        return None
    rival = best(rivals)
    return Verdict(goal, rival, speeds[ours] / speeds[rival])


def ratios(speeds: Speeds, ours: str) -> dict[str, float]:
    """Ours against each of the others."""
    return {name: speeds[ours] / value for name, value in speeds.items() if name != ours}
