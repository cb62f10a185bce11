"""How busy the machine was while something was measured: whose processor time was it, and how much was stolen?"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
# The columns of the first line of /proc/stat; guest time is part of user time already.
BUSY_COLUMNS = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq
STEAL_COLUMN = 7


@dataclass(frozen=True)
class Busyness:
    """Shares of all processor time that there was."""

    ours: float
    others: float
    stolen: float


@dataclass(frozen=True)
class Reading:
    at: float
    busy: float
    stolen: float
    ours: float


def parse_stat(text: str) -> tuple[float, float]:
    """Seconds of work and seconds stolen by the hypervisor since the machine started, over all cores."""
    columns = [int(field) for field in text.splitlines()[0].split()[1:]]
    stolen = columns[STEAL_COLUMN] if len(columns) > STEAL_COLUMN else 0
    return sum(columns[index] for index in BUSY_COLUMNS) / TICKS, stolen / TICKS


def process_seconds(text: str) -> float:
    """Processor time of a process with its ended children, from its /proc/PID/stat."""
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return sum(int(field) for field in fields[11:15]) / TICKS


def session_of(text: str) -> int:
    return int(text.rpartition(")")[2].split()[3])


def session_seconds(session: int) -> float:
    """Processor time of every process of a session."""
    total = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it ended meanwhile
            continue
        if session_of(text) == session:
            total += process_seconds(text)
    return total


def read(session: int) -> Reading:
    busy, stolen = parse_stat(Path("/proc/stat").read_text())
    return Reading(time.monotonic(), busy, stolen, session_seconds(session))


def between(before: Reading, after: Reading, num_cores: int) -> Busyness:
    capacity = max(1e-9, (after.at - before.at) * num_cores)
    ours = after.ours - before.ours
    others = max(0.0, after.busy - before.busy - ours)
    return Busyness(ours / capacity, others / capacity, (after.stolen - before.stolen) / capacity)
