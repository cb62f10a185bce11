"""Numbers beside the goals of the reliability table: measured, allowed, met or missed."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Line:
    what: str
    value: str
    limit: str
    is_met: bool | None
    """None where there is nothing to meet."""
    is_timed: bool = False
    """It depends on how fast the machine is and on what else runs there."""


@dataclass
class Goals:
    name: str
    lines: list[Line] = field(default_factory=list)

    def at_most(self, what: str, value: float, limit: float, unit: str = "", is_timed: bool = False) -> None:
        self._add(what, value, f"<= {_shown(limit)}", value <= limit, unit, is_timed)

    def at_least(self, what: str, value: float, limit: float, unit: str = "", is_timed: bool = False) -> None:
        self._add(what, value, f">= {_shown(limit)}", value >= limit, unit, is_timed)

    def exactly(self, what: str, value: Any, expected: Any) -> None:
        self._add(what, value, f"= {_shown(expected)}", value == expected, "")

    def note(self, what: str, value: Any, unit: str = "") -> None:
        self._add(what, value, "", None, unit)

    def _add(self, what: str, value: Any, limit: str, is_met: bool | None, unit: str, is_timed: bool = False) -> None:
        self.lines.append(Line(what, f"{_shown(value)} {unit}".strip(), limit, is_met, is_timed))

    def missed(self, with_timed: bool = True) -> list[Line]:
        return [line for line in self.lines if line.is_met is False and (with_timed or not line.is_timed)]

    def table(self) -> str:
        verdicts = {True: "met", False: "MISSED", None: ""}
        rows = [("", self.name, "goal", "")]
        rows += [(line.value, line.what, line.limit, verdicts[line.is_met]) for line in self.lines]
        wide = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join(
            f"{value:>{wide[0]}}  {what:<{wide[1]}}  {limit:<{wide[2]}}  {verdict}"
            for value, what, limit, verdict in rows
        )


def quantile(values: list[float], share: float) -> float:
    """Of no values it is infinite: nothing was seen, so nothing was met."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def run_script(
    description: str | None,
    experiment: Callable[..., Awaitable[Goals]],
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> int:
    """Run one experiment from the command line; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default="smollm2", help="a name, a .gguf file or a model folder")
    add_arguments(parser)
    goals = asyncio.run(experiment(**vars(parser.parse_args())))
    print(goals.table())
    for line in goals.missed():
        print(f"missed: {line.what}: {line.value}, {line.limit}", file=sys.stderr)
    return 1 if goals.missed() else 0
